"""Row: who makes room for a VM on a full fleet, one decision at 5,000 hosts with 50,000 VMs.

Before anything is timed, the choice is compared with a plain loop over all sets of up to two VMs on
all hosts, and is asked of the filters with the VMs gone.
"""

from collections.abc import Iterator
from functools import partial
from itertools import combinations
from statistics import quantiles
from time import perf_counter

import numpy as np

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_most
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.fleet.vms import MOVES, STOPS
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource
from roost.model.resources import Demand
from roost.placement.engine import Engine
from roost.placement.preempting import MadeRoom, fits_on, make_room, without

HOSTS, ON_EACH = 5_000, 10
_ASKED = 60
#: Cores and GiB of the VMs that fill the fleet.
_SIZES = ((1, 2), (2, 4), (2, 8), (4, 8), (4, 16))


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the job; a short run asks less often."""
    yield Job("preempt 5k", partial(_row, min(_ASKED, sizes.many // 100)))


def full_fleet(hosts: int, seed: int = 1) -> Fleet:
    """Return hosts of ten VMs each that leave hardly anything free, of many priorities."""
    rng, fleet = np.random.default_rng(seed), Fleet()
    for number in range(hosts):
        sizes = [_SIZES[int(at)] for at in rng.integers(len(_SIZES), size=ON_EACH)]
        spare = int(rng.integers(0, 2))
        cpu, memory = (sum(each[at] for each in sizes) + spare for at in (0, 1))
        row = fleet.register(
            HostSpec(f"h{number:05}", Resource(cpu * 1000), Resource(memory * GIB), Resource(2**42))
        )
        for place, (cores, gib) in enumerate(sizes):
            demand = fleet.vector(Demand(cores * 1000, gib * GIB, 20 * GIB))
            at = fleet.apply(f"{number}-{place}", row, demand)
            leaves = STOPS if rng.random() < 0.7 else MOVES
            fleet.vms.set_standing(
                at, leaves, int(rng.integers(0, 50)) * 10, int(rng.integers(10**6))
            )
    return fleet


def requests() -> list[PlaceRequest]:
    """Return VMs that fit nowhere, of several sizes and priorities."""
    asked = []
    for number in range(_ASKED):
        cores, gib = ((2, 4), (4, 16), (8, 24), (6, 12))[number % 4]
        demand = Demand(cores * 1000, gib * GIB, 20 * GIB)
        asked.append(PlaceRequest(f"new-{number}", demand, priority=(200, 350, 1000)[number % 3]))
    return asked


def _check(engine: Engine, request: PlaceRequest, found: MadeRoom | None) -> None:
    """Compare a choice with every set of one or two VMs there is."""
    fleet, vms = engine.fleet, engine.fleet.vms
    best: tuple[int, int] | None = None
    wanted = fleet.vector(request.demand)
    for row in range(fleet.hosts.count):
        lacks = wanted - fleet.hosts.arrays.headroom[row, : len(wanted)]
        here = [
            n for n in vms.on_host(row).tolist()
            if vms.priority[n] < request.priority and vms.leaves[n] == STOPS
        ]  # fmt: skip
        for size in (1, 2):
            for chosen in combinations(here, size):
                if (vms.demand[list(chosen)].sum(axis=0) >= lacks).all():
                    harm = (int(vms.priority[list(chosen)].max()), size)
                    best = harm if best is None else min(best, harm)
    if found is None:
        raise AnswersDiffer(f"nobody makes room for {request.name}, and {best} would")
    numbers = [victim.number for victim in found.victims]
    if not without(fleet, numbers, lambda: fits_on(engine, request, found.row)):
        raise AnswersDiffer(f"{request.name} does not fit where room would be made")
    harm = (int(vms.priority[numbers].max()), len(numbers))
    if best is not None and harm > best:
        raise AnswersDiffer(f"{request.name}: {harm} is chosen, and {best} would do")


def _row(count: int) -> list[Result]:
    fleet = full_fleet(HOSTS)
    engine, asked = Engine(fleet), requests()
    for request in asked[:2]:
        _check(engine, request, make_room(engine, request))
    taken, victims = [], 0
    for request in asked[:count]:
        begun = perf_counter()
        found = make_room(engine, request)
        taken.append((perf_counter() - begun) * 1e3)
        victims += 0 if found is None else len(found.victims)
    cuts = quantiles(taken, n=100)
    note = (
        f"median of {count} decisions, {HOSTS:,} hosts, {HOSTS * ON_EACH:,} VMs, "
        f"{victims / count:.1f} victims each; 99 of 100 within {cuts[98]:.1f} ms"
    )
    return [at_most("preempt 5k", cuts[49], "ms", 10.0, note=note)]
