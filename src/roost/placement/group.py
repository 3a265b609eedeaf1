"""Several VMs or none: a greedy try first, then an exact search, then what stands in the way.

Greedy placing can paint itself into a corner: a VM takes the only host that a later one could
have had. If that happens, an integer program decides; a batch that fits is therefore not refused.
Where nothing fits, the smallest set of rules, groups and constraints is named without which it
would. The answer says which way found it, and whether a no is proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.placement.effort import Effort
from roost.placement.engine import Engine
from roost.placement.greedy import place_in_turn

if TYPE_CHECKING:
    from roost.placement.solver.relaxing import Conflict

GREEDY = "greedy"
EXACT = "exact search"
#: VMs that the exact search takes on.
MOST_EXACT = 1000
#: Why a batch was not searched for exactly.
NO_SOLVER = "the exact search needs OR-Tools, which is not installed: pip install 'roost[solver]'"


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """Placements for all, or the rejection of the first VM that the greedy try could not place.

    `order`: one in which every VM passes all filters, by position in the batch. `proven`: of a
    refusal, that there is no way; else the search was cut short, and a solution may exist.
    """

    placements: tuple[Placement, ...]
    how: str
    rejection: Rejection | None = None
    proven: bool = True
    order: tuple[int, ...] = ()
    conflict: "Conflict | None" = None

    @property
    def fits(self) -> bool:
        """Say whether every VM has a host."""
        return self.rejection is None


def place_group(
    engine: Engine,
    requests: Sequence[PlaceRequest],
    *,
    most_exact: int = MOST_EXACT,
    effort: Effort | None = None,
) -> GroupAnswer:
    """Find hosts for all of the requests at once; nothing changes.

    More than `most_exact` requests are only placed greedily; `effort` is the exact search's and
    that of naming what stands in the way, both together.
    """
    placements, rejection = place_in_turn(engine, requests)
    if rejection is None:
        return GroupAnswer(tuple(placements), GREEDY, order=tuple(range(len(requests))))
    return place_exactly(engine, requests, rejection, effort, most_exact=most_exact)


def place_exactly(
    engine: Engine,
    requests: Sequence[PlaceRequest],
    rejection: Rejection,
    effort: Effort | None = None,
    *,
    most_exact: int = MOST_EXACT,
) -> GroupAnswer:
    """Find hosts for a batch that greedy placing got stuck in with `rejection`."""
    if len(requests) > most_exact:
        return _refused(requests, rejection, GREEDY, proven=False, why=(
            f"only up to {most_exact} VMs are searched for exactly"
        ))  # fmt: skip
    # Loading the solver takes longer than most placements, so only those who need it pay.
    try:
        from roost.placement.solver.relaxing import conflict_of
        from roost.placement.solver.searching import search
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "ortools":
            raise
        return _refused(requests, rejection, GREEDY, proven=False, why=NO_SOLVER)

    effort = effort or Effort()
    limit = effort.left
    found = search(engine, requests, effort)
    if found.placements is not None:
        return GroupAnswer(found.placements, EXACT, order=found.order)
    if not found.proven:
        why = f"the exact search ended at its limit of {limit:g} s"
        return _refused(requests, rejection, EXACT, proven=False, why=why)
    conflict = conflict_of(engine, requests, effort, found.core)
    refused = _refused(requests, rejection, EXACT, proven=True, why=_words(conflict))
    return replace(refused, conflict=conflict)


def _words(conflict: "Conflict | None") -> str:
    """Return what would have to go, as the end of a sentence."""
    if conflict is None:
        return ""
    if not conflict.restrictions:
        return "; the amounts alone do not fit"
    named = ", ".join(f"{each.kind} {each.name!r}" for each in conflict.restrictions)
    if not conflict.checked:
        return f"; perhaps all would fit without {named}, which was not checked to the end"
    return f"; all would fit without {named}"


def _refused(
    requests: Sequence[PlaceRequest], rejection: Rejection, how: str, *, proven: bool, why: str
) -> GroupAnswer:
    told = f"no way to place all {len(requests)}{why}"
    if not proven:
        told = f"no way to place all {len(requests)} was found; not proven: {why}"
    refused = replace(rejection, message=f"{rejection.message} ({told})")
    return GroupAnswer((), how, refused, proven)
