"""The question and the answer of a mix, and what must hold of an answer.

A *need* is one demand so many times, an *offer* a machine type on one market. An answer lists
machines with what each holds; what no offer holds, or limits leave no room for, stays `left`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from roost.base.errors import InvalidRequest, InvariantBroken
from roost.model.job import MachineType, Market
from roost.model.resources import Demand

Vector = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Need:
    """A demand so many times; where limits bind, a heavier one is served before a lighter one."""

    demand: Demand
    count: int = 1
    weight: int = 1

    def __post_init__(self) -> None:
        """Refuse counts and weights that mean nothing."""
        if self.count < 1 or not 1 <= self.weight <= 1000:
            raise InvalidRequest(
                f"a need has a count from 1 and a weight from 1 to 1000, "
                f"not {self.count} and {self.weight}"
            )

    @property
    def vector(self) -> Vector:
        """Return the amounts that one takes, in the order of an offer's."""
        return self.demand.cpu_milli, self.demand.memory_bytes, self.demand.disk_bytes


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine type on a market, and how many of it may be rented now."""

    type: MachineType
    market: Market = "on_demand"
    most: int | None = None

    @property
    def price_micro(self) -> int:
        """Return what an hour costs."""
        return self.type.price(self.market)

    @property
    def vector(self) -> Vector:
        """Return the amounts that an empty machine has."""
        return self.type.cpu_milli, self.type.memory_bytes, self.type.disk_bytes


@dataclass(frozen=True, slots=True)
class MixLimits:
    """What may be rented in all; None: no limit."""

    machines: int | None = None
    cpu_milli: int | None = None
    budget_micro: int | None = None  # an hour


@dataclass(frozen=True, slots=True)
class Filled:
    """So many machines of one offer, each holding the same: (need, how many of it)."""

    offer: int
    machines: int
    holds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """The machines to rent. `proven`: no cheaper set serves as many."""

    filled: tuple[Filled, ...]
    cost_micro: int  # an hour
    left: tuple[int, ...]  # of each need
    proven: bool
    bound_micro: int = field(default=0)  # no set that serves all of it is cheaper

    @property
    def machines(self) -> int:
        """Return how many machines there are."""
        return sum(each.machines for each in self.filled)


def fits(vector: Vector, room: Vector) -> bool:
    """Say whether amounts fit into a room."""
    return vector[0] <= room[0] and vector[1] <= room[1] and vector[2] <= room[2]


def check(mix: Mix, needs: Sequence[Need], offers: Sequence[Offer], limits: MixLimits) -> None:
    """Raise if a mix overfills a machine, loses a need, passes a limit or states a wrong cost."""
    served, rented = [0] * len(needs), [0] * len(offers)
    for each in mix.filled:
        rented[each.offer] += each.machines
        held = [(needs[need].vector, times) for need, times in each.holds]
        total = [sum(vector[part] * times for vector, times in held) for part in range(3)]
        if not fits((total[0], total[1], total[2]), offers[each.offer].vector):
            raise InvariantBroken(f"a {offers[each.offer].type.name} cannot hold {total}")
        for need, times in each.holds:
            served[need] += times * each.machines
    for need, (done, left) in enumerate(zip(served, mix.left, strict=True)):
        if done + left != needs[need].count:
            raise InvariantBroken(f"of need {need} {done} are served and {left} left")
    pairs = list(zip(offers, rented, strict=True))
    cost = sum(offer.price_micro * count for offer, count in pairs)
    if cost != mix.cost_micro:
        raise InvariantBroken(f"the mix costs {cost} an hour, and says {mix.cost_micro}")
    sums = (
        (limits.machines, sum(rented)),
        (limits.cpu_milli, sum(offer.type.cpu_milli * count for offer, count in pairs)),
        (limits.budget_micro, cost),
        *((offer.most, count) for offer, count in pairs),
    )
    for most, found in sums:
        if most is not None and found > most:
            raise InvariantBroken(f"the mix has {found} where {most} are allowed")
