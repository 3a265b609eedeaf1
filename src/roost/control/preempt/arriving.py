"""The VM for which room was made takes it: what was held is given back and charged at once."""

from collections.abc import Callable

from sqlalchemy import Connection

from roost.base.errors import Conflict
from roost.control.create import relaxing
from roost.control.create.placing import Basis, Placing, take
from roost.control.vms.lookup import relock
from roost.ledger.claims.capacity import CLEANUP, RUN, claims_of
from roost.ledger.claims.makingroom import drop_hold, hold_id
from roost.ledger.schema.rows import Changes, ClaimRow, HoldRow, PreemptionRow, VMRow
from roost.ledger.schema.tables import holds, preemptions, vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import Plus, find_row
from roost.ledger.writes.transaction import Tx


def held_for(connection: Connection, vm: str) -> HoldRow | None:
    """Return what is held for a VM that room is made for."""
    found = find_row(connection, holds, {"id": hold_id(vm)})
    return None if found is None else HoldRow(**found)


async def arrive(
    store: Store,
    placing: Placing,
    vm: VMRow,
    row: PreemptionRow,
    host: str,
    check: Callable[[Tx], None],
) -> bool:
    """Place a VM on the host where room was made for it; say whether there is enough by now."""
    held = await store.read(lambda connection: held_for(connection, vm.id))

    def commit(tx: Tx, seen: Basis, claim: ClaimRow) -> VMRow:
        check(tx)
        now = relock(tx, vm.id)
        if now.host is not None or now.generation != vm.generation:
            raise Conflict(f"VM {vm.name!r} was changed meanwhile", vm=vm.id)
        if CLEANUP in claims_of(tx, vm.id):
            raise Conflict(f"an earlier host of VM {vm.name!r} has yet to answer", vm=vm.id)
        tx.remove(preemptions, vm=vm.id)
        changes: Changes = {"preemptions": {vm.id: None}, "holds": drop_hold(tx, vm.id)}
        take(tx, vm, claim, seen, "preempt", changes)
        found = tx.change(vms, {"id": vm.id}, host=claim.host, pending=None, generation=Plus(1))
        assert found is not None
        changes["vms"] = {vm.id: found}
        relaxing.forget(tx, vm.id, changes)
        note = f"on {seen.placement.host}, where room was made for it"
        note += relaxing.said_of(seen.placement)
        tx.event("vm.placed", f"vm/{vm.id}", changes, project=vm.project, note=note)
        return VMRow(**found)

    found = await placing.place(vm, commit, RUN, "roost", only=host, explain=False, held=held)
    return isinstance(found, VMRow)
