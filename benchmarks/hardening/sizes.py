"""How much harm is done, and for how long others are watched."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Goals are stated for the full sizes; a short run has none."""

    hosts: int
    vms: int  # whose events readers of the stream begin with
    readers: int
    half_requests: int
    bad_connections: int
    rogues: int
    watched_s: float
    full: bool

    def goal(self, value: float) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(
    hosts=1_000,
    vms=10_000,
    readers=2_000,
    half_requests=1_500,
    bad_connections=16,
    rogues=4,
    watched_s=20.0,
    full=True,
)
SHORT = Sizes(
    hosts=50,
    vms=500,
    readers=200,
    half_requests=150,
    bad_connections=4,
    rogues=2,
    watched_s=2.0,
    full=False,
)
