"""Take a VM off a fenced host and start it elsewhere: of itself (recover), or on request.

The old copy is proved to be over before this begins; here its claims go, its host is told to
destroy what it may still have, and the VM is placed like any other, or waits in the queue.
"""

import logging
from collections.abc import Callable

from roost.base.errors import Conflict
from roost.control.create.placing import Basis, Placing, take
from roost.control.hosts.registering import locked_host
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.control.moves.handover import give_up_both
from roost.control.moves.machine import is_proof
from roost.control.vms.lookup import relock
from roost.control.vms.restart_policy import asked_restart
from roost.ledger.claims.capacity import RUN
from roost.ledger.schema.rows import Changes, ClaimRow, VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Rejection
from roost.wire.answers import rejection_json

log = logging.getLogger("roost.recover")


class Rehoming:
    """Gives VMs of fenced hosts a new host."""

    def __init__(self, store: Store, roster: Roster, placing: Placing) -> None:
        self._store, self._roster, self._placing = store, roster, placing

    async def restart_elsewhere(
        self, vm: VMRow, entry: HostEntry, actor: str, check: Callable[[Tx], None]
    ) -> bool:
        """Start a VM on another host; say whether there was one, or else it is queued.

        `check` raises in the transaction when whoever asks may not do so any more.
        """

        def commit(tx: Tx, seen: Basis, claim: ClaimRow) -> VMRow:
            changes: Changes = {}
            check(tx)
            _leave(tx, vm, entry, changes)
            take(tx, vm, claim, seen, "recover", changes)
            row = _rehome(tx, vm, host=claim.host, pending=None)
            changes["vms"] = {vm.id: row}
            note = f"from {entry.name} to {seen.placement.host}"
            tx.event("vm.recovered", f"vm/{vm.id}", changes, project=vm.project, note=note)
            return row

        def queue(tx: Tx, why: Rejection) -> None:
            changes: Changes = {}
            check(tx)
            _leave(tx, vm, entry, changes)
            advance_groups(tx, vm.id, changes)
            row = _rehome(tx, vm, host=None, pending=row_json(rejection_json(why)))
            changes["vms"] = {vm.id: row}
            tx.event("vm.queued", f"vm/{vm.id}", changes, project=vm.project, note=why.message)

        target = self._roster.host_name(vm.target)
        never = (entry.name,) if target is None else (entry.name, target)
        found = await self._placing.place(vm, commit, RUN, actor, never=never)
        if isinstance(found, Rejection):
            await self._store.write(lambda tx: queue(tx, found), actor)
            return False
        log.warning("VM %s is restarted elsewhere", vm.name)
        return True


def _leave(tx: Tx, vm: VMRow, entry: HostEntry, changes: Changes) -> None:
    """Take a VM off a fenced host: claims go, and the host's copy is to be destroyed."""
    now = relock(tx, vm.id)
    host = locked_host(tx, entry.name)
    if now.generation != vm.generation or now.host != entry.number:
        raise Conflict(f"VM {vm.name!r} was changed meanwhile", vm=vm.id)
    if not is_proof(now.restart, host.fenced):
        raise Conflict(f"host {host.name!r} was heard of meanwhile", host=host.name)
    give_up_both(tx, now, changes)


def _rehome(tx: Tx, vm: VMRow, **values: object) -> VMRow:
    row = tx.change(
        vms,
        {"id": vm.id},
        generation=Plus(1),
        target=None,
        phase="",
        move=None,
        observed="",
        observed_generation=0,
        problem=None,
        restart=asked_restart(vm),  # who starts it is told so from the start
        **values,
    )
    assert row is not None
    return VMRow(**row)
