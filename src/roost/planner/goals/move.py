"""Move: VMs that an operator names, to a named host or where the engine sends them."""

from collections.abc import Sequence

from roost.planner.board import Board, only_on
from roost.planner.goals.base import Proposals
from roost.planner.goals.drain import in_words
from roost.planner.guards import Guard, Proposal, Veto, held_back


def propose(board: Board, vms: Sequence[str], host: str | None) -> Proposals:
    """Propose a move of every named VM; return those that cannot, with reasons."""
    stuck: list[Veto] = []
    for vm in vms:
        who = board.candidates.get(vm)
        if who is None:
            stuck.append(Veto(vm, vm, Guard.AT_REST, "it has no host"))
            continue
        if kept := held_back(board, who, urgent=True):
            stuck.append(kept)
            continue
        if host is None:
            found = board.find(who)
            row = -1 if found is None else found.host_row
            why = "" if found is not None else in_words(board.why_not(who))
        else:
            row = board.world.fleet.row(host)
            why = ""
            if row == board.row_of(who):
                continue  # it is there
            if not board.fitting(who)[row]:
                row, why = -1, _why_not_there(board, who.vm, host)
        if row < 0:
            stuck.append(Veto(who.vm, who.name, Guard.AT_REST, why))
        else:
            yield Proposal(who, row, 1.0, "as asked")
    return tuple(stuck)


def _why_not_there(board: Board, vm: str, host: str) -> str:
    who = board.candidates[vm]
    request = only_on(who.request, host)
    if request is None:
        return f"it is pinned, and not to {host}"
    with board.without(who):
        reasons = board.world.reject(request).reasons
    named = [each.rule or each.reason.value.replace("_", " ") for each in reasons
             if each.reason.value != "not_pinned"]  # fmt: skip
    return f"it does not fit on {host}: {', '.join(named) or 'it is not pinned there'}"
