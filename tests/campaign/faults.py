"""What goes wrong, drawn from a seed: a timed list of faults, each with its victim and its length.

The same seed draws the same list; what comes of it also depends on the machine. Nothing is done
here. A victim has one fault at a time, so that every fault can be ended by itself.
"""

from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

#: Shorter than a lease; longer than one; and long enough to fence a host by it.
LENGTHS_S = ((0.2, 3.0), (5.5, 9.0), (13.0, 18.0))
#: A control plane that was killed is spared until it may have started again: one that never runs
#: promises nothing.
_START_S = 8.0
#: How often each; what strikes everybody is short more often.
_OFTEN = {
    "kill_plane": (7, 2, 1),
    "freeze_plane": (7, 2, 1),
    "slow": (1, 2, 2),
    "cut_clients": (1, 0, 0),
    "lock_database": (9, 1, 0),
    "restart_database": (7, 2, 0),
}


class Fault(Struct, frozen=True):
    """One fault: what happens to whom, when and for how long."""

    at: float
    kind: str
    on: str
    for_s: float
    how: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.on} {self.how}".rstrip() + f" for {self.for_s:g} s"


class Shape(Struct, frozen=True):
    """What there is to break."""

    planes: tuple[str, ...]
    agents: tuple[str, ...]
    database: str  # sqlite or postgresql


class Kind(Struct, frozen=True):
    """One kind of fault: how likely it is, whom it strikes, and how it is done."""

    name: str
    weight: int
    victims: Callable[[Shape], Sequence[str]]
    hows: tuple[str, ...] = ("",)


def _agents(shape: Shape) -> Sequence[str]:
    return shape.agents


def _planes(shape: Shape) -> Sequence[str]:
    return shape.planes


def _links(shape: Shape) -> Sequence[str]:
    """From an agent to one control plane, or to all of them."""
    every = [f"{agent}>*" for agent in shape.agents]
    if len(shape.planes) == 1:
        return every
    return every + [f"{agent}>{plane}" for agent in shape.agents for plane in shape.planes]


def _doors(shape: Shape) -> Sequence[str]:
    """From the clients to a control plane."""
    return [f"clients>{plane}" for plane in shape.planes]


def _database(shape: Shape) -> Sequence[str]:
    return ("database",) if shape.database == "postgresql" else ()


def _file(shape: Shape) -> Sequence[str]:
    return ("database",) if shape.database == "sqlite" else ()


_CUTS = ("both", "both", "up", "down")

KINDS = (
    Kind("kill_plane", 5, _planes),
    Kind("freeze_plane", 5, _planes),
    Kind("kill_agent", 12, _agents),
    Kind("freeze_agent", 12, _agents),
    Kind("cut", 16, _links, tuple(f"{way}, {end}" for way in _CUTS for end in ("open", "reset"))),
    Kind("slow", 4, _links),
    Kind("reset", 6, _links),
    Kind("cut_clients", 4, _doors, ("both, reset", "down, reset", "down, open")),
    Kind("reset_clients", 6, _doors),
    Kind("restart_database", 5, _database, ("fast", "crash")),
    Kind("cut_database", 4, _database),
    Kind("lock_database", 5, _file),
)


def draw_faults(seed: int, seconds: float, shape: Shape) -> list[Fault]:
    """Return the faults of a run; the last begins before the run ends."""
    random = Random(f"faults {seed}")
    found: list[Fault] = []
    busy_until: dict[str, float] = {}
    kinds = [kind for kind in KINDS if kind.victims(shape)]
    weights = [kind.weight for kind in kinds]
    at = 1.0
    while at < seconds:
        kind = random.choices(kinds, weights)[0]
        on = random.choice(list(kind.victims(shape)))
        for_s = _length(random, kind.name)
        fault = Fault(round(at, 2), kind.name, on, for_s, random.choice(kind.hows))
        hit = struck(fault, shape)
        if all(busy_until.get(each, 0.0) <= at for each in hit):
            found.append(fault)
            spared_s = _START_S if fault.kind == "kill_plane" else 0.5
            busy_until |= dict.fromkeys(hit, at + for_s + spared_s)
        at += random.uniform(0.2, 2.6)
    return found


def _length(random: Random, kind: str) -> float:
    if kind in ("reset", "reset_clients", "cut_database"):
        return 0.0
    limits = random.choices(LENGTHS_S, _OFTEN.get(kind, (5, 2, 3)))[0]
    return round(random.uniform(*limits), 2)


def struck(fault: Fault, shape: Shape) -> list[str]:
    """Return what has this fault while it lasts."""
    from_, arrow, to = fault.on.partition(">")
    if not arrow:
        return [fault.on]
    return [f"{from_}>{plane}" for plane in (shape.planes if to == "*" else [to])]
