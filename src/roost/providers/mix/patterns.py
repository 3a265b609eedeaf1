"""The ways to fill one machine: every maximal one if they are few, else those that look promising.

A way is a tuple of counts, one for each need. It is maximal if nothing more fits: a program that
may serve a need more often than asked wants no others, so a complete list makes its answer exact.
"""

from collections.abc import Iterator, Sequence

from roost.providers.mix.problem import Vector, fits

Counts = tuple[int, ...]


class TooMany(Exception):
    """There are more maximal ways than may be listed."""


def maximal(
    vectors: Sequence[Vector], counts: Sequence[int], room: Vector, *, most: int
) -> set[Counts]:
    """Return every maximal way to fill a room; raises TooMany beyond so many steps."""
    found: set[Counts] = set()
    steps = 0

    def walk(at: int, chosen: list[int], left: Vector) -> None:
        nonlocal steps
        steps += 1
        if steps > most:
            raise TooMany
        if at == len(vectors):
            grown = (
                chosen[each] < counts[each] and fits(vectors[each], left)
                for each in range(len(vectors))
            )
            if any(chosen) and not any(grown):
                found.add(tuple(chosen))
            return
        for times in range(times_in(vectors[at], left, counts[at]), -1, -1):
            chosen[at] = times
            walk(at + 1, chosen, taken(left, vectors[at], times))
        chosen[at] = 0

    walk(0, [0] * len(vectors), room)
    return found


def greedy(
    vectors: Sequence[Vector], counts: Sequence[int], room: Vector, order: Sequence[int]
) -> Counts:
    """Return the way that takes as many of each need as fit, in an order."""
    chosen, left = [0] * len(vectors), room
    for at in order:
        chosen[at] = times_in(vectors[at], left, counts[at])
        left = taken(left, vectors[at], chosen[at])
    return tuple(chosen)


def orders(vectors: Sequence[Vector], room: Vector, worth: Sequence[float]) -> Iterator[list[int]]:
    """Yield orders in which a room is worth filling: by worth for what a need takes of it."""
    fitting = [at for at, vector in enumerate(vectors) if fits(vector, room)]
    for shares in ((1, 1, 1), (1, 0, 0), (0, 1, 0), (4, 1, 1), (1, 4, 1), (1, 1, 4)):
        size = {
            at: 1e-12
            + sum(
                share * amount / whole
                for share, amount, whole in zip(shares, vectors[at], room, strict=True)
                if whole
            )
            for at in fitting
        }
        yield sorted(fitting, key=lambda at: (-worth[at] / size[at], at))
        yield sorted(fitting, key=lambda at: (-size[at], at))
    yield sorted(fitting, key=lambda at: (-worth[at], at))


def times_in(vector: Vector, room: Vector, most: int) -> int:
    """Return how often amounts fit into a room, at most so often."""
    for amount, whole in zip(vector, room, strict=True):
        if amount:
            most = min(most, whole // amount)
    return most


def taken(room: Vector, vector: Vector, times: int) -> Vector:
    """Return what is left of a room."""
    return (
        room[0] - times * vector[0],
        room[1] - times * vector[1],
        room[2] - times * vector[2],
    )
