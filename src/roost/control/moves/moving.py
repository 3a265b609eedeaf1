"""Begin and cancel moves: choose a target and claim it; `machine` and the agents do the rest."""

from collections.abc import Callable, Sequence

from roost.base.errors import Conflict, NotFound
from roost.control.create.placing import Basis, Placing, take
from roost.control.groups.budgets import keep_budgets
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.handover import carry_out
from roost.control.moves.machine import OUTCOMES, Begin, Cancel, Prepare, Refuse, step
from roost.control.moves.routes import move_routes
from roost.control.vms.lookup import locked_vm, relock, vm_row
from roost.control.vms.move_record import MoveRecord, move_of
from roost.control.vms.views import vm_body
from roost.ledger.claims.capacity import CLEANUP, MIGRATE_IN, claims_of
from roost.ledger.claims.makingroom import drop_hold_of
from roost.ledger.schema.rows import Changes, ClaimRow, HoldRow, VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Rejection
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.agentlink import MoveInfo
from roost.wire.answers import no_fit
from roost.wire.bodies import MigrateVM, VMBody
from roost.wire.translate import size


class Moving(Part):
    """Begins and cancels moves of VMs."""

    def __init__(self, store: Store, roster: Roster, placing: Placing, lineage: Lineage) -> None:
        self._store, self._roster, self._placing = store, roster, placing
        self._lineage = lineage

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return move_routes(self)

    async def migrate(
        self, ref: str, project: str | None, body: MigrateVM, who: Principal
    ) -> VMBody:
        """Begin to move a VM, to a named host or to where its strategy sends it."""
        vm = await self._store.read(lambda connection: vm_row(connection, ref, project, who))
        if body.host is not None and self._roster.entry(body.host) is None:
            raise NotFound(f"no host {body.host!r}", host=body.host)
        found = await self.begin(vm, who.name, body, only=body.host)
        if isinstance(found, Rejection):
            raise no_fit(found)
        assert found is not None  # a refusal is explained
        return await self._body(found)

    async def cancel(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Cancel a move, if the VM has not left its host yet."""

        def change(tx: Tx) -> VMRow:
            return take_back(tx, locked_vm(tx, ref, project, who), f"cancelled by {who.name}")

        return await self._body(await self._store.write(change, who.name))

    async def _body(self, vm: VMRow) -> VMBody:
        read = self._roster.specs.read
        specs = await self._store.read(lambda connection: read(connection, [vm]))
        return vm_body(vm, specs.get(vm.id), self._roster)

    async def begin(
        self,
        vm: VMRow,
        actor: str,
        body: MigrateVM | None = None,
        *,
        only: str | None = None,
        explain: bool = True,
        also: Callable[[Tx], None] | None = None,
        held: HoldRow | None = None,
    ) -> VMRow | Rejection | None:
        """Place a VM's move and claim its target; the agents do the rest.

        `also` is written in the transaction that begins the move, or forbids it by raising. `held`
        is what the target keeps free for this move; it is given back as the target is claimed.
        """
        await self._lineage.require_sure()
        source = self._roster.host_name(vm.host)
        _check_movable(vm, source)
        assert source is not None
        entry = self._roster.entry(source)
        if entry is not None and entry.row.health == "offline":
            raise Conflict(f"host {source!r} is offline and cannot send VM {vm.name!r}", vm=vm.id)
        if only == source:
            raise Conflict(f"VM {vm.name!r} is on {source!r} already", vm=vm.id)

        def commit(tx: Tx, seen: Basis, claim: ClaimRow) -> VMRow:
            now = relock(tx, vm.id)
            if now.generation != vm.generation:
                raise Conflict(f"VM {vm.name!r} was changed meanwhile", vm=vm.id)
            if CLEANUP in claims_of(tx, vm.id):
                raise Conflict(
                    f"an earlier host of VM {vm.name!r} has not cleaned up yet", vm=vm.id
                )
            changes: Changes = {}
            if held is not None:
                changes["holds"] = drop_hold_of(tx, held.id)
            take(tx, vm, claim, seen, "migrate", changes)
            if body is None or not body.ignore_budget:
                keep_budgets(tx, {vm.id: vm.name})
            generation = now.generation + 1
            found = tx.change(
                vms,
                {"id": vm.id},
                generation=generation,
                target=claim.host,
                phase=OUTCOMES[Prepare].phase,
                move=row_json(MoveRecord(_info(vm, body or MigrateVM(), generation))),
            )
            assert found is not None
            row = VMRow(**found)
            changes["vms"] = {vm.id: row}
            note = f"from {source} to {seen.placement.host}"
            event = OUTCOMES[Prepare].event
            tx.event(event, f"vm/{vm.id}", changes, project=vm.project, note=note)
            if also is not None:
                also(tx)
            return row

        return await self._placing.place(
            vm, commit, MIGRATE_IN, actor, only=only, never=(source,), explain=explain, held=held
        )


def take_back(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """Cancel the move of a VM that has not left its host yet; the row is locked."""
    for effect in step(move_of(vm), Cancel(why)):
        if isinstance(effect, Refuse):
            raise Conflict(f"VM {vm.name!r} {effect.why}", vm=vm.id)
        vm = carry_out(tx, vm, effect)
    return vm


def _check_movable(vm: VMRow, source: str | None) -> None:
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    if source is None:
        raise Conflict(f"VM {vm.name!r} has no host yet", vm=vm.id)
    for effect in step(move_of(vm), Begin()):
        if isinstance(effect, Refuse):
            raise Conflict(f"VM {vm.name!r} {effect.why}", vm=vm.id)
    if vm.observed not in ("running", "paused", "stopped"):
        raise Conflict(
            f"VM {vm.name!r} is {vm.observed or 'not started'}; it can move when it runs or is "
            "stopped",
            vm=vm.id,
        )


def _info(vm: VMRow, body: MigrateVM, begun: int) -> MoveInfo:
    return MoveInfo(
        begun=begun,
        mode="cold" if body.cold or vm.observed == "stopped" else "live",
        bandwidth_bytes=size(body.bandwidth, "bandwidth"),
        downtime_ms=body.downtime_ms,
        auto_converge=body.auto_converge,
        post_copy=body.post_copy,
        limit_s=float(body.limit_s),
    )
