"""Repair: move VMs that are where the rules do not want them. Rules and labels stay as they are.

A VM is judged on its own host alone. What a plain VM is refused for (no groups, devices or rules of
expressions) depends on what it asks and on the host, so equal ones on a host are judged once.
"""

from roost.model.constraints import HostRequirements
from roost.model.reasons import RESOURCE_REASONS, Reason
from roost.model.resources import NumaMode
from roost.planner.board import Board, Candidate
from roost.planner.goals.base import Proposals
from roost.planner.goals.drain import in_words
from roost.planner.guards import Guard, Proposal, Veto, held_back

#: What a host's state refuses is no broken rule; short amounts are mended by `headroom`.
_STATES = frozenset({Reason.NOT_ONLINE, Reason.NOT_OPEN, Reason.INVENTORY_UNKNOWN, Reason.PRESSURE})
_NOT_RULES = frozenset(reason.value for reason in _STATES | RESOURCE_REASONS)
#: VMs without a place that are named; a fleet with more of them is looked at again afterwards.
MOST_STUCK = 1000

_Judged = dict[tuple[HostRequirements, int], tuple[str, ...]]


def propose(board: Board) -> Proposals:
    """Propose a move for every VM whose place breaks a rule; return those that have none."""
    stuck: list[Veto] = []
    judged: _Judged = {}
    for _, who in sorted(board.candidates.items()):
        if len(board.moved) >= board.limits.most or len(stuck) >= MOST_STUCK:
            break
        board.check_wanted()
        if board.row_of(who) < 0:
            continue
        broken = _broken(board, who, judged)
        if not broken:
            continue
        if kept := held_back(board, who, urgent=board.urgent):
            stuck.append(kept)
            continue
        found = board.find(who)
        if found is None:
            stuck.append(Veto(who.vm, who.name, Guard.AT_REST, in_words(board.why_not(who))))
            continue
        text = f"{', '.join(broken).replace('_', ' ')} on {board.name(board.row_of(who))}"
        yield Proposal(who, found.host_row, 1.0, text)
    return tuple(stuck)


def _broken(board: Board, who: Candidate, judged: _Judged) -> tuple[str, ...]:
    """Return the rules that a VM breaks where it is."""
    request = who.request
    terms = board.world.terms_of(request)
    plain = not (request.groups or terms.rules or terms.devices)
    key = (terms, board.row_of(who)) if plain and terms.numa is NumaMode.ANY else None
    if key is not None and key in judged:
        return judged[key]
    found = tuple(each for each in board.complaints(who) if each not in _NOT_RULES)
    if key is not None:
        judged[key] = found
    return found
