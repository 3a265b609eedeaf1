"""Repair: move VMs that are where the rules do not want them. Rules and labels stay as they are."""

from roost.model.reasons import RESOURCE_REASONS, Reason
from roost.planner.board import Board
from roost.planner.goals.base import Proposals
from roost.planner.goals.drain import in_words
from roost.planner.guards import Guard, Proposal, Veto, held_back

#: What a host's state refuses is no broken rule; short amounts are mended by `headroom`.
_STATES = frozenset({Reason.NOT_ONLINE, Reason.NOT_OPEN, Reason.INVENTORY_UNKNOWN, Reason.PRESSURE})
_NOT_RULES = frozenset(reason.value for reason in _STATES | RESOURCE_REASONS)


def propose(board: Board) -> Proposals:
    """Propose a move for every VM whose place breaks a rule; return those that have none."""
    stuck: list[Veto] = []
    for _, who in sorted(board.candidates.items()):
        if board.row_of(who) < 0:
            continue
        broken = [each for each in board.complaints(who) if each not in _NOT_RULES]
        if not broken:
            continue
        if kept := held_back(board, who, urgent=True):
            stuck.append(kept)
            continue
        found = board.find(who)
        if found is None:
            stuck.append(Veto(who.vm, who.name, Guard.AT_REST, in_words(board.why_not(who))))
            continue
        text = f"{', '.join(broken).replace('_', ' ')} on {board.name(board.row_of(who))}"
        yield Proposal(who, found.host_row, 1.0, text)
    return tuple(stuck)
