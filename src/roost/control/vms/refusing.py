"""A host refuses a VM that never ran on it: the agent's books have the last word on capacity.

The VM leaves that host and goes back to the queue, which tries every other host once this one has
said that it has nothing of the VM: a refusal is only how things were, and the agent tries again
when room appears. It is told to the user like any VM that waits, with the agent's own words.
"""

from sqlalchemy import select

from roost.control.vms.deletion import order_destruction
from roost.control.vms.problems import problem_text, read_problem
from roost.control.vms.restart_policy import asked_restart
from roost.ledger.claims.capacity import RUN, claims_of, hold_instead
from roost.ledger.schema.rows import Changes, VMRow
from roost.ledger.schema.tables import hosts, vms
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import RejectionCode
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import RejectionBody


def is_refusal(vm: VMRow, seen: SeenVM) -> bool:
    """Say whether a host has no room for a VM that it has never had."""
    never_ran = vm.observed_generation == 0 and not vm.phase and vm.desired != "absent"
    return seen.seen == "failed" and seen.failure == "capacity" and never_ran


def is_refused(vm: VMRow, seen: SeenVM) -> bool:
    """Say whether a refusal means that a VM should be tried elsewhere.

    One of an earlier order does not: the host may have had room for the newest by now. It is not
    written down either, or a refusal of the newest would look as if the VM had been there before.
    """
    return seen.generation == vm.generation


def send_elsewhere(tx: Tx, vm: VMRow, seen: SeenVM) -> None:
    """Take a VM off the host that refused it, and queue it."""
    assert vm.host is not None
    name = tx.connection.execute(select(hosts.c.name).where(hosts.c.number == vm.host)).scalar_one()
    changes: Changes = {"claims": {}}
    for claim in claims_of(tx, vm.id).values():
        if claim.kind == RUN:
            changes["claims"] |= {claim.id: None, **hold_instead(tx, claim)}
    message = f"host {name} refused it: {seen.message or seen.code or 'it does not say why'}"
    row = tx.change(
        vms,
        {"id": vm.id},
        generation=Plus(1),
        host=None,
        observed="",
        restart=asked_restart(vm),  # who starts it is told so from the start
        problem=problem_text(seen.code, message, seen.generation, name),
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
    problem = read_problem(vm.problem)
    return (problem.host,) if problem.host else ()
