"""How large everything is, and how a number is told with its spread."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Goals are stated for the full sizes; a short run has none."""

    boots: int  # pairs of one ours and one by hand
    moves: int  # such pairs for each kind of guest
    vms: int  # virtual ones, of one agent
    guests: int  # real ones, of one agent
    agents: int  # in one process
    settle_s: float  # before memory is read
    watched_s: float  # while CPU is measured
    timers: tuple[float, float]  # heartbeat and suspect, in seconds
    full: bool

    def goal(self, value: float) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(
    boots=7,
    moves=12,
    vms=200,
    guests=3,
    agents=1_000,
    settle_s=18.0,  # samples are taken every 15 s
    watched_s=20.0,
    timers=(5.0, 15.0),
    full=True,
)
SHORT = Sizes(
    boots=1,
    moves=1,
    vms=200,
    guests=1,
    agents=100,
    settle_s=2.0,
    watched_s=3.0,
    timers=(1.0, 6.0),
    full=False,
)


def spread(values: Sequence[float], unit: str = "s", decimals: int = 2) -> str:
    """Write the median of several runs with the least and the most of them."""
    if len(values) == 1:
        return f"{values[0]:.{decimals}f} {unit}"
    low, mid, high = (f"{v:.{decimals}f}" for v in (min(values), median(values), max(values)))
    return f"{mid} {unit} ({low} to {high})"
