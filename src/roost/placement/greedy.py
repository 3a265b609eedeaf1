"""Place a batch one VM after the other, as each would be placed alone, and take it all back."""

from collections.abc import Sequence

from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.placement.engine import Engine


def place_in_turn(
    engine: Engine, requests: Sequence[PlaceRequest], *, explain: bool = True
) -> tuple[list[Placement], Rejection | None]:
    """Return the placements until the first VM that fits nowhere, and its rejection.

    Nothing changes. Without `explain` a rejection is not made, only the list is shorter.
    """
    fleet = engine.fleet
    cursor, version = engine.cursor, fleet.version
    mark = fleet.mark()
    placements: list[Placement] = []
    try:
        for request in requests:
            found = engine.find(request)
            if found is None:
                return placements, engine.reject(request) if explain else None
            engine.commit(request, found)
            placements.append(found)
    finally:
        fleet.undo(mark)
        fleet.version = version
        engine.cursor = cursor
    return placements, None
