"""Headroom: take load off hosts that will run short, before they do. Leaves the others alone."""

from roost.planner.board import Board
from roost.planner.goals.base import Proposals
from roost.planner.goals.relieving import relieve

#: A host is short from this load on, and none is made fuller than the second mark by it.
SHORT, FULL = 0.85, 0.75


def propose(board: Board) -> Proposals:
    """Propose moves off hosts whose foreseen load is above the mark."""
    return (yield from relieve(board, SHORT, under=FULL))
