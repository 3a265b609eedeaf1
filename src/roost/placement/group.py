"""Several VMs or none: a greedy try first, then a bounded exact search.

Greedy placing can paint itself into a corner: a VM takes the only host that a later one could
have had. If that happens, an integer program over the hosts that could matter decides; a small
group that fits is therefore not refused. The answer says which of the two found it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.placement.engine import Engine

GREEDY = "greedy"
EXACT = "exact search"


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """Placements for all, or the rejection of the first VM that the greedy try could not place."""

    placements: tuple[Placement, ...]
    how: str
    rejection: Rejection | None = None
    exhaustive: bool = True  # False: the search was cut short, so a solution may exist

    @property
    def fits(self) -> bool:
        """Say whether every VM has a host."""
        return self.rejection is None


def place_group(
    engine: Engine,
    requests: Sequence[PlaceRequest],
    *,
    most_exact: int | None = None,
    limit: float | None = None,
) -> GroupAnswer:
    """Find hosts for all of the requests at once; nothing changes.

    More than `most_exact` requests are only placed greedily, and the exact search ends at `limit`:
    for those who cannot wait for it.
    """
    fleet = engine.fleet
    cursor, version = engine.cursor, fleet.version
    mark = fleet.mark()
    try:
        placements: list[Placement] = []
        rejection = None
        for request in requests:
            answer = engine.place(request, runners_up=0)
            if isinstance(answer, Rejection):
                rejection = answer
                break
            engine.commit(request, answer)
            placements.append(answer)
    finally:
        fleet.undo(mark)
        fleet.version = version
        engine.cursor = cursor
    if rejection is None:
        return GroupAnswer(tuple(placements), GREEDY)
    if most_exact is not None and len(requests) > most_exact:
        return GroupAnswer((), GREEDY, rejection, exhaustive=False)
    # Loading the solver takes longer than most placements, so only those who need it pay.
    from roost.placement.exact import LIMIT, search

    found, exhaustive = search(engine, requests, LIMIT if limit is None else limit)
    if found is None:
        refused = replace(
            rejection, message=f"{rejection.message} (no way to place all {len(requests)})"
        )
        return GroupAnswer((), EXACT, refused, exhaustive)
    return GroupAnswer(found, EXACT)
