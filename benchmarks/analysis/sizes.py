"""How much is measured: goals are stated for the full sizes, a short run has none."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of series of each row, and which of the Bitbrains series the oracles forecast."""

    periodic: int
    changing: int
    fleet: int
    labelled: int
    oracle_every: int
    origin_every: int
    full: bool

    def goal(self, value: float) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(1_000, 1_500, 10_000, 200, 6, 1, full=True)
SHORT = Sizes(200, 200, 1_000, 40, 48, 4, full=False)
