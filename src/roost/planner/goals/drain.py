"""Drain: move everything off some hosts, where the engine sends it. What cannot leave is named."""

from collections.abc import Sequence

from roost.model.flow import Rejection
from roost.planner.board import Board
from roost.planner.goals.base import Proposals
from roost.planner.guards import Guard, Proposal, Veto, held_back


def propose(board: Board, hosts: Sequence[str]) -> Proposals:
    """Propose a move of every VM on the hosts; return those that cannot leave, with reasons."""
    stuck: list[Veto] = []
    rows = {board.world.fleet.row(name) for name in hosts}
    there = board.by_row()
    for row in sorted(rows):
        # The largest first: they have the fewest places to go.
        for who in sorted(there.get(row, []), key=lambda who: (-who.load.memory_bytes, who.vm)):
            if kept := held_back(board, who, urgent=True):
                stuck.append(kept)
                continue
            found = board.find(who, never=tuple(hosts))
            if found is None:
                why = in_words(board.why_not(who, never=tuple(hosts)))
                stuck.append(Veto(who.vm, who.name, Guard.AT_REST, why))
                continue
            yield Proposal(who, found.host_row, 1.0, f"leaves {board.name(row)}")
    return tuple(stuck)


def in_words(rejection: Rejection) -> str:
    """Say in one line why a VM cannot leave: the reasons by how many hosts they refuse."""
    told = sorted(rejection.reasons, key=lambda each: (-each.first, each.reason.value))
    named = [f"{each.rule or each.reason.value.replace('_', ' ')} on {each.first} hosts"
             for each in told if each.first and each.reason.value != "excluded"]  # fmt: skip
    words = ", ".join(named[:4])
    return f"no other host fits: {words}" if words else "there is no other host"
