"""A host refuses a VM that never ran on it: the agent's books have the last word on capacity.

The VM leaves that host and goes back to the queue, which tries every other host once this one has
said that it has nothing of the VM: a refusal is only how things were, and the agent tries again
when room appears. It is told to the user like any VM that waits, with the agent's own words.
"""

import msgspec
from sqlalchemy import select

from roost.control.vms.deletion import order_destruction
from roost.ledger.capacity import RUN, claims_of, hold_instead
from roost.ledger.membership import advance_groups
from roost.ledger.rows import Changes, VMRow
from roost.ledger.statements import Plus
from roost.ledger.tables import hosts, vms
from roost.ledger.transaction import Tx, row_json
from roost.model.flow import RejectionCode
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import ProblemBody, RejectionBody


def is_refused(vm: VMRow, seen: SeenVM) -> bool:
    """Say whether a report means that a VM should be tried elsewhere."""
    never_ran = vm.observed_generation == 0 and not vm.phase
    wanted = vm.desired != "absent" and seen.generation == vm.generation
    return seen.seen == "failed" and seen.failure == "capacity" and never_ran and wanted


def send_elsewhere(tx: Tx, vm: VMRow, seen: SeenVM) -> None:
    """Take a VM off the host that refused it, and queue it."""
    assert vm.host is not None
    name = tx.connection.execute(select(hosts.c.name).where(hosts.c.number == vm.host)).scalar_one()
    changes: Changes = {"claims": {}}
    for claim in claims_of(tx, vm.id).values():
        if claim.kind == RUN:
            changes["claims"] |= {claim.id: None, **hold_instead(tx, claim)}
    message = f"host {name} refused it: {seen.message}"
    row = tx.change(
        vms,
        {"id": vm.id},
        generation=Plus(1),
        host=None,
        observed="",
        problem=row_json(
            ProblemBody(code=seen.code, message=message, generation=seen.generation, host=name)
        ),
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
    order_destruction(tx, VMRow(**row), vm.host, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    tx.event("vm.refused", f"vm/{vm.id}", changes, project=vm.project, note=message)


def refused_by(vm: VMRow) -> tuple[str, ...]:
    """Return the host that refused a VM last; it is not asked again."""
    if vm.problem is None:
        return ()
    problem = msgspec.json.decode(vm.problem, type=ProblemBody)
    return (problem.host,) if problem.host else ()
