"""The generator: fleets of 4 shapes, 3 zones and 8 label profiles, and requests for them.

That is 96 pools of equal hosts; a further label makes 10,000 pools or one pool per host. Requests
come in 12 flavors or in continuous sizes; a tenth each asks for a label, for a zone, and to be
apart from a group of about ten. Everything follows from seeds, so two processes that generate the
same thing agree on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from roost.base.units import GIB, MIB
from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int32Array, Int64Array
from roost.model.constraints import Constraints, HostRequirements, LabelOperator, LabelTerm
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Cell, HostSpec, Resource
from roost.model.resources import Demand, NumaMode
from roost.placement.batching import RequestColumns

#: Cores, GiB of memory and GiB of disk.
SHAPES = ((32, 128, 2000), (64, 256, 4000), (96, 384, 4000), (48, 512, 8000))
ZONES = ("a", "b", "c")
PROFILES = tuple(
    (
        ("tier", "gold" if number & 1 else "silver"),
        ("ssd", "true" if number & 2 else "false"),
        ("net", "fast" if number & 4 else "slow"),
    )
    for number in range(8)
)
#: Cores and GiB of memory; a core comes with 10 GiB of disk.
FLAVORS = (
    *((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (2, 8)),
    *((4, 8), (4, 16), (8, 16), (8, 32), (16, 32), (16, 64)),
)
LABEL_RULES = (("tier", "gold"), ("ssd", "true"), ("net", "fast"))
GROUP_SIZE = 10
#: Different pools that requests ask for when they ask for a pool at all.
_POOLS_ASKED = 50

#: Values of `pools` beside a number of pools.
PLAIN_POOLS = 0
POOL_PER_HOST = -1


def host_spec(number: int, pools: int, rng: np.random.Generator, *, cells: bool) -> HostSpec:
    """Return the host of this number."""
    cores, memory, disk = SHAPES[int(rng.integers(len(SHAPES)))]
    labels: tuple[tuple[str, str], ...] = PROFILES[int(rng.integers(len(PROFILES)))]
    if pools:
        pool = number if pools == POOL_PER_HOST else int(rng.integers(pools))
        labels = (*labels, ("pool", f"p{pool}"))
    half = Cell(cores * 500, memory * GIB // 2)
    return HostSpec(
        name=f"h{number:06}",
        cpu=Resource(cores * 1000),
        memory=Resource(memory * GIB),
        disk=Resource(disk * GIB),
        zone=ZONES[int(rng.integers(len(ZONES)))],
        rack=f"r{number // 40}",
        labels=labels,
        cells=(half, half) if cells else (),
    )


@lru_cache(maxsize=8)
def empty_fleet(hosts: int, pools: int = PLAIN_POOLS, *, cells: bool = False) -> Fleet:
    """Return a fleet without VMs; shared, so take a snapshot before you change it."""
    rng = np.random.default_rng(1)
    fleet = Fleet()
    for number in range(hosts):
        fleet.register(host_spec(number, pools, rng, cells=cells))
    return fleet


@dataclass(frozen=True, slots=True)
class Workload:
    """What requests look like."""

    name: str
    continuous: bool = False
    pools: int = PLAIN_POOLS
    pool_share: float = 0.0  # of the requests, those that ask for one pool
    cell_share: float = 0.0  # of the requests, those that want to lie in one NUMA cell

    def columns(self, fleet: Fleet, count: int, seed: int) -> RequestColumns:
        """Return `count` requests; another seed means other groups too."""
        rng = np.random.default_rng(seed)
        demand = _continuous(rng, count) if self.continuous else _flavored(rng, count)
        terms = np.zeros(count, np.int32)
        groups = np.zeros(count, np.int32)
        kind = rng.random(count)
        _choose(rng, terms, kind < 0.1, [_label_rule(fleet, *rule) for rule in LABEL_RULES])
        _choose(rng, terms, (kind >= 0.1) & (kind < 0.2), [_zone_rule(fleet, z) for z in ZONES])
        apart = (kind >= 0.2) & (kind < 0.3)
        number = max(1, int(np.count_nonzero(apart)) // GROUP_SIZE)
        _choose(rng, groups, apart, anti_affinity_sets(fleet, number, f"g{seed}"))
        if self.pool_share:
            asked = rng.choice(fleet.hosts.count, min(_POOLS_ASKED, fleet.hosts.count), False)
            pools = [dict(fleet.hosts.label_sets[row])["pool"] for row in asked.tolist()]
            ask = (kind >= 0.3) & (kind < 0.3 + self.pool_share)
            _choose(rng, terms, ask, [_label_rule(fleet, "pool", pool) for pool in pools])
        if self.cell_share:
            one_cell = fleet.terms.number(HostRequirements(numa=NumaMode.ONE_CELL))
            _choose(rng, terms, kind >= 1 - self.cell_share, [one_cell])
        # Like those that come from names: a request without a seed gets a digest of its name.
        seeds = rng.integers(0, 2**62, count)
        return RequestColumns(demand, terms, groups, seeds)


FLAVORED = Workload("flavors")
CONTINUOUS = Workload("continuous", continuous=True)
MANY_POOLS = Workload("10,000 pools", pools=10_000, pool_share=0.01)
OWN_POOLS = Workload("pool per host", pools=POOL_PER_HOST)
NUMA = Workload("NUMA", cell_share=0.5)


def _flavored(rng: np.random.Generator, count: int) -> Int64Array:
    flavors = np.array([(c * 1000, m * GIB, c * 10 * GIB) for c, m in FLAVORS], np.int64)
    return flavors[rng.integers(0, len(flavors), count)]


def _continuous(rng: np.random.Generator, count: int) -> Int64Array:
    demand = np.empty((count, 3), np.int64)
    demand[:, 0] = rng.integers(250, 16_000, count)
    demand[:, 1] = rng.integers(256, 64 * 1024, count) * MIB
    demand[:, 2] = rng.integers(1, 200, count) * GIB
    return demand


def _choose(
    rng: np.random.Generator, column: Int32Array, where: np.ndarray, numbers: Sequence[int]
) -> None:
    """Give each chosen request one of these numbers."""
    chosen = rng.integers(0, len(numbers), int(np.count_nonzero(where)))
    column[where] = np.array(numbers, np.int32)[chosen]


def _label_rule(fleet: Fleet, key: str, value: str) -> int:
    term = LabelTerm(key, LabelOperator.IN, (value,))
    return fleet.terms.number(HostRequirements(constraints=Constraints(labels=(term,))))


def _zone_rule(fleet: Fleet, zone: str) -> int:
    return fleet.terms.number(HostRequirements(constraints=Constraints(zones=(zone,))))


def anti_affinity_sets(fleet: Fleet, count: int, prefix: str) -> list[int]:
    """Return the numbers of new sets of one anti-affinity group each."""
    specs = (GroupSpec(f"{prefix}-{n}", GroupRule.ANTI_AFFINITY) for n in range(count))
    return [fleet.groups.set_number((spec,)) for spec in specs]


def pick(columns: RequestColumns, indices: Int64Array) -> RequestColumns:
    """Return some of the requests."""
    return RequestColumns(
        columns.demand[indices],
        columns.terms[indices],
        columns.group_set[indices],
        columns.seed[indices],
    )


def requests_of(
    fleet: Fleet, columns: RequestColumns, prefix: str, strategy: str | None = None
) -> list[PlaceRequest]:
    """Return the same requests as objects, for calls from Python."""
    requests = []
    for index in range(len(columns)):
        cpu, memory, disk = columns.demand[index].tolist()
        terms = fleet.terms[int(columns.terms[index])]
        members = fleet.groups.set_members(int(columns.group_set[index]))
        requests.append(
            PlaceRequest(
                name=f"{prefix}-{index}",
                demand=Demand(cpu, memory, disk, numa=terms.numa),
                constraints=terms.constraints,
                groups=tuple(fleet.groups.specs[group] for group in members),
                strategy=strategy,
                seed=int(columns.seed[index]),
            )
        )
    return requests


def count_for(fleet: Fleet, workload: Workload, share: float) -> int:
    """Return about how many requests promise this share of the fleet's cpu."""
    sample = workload.columns(fleet.snapshot(), 2000, seed=0).demand[:, 0]
    total = int(fleet.hosts.arrays.capacity[:, 0].sum())
    return int(share * total / sample.mean())
