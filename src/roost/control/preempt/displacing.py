"""Stop a VM to make room for a more important one, and put it into the queue.

Only VMs that may be started elsewhere (`restart: elsewhere`) are stopped: what is on their local
disk goes with the copy. Their hosts must have heard so, or the end of a lease would not stop a copy
that is still to be destroyed (`control/vms/restart_policy.py`). The host is told to destroy it and
stays charged until it has; the VM is started on another host only then. That it was displaced is
kept until it has run again: so long it counts against the disruption budgets of its groups,
displaces nobody itself and is not displaced again. Nor is a VM that ends or draws on a reservation:
its room would go back to the reservation. Nor one that moved here from a host that has yet to clean
up: a VM waits for one host at a time to do so.
"""

import msgspec

from roost.base.errors import Conflict
from roost.control.groups.budgets import keep_budgets
from roost.control.preempt.record import named
from roost.control.vms.deletion import order_destruction
from roost.control.vms.lookup import relock
from roost.ledger.claims.capacity import CLEANUP, RUN, claims_of, hold_instead
from roost.ledger.schema.rows import Changes, DisplacedRow, VMRow
from roost.ledger.schema.tables import displaced, vms
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import RejectionCode
from roost.wire.bodies import RejectionBody


def displace(tx: Tx, vm_id: str, host: int, waits: VMRow) -> bool:
    """Stop a VM for another one; False when it is not there any more, or is at something else."""
    vm = relock(tx, vm_id)
    if vm.host != host or vm.desired == "absent":
        return False
    who = named(vm, waits.project)  # why a preemption ends is kept for the VM that waits
    if vm.phase or vm.restart != "elsewhere" or vm.priority >= waits.priority:
        raise Conflict(f"{who} cannot be stopped to make room", vm=vm.id)
    found = claims_of(tx, vm.id)
    if CLEANUP in found:  # there is one such claim of a VM: it could not wait for this host, too
        raise Conflict(f"an earlier host of {who} has not cleaned up yet", vm=vm.id)
    mark = tx.find(displaced, vm=vm.id)
    if mark is not None and not has_run(vm, mark["generation"]):
        raise Conflict(f"{who} was displaced before and has not run since", vm=vm.id)
    if found[RUN].is_special:
        raise Conflict(f"the room of {who} would go back to a reservation", vm=vm.id)
    keep_budgets(tx, {vm.id: vm.name})
    changes: Changes = {"claims": {found[RUN].id: None, **hold_instead(tx, found[RUN])}}
    message = (
        f"it was stopped to make room for {named(waits, vm.project)}, whose "
        f"priority {waits.priority} is above its own, {vm.priority}"
    )
    row = tx.change(
        vms,
        {"id": vm.id},
        generation=Plus(1),
        host=None,
        observed="",
        observed_generation=0,
        problem=None,
        pending=row_json(
            RejectionBody(
                vm=vm.name,
                code=RejectionCode.INSUFFICIENT_RESOURCES,
                message=message,
                strategy=vm.strategy,
                hosts=1,
            )
        ),
    )
    assert row is not None
    now = VMRow(**row)
    order_destruction(tx, now, host, changes)
    advance_groups(tx, vm.id, changes)
    new = DisplacedRow(vm=vm.id, preemptor=waits.id, generation=now.generation, at_ms=tx.at_ms)
    tx.remove(displaced, vm=vm.id)
    tx.insert(displaced, msgspec.structs.asdict(new))
    changes["displaced"] = {vm.id: new}
    changes["vms"] = {vm.id: now}
    tx.event("vm.displaced", f"vm/{vm.id}", changes, project=vm.project, note=message)
    return True


def forget_displaced(tx: Tx, vm_id: str) -> None:
    """Forget that a VM was displaced, once it has run again or is gone."""
    mark = tx.find(displaced, lock=True, vm=vm_id)
    if mark is None:
        return
    row = tx.find(vms, id=vm_id)
    if row is not None and not has_run(VMRow(**row), mark["generation"]):
        return
    tx.remove(displaced, vm=vm_id)
    project = None if row is None else row["project"]
    changes: Changes = {"displaced": {vm_id: None}}
    tx.event("vm.displaced_over", f"vm/{vm_id}", changes, project=project)


def has_run(vm: VMRow, generation: int) -> bool:
    """Say whether a VM has been what it is wanted to be since it was displaced."""
    seen = vm.host is not None and vm.observed_generation > generation
    return seen and vm.observed in ("running", "paused", "stopped")
