"""What hosts draw: power curves that their labels give, and the watts of a fleet on a board.

A host says `roost.watts=120/200/350`: what it draws when idle, at half and at full load, or at any
other number of evenly spaced loads. Between them it is a line. An empty host counts as off. A label
that cannot be read is none: what a host draws is unknown then.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from roost.planner.board import Board

LABEL = "roost.watts"
#: Points of a curve at most: idle, then every tenth of the load.
MOST_POINTS, MOST_WATTS = 11, 100_000.0


class Curve(NamedTuple):
    """Watts at evenly spaced loads, from idle to full."""

    points: tuple[float, ...]

    def watts(self, load: float) -> float:
        """Return what a host draws at a load of 0 to 1."""
        at = min(1.0, max(0.0, load)) * (len(self.points) - 1)
        below = min(int(at), len(self.points) - 2)
        return self.points[below] + (at - below) * (self.points[below + 1] - self.points[below])


def curve_of(labels: Sequence[tuple[str, str]]) -> Curve | None:
    """Return the curve that the labels of a host give; None when they give none."""
    text = dict(labels).get(LABEL, "")
    words = text.split("/")
    digits = all(each.isascii() and each.isdigit() for each in words)
    if not digits or not 2 <= len(words) <= MOST_POINTS:
        return None
    points = tuple(float(each) for each in words)
    rising = all(a <= b for a, b in pairwise(points))
    return Curve(points) if rising and points[-1] <= MOST_WATTS else None


def curves(board: Board) -> dict[int, Curve]:
    """Return the curves of hosts that have one, by row."""
    hosts = board.world.fleet.hosts
    found = ((row, curve_of(hosts.label_sets[row])) for row in range(hosts.count))
    return {row: curve for row, curve in found if curve is not None}


def fleet_watts(board: Board, known: dict[int, Curve]) -> float | None:
    """Return what hosts in use draw, of those with a curve; None when no host has one."""
    if not known:
        return None
    loads, count = board.loads(), board.world.fleet.hosts.arrays.vm_count
    return sum(curve.watts(float(loads[row])) for row, curve in known.items() if count[row] > 0)
