"""Defragment: make a place for one large VM by moving others away from one host.

The host that needs the fewest bytes moved wins. What would be refused there for other reasons than
amounts is not tried. Small VMs leave first; once there is room, those that need not have left stay.
"""

from collections.abc import Iterable

import numpy as np

from roost.base.errors import InvalidRequest
from roost.fleet.layout import BASE
from roost.model.flow import PlaceRequest
from roost.model.reasons import RESOURCE_REASONS
from roost.placement.verdicts import judge_hosts
from roost.planner.board import Board, Candidate, only_on
from roost.planner.goals.base import Proposals
from roost.planner.guards import Exchange, Guard, Proposal, Veto, held_back

#: So few moves are looked for one by one and two by two; so many of these are tried on a host.
FEW, _MOST_FEW_TRIED = 2, 32
#: Hosts that are tried, the emptiest first, and moves that one of them may need.
_MOST_HOSTS, _MOST_MOVES = 64, 32

Step = tuple[Candidate, int]
Way = list[Step]

#: VMs of a host, the largest, of which pairs are looked at.
_MOST_PAIRED = 500


def propose(board: Board, request: PlaceRequest, *, few: bool = False) -> Proposals:
    """Propose the moves after which a VM of this size fits; none if it fits already.

    With `few` only one move or two are looked for, which takes less long.
    """
    if board.world.find(request) is not None:
        return ()
    there = board.by_row()
    tried = hosts_to_try(board, request)
    most = min(_MOST_MOVES, board.limits.most - len(board.moved))
    ways: list[Way] = []
    # Where few moves are left, one and two are looked for first: small VMs would be too many.
    searches = (_few_on, way_on) if most <= FEW else (way_on,)
    for search in searches[:1] if few else searches:
        if any(len(way) <= most for way in ways):
            break
        for row in tried:
            board.check_wanted()
            way = search(board, row, there.get(row, []), request)
            if way is not None:
                ways.append(way)
    best = min((way for way in ways if len(way) <= most), key=_worth, default=None)
    if best is None:
        shortest = min((len(way) for way in ways), default=0)
        here = [who for row in tried for who in there.get(row, [])]
        return (_refusal(board, request, most, shortest, here),)
    text = f"makes room for {request.name}"
    yield Exchange(tuple(Proposal(who, row, 1.0, text) for who, row in best), in_turn=True)
    return ()


def _worth(way: Way) -> tuple[int, int]:
    """Return what a way costs: bytes, then moves."""
    return sum(who.load.memory_bytes for who, _ in way), len(way)


def _refusal(
    board: Board, request: PlaceRequest, most: int, shortest: int, here: Iterable[Candidate]
) -> Veto:
    """Say why there is no way: too many moves, VMs that may not move, or no room for them."""
    why = f"no single host has room for {request.name!r}"
    if shortest:
        why += f" after {most} moves or fewer: {shortest} would do"
        return Veto("", request.name, Guard.LIMIT, why)
    why += ", whatever can leave it"
    kept = [veto for who in here if (veto := held_back(board, who, urgent=board.urgent))]
    if kept:
        others = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
        why += f"; {kept[0].name!r}{others} may not: {kept[0].why}"
    return Veto("", request.name, Guard.AT_REST, why)


def hosts_to_try(board: Board, request: PlaceRequest) -> list[int]:
    """Return the hosts that lack nothing but amounts for a VM, the emptiest first."""
    verdicts = judge_hosts(board.world.question(request))
    able = verdicts.rows[verdicts.passing_all_but(RESOURCE_REASONS)].tolist()
    loads = board.loads()
    return sorted(able, key=lambda row: (loads[row], row))[:_MOST_HOSTS]


def way_on(board: Board, row: int, here: list[Candidate], request: PlaceRequest) -> Way | None:
    """Return the moves that make room on one host; None if none do."""
    asked = only_on(request, board.name(row))
    if asked is None:
        raise InvalidRequest(f"{request.name!r} is pinned: no move makes another place for it")
    way: Way = []
    with board.trial():
        for who in sorted(here, key=lambda who: (who.load.memory_bytes, who.vm)):
            board.check_wanted()
            if who.vm in board.moved or held_back(board, who, urgent=board.urgent):
                continue
            found = board.find(who)
            if found is None or not board.move(who, found.host_row):
                continue
            way.append((who, found.host_row))
            if board.world.find(asked) is not None:
                break
        else:
            return None
        needed = _needed(board, row, way, asked)
    return needed if _makes_room(board, needed, asked) else way


def _few_on(board: Board, row: int, here: list[Candidate], request: PlaceRequest) -> Way | None:
    """Return one move or two that make room on a host, by what leaves it; None if none do."""
    asked = only_on(request, board.name(row))
    if asked is None:
        return None
    fleet = board.world.fleet
    short = fleet.vector(request.demand)[:BASE] - fleet.hosts.arrays.headroom[row, :BASE]
    amounts = {
        who.vm: fleet.vms.demand[fleet.vms.numbers[who.request.key], :BASE]
        for who in here
        if who.vm not in board.moved and held_back(board, who, urgent=board.urgent) is None
    }
    able = [who for who in here if who.vm in amounts]
    alone = [who for who in able if (amounts[who.vm] >= short).all()]
    others = [who for who in able if not (amounts[who.vm] >= short).all()]
    sets: list[tuple[Candidate, ...]] = [(who,) for who in alone]
    if board.limits.most - len(board.moved) >= FEW:
        largest = sorted(others, key=lambda who: (-who.load.memory_bytes, who.vm))[:_MOST_PAIRED]
        few = {who.vm for who in largest}
        others = [who for who in others if who.vm in few]
        given = np.array([amounts[who.vm] for who in others], np.int64).reshape(-1, BASE)
        pairs = np.triu((given[:, None] + given[None] >= short).all(axis=2), 1)
        sets += [(others[one], others[other]) for one, other in np.argwhere(pairs).tolist()]
    sets.sort(key=lambda each: (sum(who.load.memory_bytes for who in each), len(each)))
    for each in sets[:_MOST_FEW_TRIED]:
        board.check_wanted()
        way: Way = []
        with board.trial():
            for who in each:
                found = board.find(who)
                if found is None or not board.move(who, found.host_row):
                    break
                way.append((who, found.host_row))
            else:
                if board.world.find(asked) is not None:
                    return way
    return None


def _needed(board: Board, row: int, way: Way, asked: PlaceRequest) -> Way:
    """Return the moves of a way without those that are not needed; the board is as after it."""
    needed = list(way)
    for step in sorted(way, key=lambda step: (-step[0].load.memory_bytes, step[0].vm)):
        who, _ = step
        with board.trial():
            not_needed = board.move(who, row) and board.world.find(asked) is not None
        if not_needed:
            board.move(who, row)
            needed.remove(step)
    return needed


def _makes_room(board: Board, way: Way, asked: PlaceRequest) -> bool:
    """Say whether all moves of a way can be made in turn, and make room."""
    with board.trial():
        return board.move_in_turn(way) and board.world.find(asked) is not None
