"""Defragment: make a place for one large VM by moving others away from one host.

The host that needs the fewest bytes moved wins. What would be refused there for other reasons than
amounts is not tried.
"""

from roost.base.errors import InvalidRequest
from roost.model.flow import PlaceRequest
from roost.model.reasons import RESOURCE_REASONS
from roost.placement.verdicts import judge_hosts
from roost.planner.board import Board, Candidate, only_on
from roost.planner.goals.base import Proposals
from roost.planner.guards import Guard, Proposal, Veto, held_back

#: Hosts that are tried, the emptiest first, and moves that one of them may need.
_MOST_HOSTS, _MOST_MOVES = 64, 32

Way = list[tuple[Candidate, int]]


def propose(board: Board, request: PlaceRequest) -> Proposals:
    """Propose the moves after which a VM of this size fits; none if it fits already."""
    if board.world.find(request) is not None:
        return ()
    verdicts = judge_hosts(board.world.question(request))
    able = verdicts.rows[verdicts.passing_all_but(RESOURCE_REASONS)]
    loads = board.loads()
    there = board.by_row()
    best: tuple[int, Way] | None = None
    for row in sorted(able.tolist(), key=lambda row: (loads[row], row))[:_MOST_HOSTS]:
        most = None if best is None else best[0]
        way = _way(board, row, there.get(row, []), request, most)
        if way is not None:
            best = sum(who.load.memory_bytes for who, _ in way), way
    if best is None:
        why = f"no single host has room for {request.name!r} after {_MOST_MOVES} moves or fewer"
        return (Veto("", request.name, Guard.LIMIT, why),)
    for who, row in best[1]:
        yield Proposal(who, row, 1.0, f"makes room for {request.name}")
    return ()


def _way(
    board: Board, row: int, here: list[Candidate], request: PlaceRequest, most: int | None
) -> Way | None:
    """Return the moves that make room on one host, at less than so many bytes; None if none do."""
    asked = only_on(request, board.name(row))
    if asked is None:
        raise InvalidRequest(f"{request.name!r} is pinned: no move makes another place for it")
    way: Way = []
    cost = 0
    with board.trial():
        for who in sorted(here, key=lambda who: (who.load.memory_bytes, who.vm)):
            if who.vm in board.moved or held_back(board, who, urgent=False):
                continue
            found = board.find(who)
            if found is None or not board.move(who, found.host_row):
                continue
            way.append((who, found.host_row))
            cost += who.load.memory_bytes
            if (most is not None and cost >= most) or len(way) > _MOST_MOVES:
                return None
            if board.world.find(asked) is not None:
                return way
    return None
