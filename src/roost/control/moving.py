"""Move a VM to another host, and drain a host one move at a time.

    ''  --migrate-->  preparing  --target: ready-->  moving  --source: moved-->  landing  --> ''
                          |                                      target: running ---^
                          +-- target failed or lost, or lost while moving: the VM stays

Both hosts have a claim until both have reported: the target's from the beginning, the source's as a
`hold` until it says that its copy is gone. Each step is one transaction, and the agents act only on
what it wrote; so at most one copy runs at every instant, whoever dies when.
"""

from roost.base.errors import Conflict, InvalidRequest, NoFit
from roost.control.access import Principal
from roost.control.burying import order_grave
from roost.control.charging import advance_groups, claims_of, hold_instead
from roost.control.finding import relock, vm_row
from roost.control.placing import Lost, Placing, Seen, take
from roost.control.roster import Roster
from roost.ledger.rows import Changes, ClaimRow, VMRow
from roost.ledger.store import Store
from roost.ledger.tables import claims, vms
from roost.ledger.transaction import Tx
from roost.model.flow import Rejection
from roost.wire.answers import rejection_json
from roost.wire.bodies import MigrateVM


class Moving:
    """Begins moves."""

    def __init__(self, store: Store, roster: Roster, placing: Placing) -> None:
        self._store, self._roster, self._placing = store, roster, placing

    async def migrate(
        self, ref: str, project: str | None, body: MigrateVM, who: Principal
    ) -> VMRow:
        """Begin to move a VM, to a named host or to where its strategy sends it."""
        vm = await self._store.read(lambda connection: vm_row(connection, ref, project, who))
        if body.host is not None and self._roster.entry(body.host) is None:
            raise InvalidRequest(f"no host {body.host!r}", host=body.host)
        found = await self.begin(vm, who.name, only=body.host)
        if isinstance(found, Rejection):
            raise NoFit(found.code.value, found.message, rejection_json(found))
        assert found is not None  # a refusal is explained
        return found

    async def begin(
        self, vm: VMRow, actor: str, *, only: str | None = None, explain: bool = True
    ) -> VMRow | Rejection | None:
        """Choose a target and claim it; the agents do the rest."""
        source = self._roster.host_name(vm.host)
        _check_movable(vm, source)
        assert source is not None
        entry = self._roster.entry(source)
        if entry is not None and entry.row.health == "offline":
            raise Conflict(f"host {source!r} is offline and cannot send VM {vm.name!r}", vm=vm.id)
        if only == source:
            raise Conflict(f"VM {vm.name!r} is on {source!r} already", vm=vm.id)

        def commit(tx: Tx, seen: Seen, claim: ClaimRow) -> VMRow:
            now = relock(tx, vm.id)
            if now.generation != vm.generation:
                raise Conflict(f"VM {vm.name!r} was changed meanwhile", vm=vm.id)
            if "hold" in claims_of(tx, vm.id):
                raise Conflict(
                    f"an earlier host of VM {vm.name!r} has not cleaned up yet", vm=vm.id
                )
            changes: Changes = {}
            take(tx, vm, claim, seen, "migrate", changes)
            row = _change(tx, vm.id, target=claim.host, phase="preparing")
            changes["vms"] = {vm.id: row}
            note = f"from {source} to {seen.placement.host}"
            tx.event("vm.move_begun", f"vm/{vm.id}", changes, project=vm.project, note=note)
            return row

        return await self._placing.place(
            vm, commit, "migrate_in", actor, only=only, never=(source,), explain=explain
        )


def _check_movable(vm: VMRow, source: str | None) -> None:
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    if source is None:
        raise Conflict(f"VM {vm.name!r} has no host yet", vm=vm.id)
    if vm.phase:
        raise Conflict(f"VM {vm.name!r} is moving already", vm=vm.id)
    if vm.observed not in ("running", "stopped"):
        raise Conflict(
            f"VM {vm.name!r} is {vm.observed or 'not started'}; it can move when it runs or is "
            "stopped",
            vm=vm.id,
        )


def _change(tx: Tx, vm_id: str, **values: object) -> VMRow:
    row = tx.update(vms, vms.c.id == vm_id, generation=vms.c.generation + 1, **values)
    assert row is not None
    return VMRow(**row)


def begin_sending(tx: Tx, vm: VMRow) -> None:
    """The target waits: the source may send."""
    row = _change(tx, vm.id, phase="moving")
    tx.event("vm.move_sending", f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project)


def switch_over(tx: Tx, vm: VMRow) -> None:
    """The source's copy is over: the VM belongs to the target now."""
    assert vm.target is not None
    assert vm.host is not None
    source = vm.host
    found = claims_of(tx, vm.id)
    run, incoming = found["run"], found["migrate_in"]
    # Amounts stay as they are on both hosts; only what the claims are called changes.
    changes: Changes = {"claims": {incoming.id: None, **hold_instead(tx, run)}}
    changes["claims"][run.id] = tx.update(claims, claims.c.id == incoming.id, id=run.id, kind="run")
    row = _change(
        tx,
        vm.id,
        host=vm.target,
        target=None,
        phase="landing",
        observed="",
        observed_generation=0,
        problem=None,
    )
    order_grave(tx, row, source, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    tx.event("vm.move_switched", f"vm/{vm.id}", changes, project=vm.project)


def finish_move(tx: Tx, vm: VMRow) -> VMRow:
    """The target has it: the move is over."""
    row = tx.update(vms, vms.c.id == vm.id, phase="")
    assert row is not None
    tx.event("vm.moved", f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project)
    return VMRow(**row)


def abandon_move(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """Give up: the VM stays, the target is told to clean up and is charged until it has.

    A copy that was sent already only waits there: it runs when the ledger says so, never before.
    """
    if vm.phase not in ("preparing", "moving") or vm.target is None:
        raise Lost
    target = vm.target
    incoming = claims_of(tx, vm.id)["migrate_in"]
    changes: Changes = {"claims": {incoming.id: None, **hold_instead(tx, incoming)}}
    row = _change(tx, vm.id, target=None, phase="")
    order_grave(tx, row, target, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    tx.event("vm.move_abandoned", f"vm/{vm.id}", changes, project=vm.project, note=why)
    return row
