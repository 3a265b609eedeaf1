"""Random numbers of the search: the same in compiled and in plain code."""

from roost.planner.kernels.compiling import kernel
from roost.planner.kernels.tables import RANDOM, State

#: Multiply with carry: every product stays below 2^63. The compiler takes a signed overflow for
#: impossible, and one that happened all the same gave numbers below zero.
_FACTOR, _LOW = 698769069, 0xFFFFFFFF


@kernel
def draw(state: State, below: int) -> int:
    """Return a random number from 0 to below - 1."""
    before = state.sums[RANDOM]
    seed = (before & _LOW) * _FACTOR + (before >> 32)
    state.sums[RANDOM] = seed
    return ((seed & _LOW) * below) >> 32
