"""How a move of a plan is ordered, by what the plan says of VMs that do not converge."""

from roost.control.plans.record import FAILED, asked_of, predicted_of
from roost.control.plans.settling import Outcome
from roost.ledger.schema.rows import PlanMoveRow, PlanRow
from roost.wire.bodies import MigrateVM


def order_of(row: PlanRow, move: PlanMoveRow) -> MigrateVM:
    """Return the order of a move: with post-copy, slowed down if need be, or neither.

    Post-copy is for VMs alone that are foreseen to need it: whoever is sent so depends on the
    network until all of its memory is there. What was foreseen wrongly is slowed down instead.
    """
    post_copy = predicted_of(move).then == "post_copy"
    refuses = asked_of(row).not_converging == "refuse"
    return MigrateVM(auto_converge=not refuses and not post_copy, post_copy=post_copy)


def unsendable(move: PlanMoveRow) -> Outcome | None:
    """Return why a move is not begun that its plan refuses, by what was read after its draft."""
    if predicted_of(move).then != "refuse":
        return None
    return Outcome(FAILED, "it would not converge, and the plan refuses such moves")
