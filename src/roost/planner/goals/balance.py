"""Balance: even the foreseen loads of hosts. What rules or large VMs hold in place stays uneven.

A small fleet is evened move by move, the fullest host first, which is easy to follow. A large one
is searched as a whole: asking about every VM of every host would take too long.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from roost.planner.board import Board, Candidate
from roost.planner.formulating import formulate
from roost.planner.goals.base import Proposals
from roost.planner.goals.relieving import relieve
from roost.planner.guards import Proposal, held_back
from roost.planner.search import propose as search

#: Hosts from which on a fleet is searched as a whole, and trials for each VM then.
WHOLE_FROM = 64
_TRIALS = 400


def propose(board: Board) -> Proposals:
    """Propose moves from the fullest hosts until all are near the mean."""
    open_rows = board.open_rows()
    if np.count_nonzero(open_rows) >= WHOLE_FROM:
        for proposal in _searched(board):  # noqa: UP028 - what is sent back is not for a list
            yield proposal
        return ()
    loads = board.loads()
    mean = float(np.mean(loads[open_rows])) if open_rows.any() else 1.0
    return (yield from relieve(board, mean))


def _searched(board: Board) -> Iterator[Proposal]:
    """Return the moves of a search over the whole fleet, the largest relief first."""
    made = formulate(board.world)
    names = board.world.fleet.vms.names
    by_key: dict[str, Candidate] = {who.request.key: who for who in board.candidates.values()}
    who_of = [by_key.get(names.get(number, "")) for number in made.vms.tolist()]
    free = [who is not None and held_back(board, who, urgent=False) is None for who in who_of]
    problem = replace(made.problem, fixed=made.problem.fixed | ~np.array(free, np.bool_))
    left = max(0, board.limits.most - len(board.moved))
    found = search(problem, _TRIALS * problem.vms, least=made.worth, most=left)
    loads = board.loads()
    sources = made.hosts[problem.start]
    proposals = []
    for vm, host in found.moves:
        who, source, row = who_of[vm], int(sources[vm]), int(made.hosts[host])
        relief = float(loads[source] - loads[row])
        if who is not None and relief > 0:
            why = f"{board.name(source)} is at {100 * loads[source]:.0f}%, "
            why += f"{board.name(row)} at {100 * loads[row]:.0f}%"
            proposals.append(Proposal(who, row, relief, why))
    return iter(sorted(proposals, key=lambda each: (-each.relief, each.who.vm)))
