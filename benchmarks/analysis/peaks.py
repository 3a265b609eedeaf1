"""Rows on peaks of neighbours: the room that hosts need with and without the days of VMs.

Bitbrains VMs are placed one after the other under `metrics_based` on equal hosts, in several random
orders; what is expected of each, and its day, is made of the week up to day 11. On days 12 to 14,
which nothing was learnt from, the highest use of every host is added up: the cpu that the fleet
must have ready. Each order is placed twice, with days and without. Few of these VMs have a day, so
a second row has made ones that all do, with peaks at any hour.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.analysis.bitbrains import DAY, FILES, KNOWN, read_table
from benchmarks.analysis.sizes import Sizes
from benchmarks.analysis.synthetic import Floats
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.analysis.days import day_of
from roost.analysis.outlook import POINTS, STEP_S
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource
from roost.model.outlook import DAY_PARTS, Expected, Predicted, PredictionBasis
from roost.model.resources import Demand
from roost.placement.engine import Engine

_NAME = "peaks of hosts"
#: Each VM has four cores here, so that no single one rules the sums.
_MILLI = 4000
_PER_HOST = 8
_STRATEGY = "metrics_based"


def services(count: int, points: int) -> Floats:
    """Return made services that follow the day, each at an hour of its own, with noise."""
    rng = np.random.default_rng(16)
    turn = np.arange(points) / DAY - rng.random((count, 1))
    depth, level = rng.uniform(0.1, 0.4, (2, count, 1))
    noise = 0.1 * rng.standard_normal((count, points))
    shares = level + depth * np.cos(2 * np.pi * turn) + level * noise
    return np.asarray(np.clip(shares, 0.0, 1.0) * _MILLI)


def expectations(use: Floats) -> list[Expected]:
    """Return what is expected of every VM from the week before day 12."""
    week = use[:, KNOWN - POINTS : KNOWN]
    high = np.nanquantile(week, 0.95, axis=1)
    return [
        Expected(int(np.ceil(top)), GIB, day=day_of(series, KNOWN * STEP_S, STEP_S))
        for series, top in zip(week, high, strict=True)
    ]


def needed(use: Floats, expected: list[Expected], order: list[int], *, apart: bool) -> float:
    """Return the sum of hosts' highest use on unseen days, VMs placed in this order."""
    fleet = Fleet()
    hosts = -(-len(use) // _PER_HOST)
    for number in range(hosts):
        cpu = Resource(_MILLI * 2 * _PER_HOST)
        fleet.register(HostSpec(f"h{number:03}", cpu, Resource(512 * GIB), Resource(0)))
    names = [fleet.hosts.names[row] for row in range(hosts)]
    fleet.set_predicted(dict.fromkeys(names, Predicted(0, 0)), PredictionBasis("bench"))
    engine, unseen = Engine(fleet, _STRATEGY), np.nan_to_num(use[:, KNOWN:])
    sums = np.zeros((hosts, unseen.shape[1]))
    for vm in order:
        day = expected[vm].day if apart else None
        request = PlaceRequest(str(vm), Demand(_MILLI, GIB), expected=expected[vm], day=day)
        found = engine.find(request)
        assert found is not None
        engine.commit(request, found)
        sums[found.host_row] += unseen[vm]
    # By three hours, as days are told: single steps are noise that no day foresees.
    parts = sums.reshape(hosts, -1, DAY // DAY_PARTS).mean(axis=2)
    return float(parts.max(axis=1).sum())


def row(name: str, use: Floats, orders: int) -> Result:
    """Measure one set of series."""
    expected = expectations(use)
    rng = np.random.default_rng(16)
    ratios = []
    for _ in range(orders):
        order = rng.permutation(len(use)).tolist()
        plain, apart = (needed(use, expected, order, apart=each) for each in (False, True))
        ratios.append(apart / plain)
    with_day = sum(each.day is not None for each in expected)
    note = f"{with_day} of {len(use)} VMs have a day; {orders} orders, "
    note += f"{min(ratios):.3f} to {max(ratios):.3f}; under 1 is less cpu"
    return at_most(name, float(np.mean(ratios)), "x", None, note=note)


def rows_of(data: Path, sizes: Sizes) -> Iterator[Result]:
    """Measure the series of real VMs, and made ones."""
    if not (data / "bitbrains-rnd").is_dir():
        why = f"no bitbrains-rnd under {data}. Maybe set DATA to the folder of public data."
        yield skipped(_NAME, "x", why)
        return
    use = np.clip(read_table(data / "bitbrains-rnd" / FILES[0]).T / 100.0, 0.0, 1.0) * _MILLI
    orders = 40 if sizes.full else 5
    yield row(f"{_NAME}, days over none", use, orders)
    yield row(f"{_NAME}, made VMs", services(*use.shape), orders)


def jobs(data: Path, sizes: Sizes) -> list[Job]:
    """Return the one job of this topic."""
    return [Job(_NAME, lambda: rows_of(data, sizes))]
