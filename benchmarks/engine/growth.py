"""Rows: how the cost of a decision grows from few hosts to many, as a batch and as one call.

Each strategy fills its own fleet to 60 % first, so it meets the fragments it makes itself. Times
are the best of some rounds, because the machine may be busy with other things.
Strategies that must look at every host are compared with the plain scan instead.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.engine.checking import check_batch, check_finds
from benchmarks.engine.fleets import (
    CONTINUOUS,
    FLAVORED,
    MANY_POOLS,
    NUMA,
    OWN_POOLS,
    Workload,
    count_for,
    empty_fleet,
    pick,
    requests_of,
)
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.engine.plain_scan import PlainScan
from benchmarks.results import Result, at_most
from roost.fleet.fleet import Fleet
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine
from roost.placement.mix import mix_of

INDEXED = (
    "least_loaded",
    "best_fit",
    "round_robin",
    "random",
    "fewest_vms",
    "first_fit",
    "worst_fit",
)
SCANNING = ("balance_fit", "dot_product", "fragmentation")
WORKLOADS = (FLAVORED, CONTINUOUS, MANY_POOLS, OWN_POOLS)
FILLED = 0.6
_SAMPLE = 200
_CALLS = 1000
_SCANNED = 100
_ROUNDS = 10
_GOAL, _AIM = 3.0, 2.0


class Cost(NamedTuple):
    """Seconds per decision on one fleet."""

    batch_s: float
    call_s: float
    plain_s: float


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return one job per strategy and workload."""
    for workload in WORKLOADS:
        for strategy in INDEXED:
            name = f"growth {strategy}, {workload.name}"
            yield Job(name, partial(_growth, name, sizes, workload, strategy))
    for strategy in SCANNING:
        name = f"scanning {strategy}"
        yield Job(name, partial(_scanning, name, sizes, strategy))


def filled(hosts: int, workload: Workload, strategy: str, *, cells: bool = False) -> Fleet:
    """Return a fleet that the strategy has filled to 60 %."""
    fleet = empty_fleet(hosts, workload.pools, cells=cells).snapshot()
    plain = Workload(workload.name, workload.continuous, cell_share=workload.cell_share)
    count = count_for(fleet, plain, FILLED)
    Engine(fleet).place_columns(plain.columns(fleet, count, seed=3), strategy)
    return fleet


def _growth(name: str, sizes: Sizes, workload: Workload, strategy: str) -> Iterator[Result]:
    low = _cost(name, workload, strategy, sizes.few, trials=9)
    high = _cost(name, workload, strategy, sizes.many, trials=3)
    for how, before, after in (
        ("batch", low.batch_s, high.batch_s),
        ("one call", low.call_s, high.call_s),
    ):
        yield at_most(
            f"{name}: {how}",
            after / before,
            "x",
            sizes.goal(_GOAL),
            sizes.goal(_AIM),
            ratio=after / high.plain_s,
            note=f"{before * 1e6:.2f} -> {after * 1e6:.2f} us",
        )


def _cost(name: str, workload: Workload, strategy: str, hosts: int, trials: int) -> Cost:
    """Measure decisions, as many as there are hosts, on a fleet filled to 60 %."""
    what = f"{name}, {hosts:,} hosts"
    start = filled(hosts, workload, strategy)
    batches, plains = [], []
    for _ in range(trials):
        engine = Engine(start.snapshot())
        columns = workload.columns(engine.fleet, hosts + _SAMPLE, seed=4)
        plains.append(check_batch(what, engine, strategy, columns.part(0, _SAMPLE)).plain)
        learn_rules(engine, columns)
        with timed() as span:
            engine.place_columns(columns.part(_SAMPLE, len(columns)), strategy)
        batches.append(span.cpu_s / hosts)
    call_s = call_cost(what, engine, workload, strategy)
    return Cost(min(batches), call_s, min(plains))


def learn_rules(engine: Engine, columns: RequestColumns) -> None:
    """Ask once for every rule in the columns: the first time is a row of its own."""
    _, first = np.unique(columns.terms, return_index=True)
    for request in requests_of(engine.fleet, pick(columns, first), "rule"):
        engine.find(request)


def call_cost(what: str, engine: Engine, workload: Workload, strategy: str) -> float:
    """Return the seconds of one decision through Python, nothing committed."""
    columns = workload.columns(engine.fleet, _CALLS, seed=5)
    requests = requests_of(engine.fleet, columns, "call", strategy)
    live = PlainScan(engine.fleet, strategy)
    check_finds(what, engine, live, requests[:_SAMPLE], columns.part(0, _SAMPLE))
    learn_rules(engine, columns)
    spent = []
    for _ in range(_ROUNDS):
        with timed() as span:
            for request in requests:
                engine.find(request)
        spent.append(span.cpu_s / len(requests))
    return min(spent)


def _scanning(name: str, sizes: Sizes, strategy: str) -> Iterator[Result]:
    cases = [(FLAVORED, sizes.many), (CONTINUOUS, sizes.many)]
    if strategy == "balance_fit":
        cases = [(FLAVORED, sizes.many), (NUMA, sizes.numa_hosts)]
    decisions = _SCANNED if strategy != "fragmentation" else _SCANNED // 8
    for workload, hosts in cases:
        start = filled(hosts, workload, "least_loaded", cells=workload is NUMA)
        mix = mix_of(start)
        rounds = []
        for _ in range(3):
            engine = Engine(start.snapshot(), mix=mix)
            columns = workload.columns(engine.fleet, decisions + 1, seed=4)
            engine.place_columns(columns.part(0, 1), strategy)
            learn_rules(engine, columns)
            what = f"{name}, {workload.name}, {hosts:,} hosts"
            rest = columns.part(1, decisions + 1)
            rounds.append(check_batch(what, engine, strategy, rest, mix=mix))
        plain_s, each = (min(seconds) for seconds in zip(*rounds, strict=True))
        yield at_most(
            f"{name}, {workload.name}: time over plain scan",
            each / plain_s,
            "x",
            1.0,
            ratio=each / plain_s,
            note=f"{hosts:,} hosts, {each * 1e6:,.0f} us, scan {plain_s * 1e6:,.0f} us",
        )
