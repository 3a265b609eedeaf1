"""Roll maintenance over a fleet: hosts in groups that may be empty together, one after another.

A group is as large as the fleet can do without: everything on its hosts can leave by the rules, and
with the group away the loss of any one further host could still be restarted elsewhere (N+1). When
a group is through, its hosts are back, empty, and the next group is looked for on the fleet as it
is then. Hosts with VMs that cannot leave are left out, and the VMs are named.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from roost.planner.board import Board
from roost.planner.goals import drain
from roost.planner.guards import Guard, Proposal, Veto
from roost.planner.sparing import can_do_without

#: VMs that are named for one host.
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts that are empty together, what must move for that, and how long it takes."""

    hosts: tuple[int, ...]  # fleet rows
    moves: int
    sent_bytes: int
    eta_s: float


@dataclass(frozen=True, slots=True)
class Rolling:
    """Groups in their order, and hosts that cannot be emptied, with why."""

    groups: tuple[Group, ...]
    left: tuple[tuple[int, tuple[Veto, ...]], ...]


def roll(board: Board, rows: Sequence[int], most: int, *, spare: bool = True) -> Rolling:
    """Put hosts into groups of at most so many; the board is as after the last group then."""
    waiting, groups = list(dict.fromkeys(rows)), list[Group]()
    stuck: dict[int, tuple[Veto, ...]] = {}
    for row in waiting:
        if found := _blockers(board, (row,)):
            stuck[row] = found[:_MOST_NAMED]
    waiting = [row for row in waiting if row not in stuck]
    while waiting:
        board.check_wanted()
        group = _next_group(board, waiting, most, spare=spare)
        if not group:
            why = "with it away, the loss of one more host could not be restarted elsewhere"
            if not spare:
                why = "what is on it finds no room elsewhere"
            told = (Veto("", "", Guard.LIMIT, why),)
            stuck |= dict.fromkeys(waiting, told)
            break
        made = _empty(board, group)
        if made is None:  # the engine may refuse in turn what it lets go alone
            found = _blockers(board, (group[0],)) or _blockers(board, group)
            stuck[group[0]] = found[:_MOST_NAMED]
            waiting.remove(group[0])
            continue
        groups.append(made)
        waiting = [row for row in waiting if row not in group]
    return Rolling(tuple(groups), tuple(sorted(stuck.items())))


def _next_group(board: Board, waiting: Sequence[int], most: int, *, spare: bool) -> tuple[int, ...]:
    """Return the first hosts that the fleet can do without together."""
    group: tuple[int, ...] = ()
    for row in waiting:
        if len(group) >= most:
            break
        board.check_wanted()
        tried = (*group, row)
        if not can_do_without(board, tried, int(spare)) or _blockers(board, tried):
            continue
        group = tried
    return group


def _blockers(board: Board, rows: Sequence[int]) -> tuple[Veto, ...]:
    """Return the VMs that cannot leave these hosts together."""
    with board.trial():
        return _leave(board, rows)[1]


def _empty(board: Board, rows: Sequence[int]) -> Group | None:
    """Move everything off these hosts, on the board; None, and nothing moved, if that fails."""
    with board.trial():
        if _leave(board, rows)[1]:
            return None
    made, _ = _leave(board, rows)
    board.moved.clear()  # what has moved may move again for a later group
    limits = board.limits
    costs = [board.cost(board.candidates[vm].load, source, target) for vm, source, target in made]
    at_once = max(1, min(limits.at_once, limits.per_host * len(rows)))
    return Group(
        tuple(rows),
        len(made),
        sum(cost.sent_bytes for cost in costs),
        sum(cost.total_s for cost in costs) / at_once,
    )


def _leave(
    board: Board, rows: Sequence[int]
) -> tuple[list[tuple[str, int, int]], tuple[Veto, ...]]:
    """Make the moves of a drain; return them, and the VMs that cannot leave."""
    proposals = drain.propose(board, [board.name(row) for row in rows])
    made: list[tuple[str, int, int]] = []
    refused: list[Veto] = []
    try:
        proposal = next(proposals)
        while True:
            assert isinstance(proposal, Proposal)  # a drain exchanges nothing
            who, source = proposal.who, board.row_of(proposal.who)
            moved = board.move(who, proposal.row)
            if moved:
                made.append((who.vm, source, proposal.row))
            else:
                refused.append(Veto(who.vm, who.name, Guard.LIMIT, "its place was taken meanwhile"))
            proposal = proposals.send(moved)
    except StopIteration as ended:
        return made, (*(ended.value or ()), *refused)
