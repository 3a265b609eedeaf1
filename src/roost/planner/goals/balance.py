"""Balance: even the foreseen loads of hosts. What rules or large VMs hold in place stays uneven."""

import numpy as np

from roost.planner.board import Board
from roost.planner.goals.base import Proposals
from roost.planner.goals.relieving import relieve


def propose(board: Board) -> Proposals:
    """Propose moves from the fullest hosts until all are near the mean."""
    open_rows = board.open_rows()
    loads = board.loads()
    mean = float(np.mean(loads[open_rows])) if open_rows.any() else 1.0
    return (yield from relieve(board, mean))
