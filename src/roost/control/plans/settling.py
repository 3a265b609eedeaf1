"""What became of a move of a plan, read from its VM's row: nothing else is asked.

running --> done      the VM is on the target and at rest
        --> failed    it is at rest where it was: the move was given up
        --> dropped   it is gone, has lost its host, or is somewhere else altogether
"""

from typing import NamedTuple

from roost.control.plans.quiet import LABEL, why_quiet
from roost.control.plans.record import DONE, DROPPED, FAILED
from roost.ledger.schema.rows import PlanMoveRow, VMRow, labels_of

#: What is told of moves whose VMs have been moved by others.
_THERE = "it is there already"
_ELSEWHERE = "it is on another host"
_ELSEWHERE_BY_NOW = "it is on another host than when this was planned"
BY_OTHERS = frozenset({_THERE, _ELSEWHERE, _ELSEWHERE_BY_NOW})


class Outcome(NamedTuple):
    """How a move ended."""

    state: str
    why: str = ""


def settle(move: PlanMoveRow, vm: VMRow | None, note: str = "") -> Outcome | None:
    """Return how a move that was begun ended; None while it is under way."""
    if vm is None or vm.desired == "absent":
        return Outcome(DROPPED, "the VM is gone")
    if vm.phase:
        return None
    if vm.host == move.target:
        return Outcome(DONE)
    if vm.host == move.source:
        return Outcome(FAILED, f"it stayed: {note or 'the move was given up'}")
    return Outcome(DROPPED, "it lost its host" if vm.host is None else _ELSEWHERE)


def drifted(move: PlanMoveRow, vm: VMRow | None) -> Outcome | None:
    """Return why a move that was not begun makes no sense any more; None if it still does."""
    if vm is None or vm.desired == "absent":
        return Outcome(DROPPED, "the VM is gone")
    if vm.phase:
        return None  # somebody else moves it: where it ends up is seen then
    if vm.host == move.target:
        return Outcome(DROPPED, _THERE)
    if vm.host != move.source:
        return Outcome(DROPPED, _ELSEWHERE_BY_NOW)
    return None


def disturbed(vm: VMRow, now_ms: int) -> Outcome | None:
    """Return why a VM is left alone by the time that its move would begin; None if it may go."""
    quiet = why_quiet(labels_of(vm.labels).get(LABEL), now_ms)
    return Outcome(FAILED, quiet) if quiet else None
