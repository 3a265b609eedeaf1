"""Rows: one decision through Python on many hosts, for every strategy, filled to 60 %."""

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from benchmarks.engine.checking import check_finds, time_plain
from benchmarks.engine.fleets import FLAVORED, MANY_POOLS, empty_fleet, requests_of
from benchmarks.engine.growth import INDEXED, SCANNING, filled, learn_rules
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.engine.plain_scan import PlainScan
from benchmarks.results import Result, at_most
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import Device, HostSpec, Resource
from roost.model.resources import Demand, DeviceDemand
from roost.placement.asked import Asked
from roost.placement.engine import Engine
from roost.placement.mix import mix_of

_GOAL_US = 20.0
_SAMPLE = 100
_ROUNDS = 15


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return one job per strategy, and one for rules that are asked for the first time."""
    for strategy in (*INDEXED, *SCANNING):
        name = f"decision {strategy}"
        yield Job(name, partial(_decision, name, sizes, strategy))
    yield Job("decision first use", partial(_first_use, "decision first use", sizes))
    name = "decision fragmentation, 1,213 hosts"
    yield Job(name, partial(_gpu_fleet, name))


@lru_cache(maxsize=1)
def filled_fleet(hosts: int) -> Fleet:
    """Return the fleet that all these rows ask; shared, so nobody may change it."""
    return filled(hosts, FLAVORED, "least_loaded")


def _decision(name: str, sizes: Sizes, strategy: str) -> Iterator[Result]:
    scanning = strategy in SCANNING
    fleet = filled_fleet(sizes.many)
    mix = mix_of(fleet) if scanning else None
    engine = Engine(fleet, mix=mix)
    sample = _SAMPLE // 5 if scanning else _SAMPLE
    columns = FLAVORED.columns(fleet, sample if scanning else 10 * sample, seed=6)
    requests = requests_of(fleet, columns, "one", strategy)
    live = PlainScan(fleet, strategy, mix)
    check_finds(name, engine, live, requests[:sample], columns.part(0, sample))
    plain_s = time_plain(live, columns.part(0, sample))
    learn_rules(engine, columns)
    for runners, what in ((0, "where"), (2, "where, why and two runners-up")):
        best = float("inf")
        for _ in range(_ROUNDS if not scanning else 2):
            with timed() as span:
                for request in requests:
                    engine.find(request, runners_up=runners)
            best = min(best, span.cpu_s / len(requests))
        yield at_most(
            f"{name}: {what}",
            best * 1e6,
            "us",
            sizes.goal(_GOAL_US) if not runners and not scanning else None,
            ratio=best / plain_s,
            note=f"{sizes.many:,} hosts, scan {plain_s * 1e6:,.0f} us" if not runners else "",
        )


def _gpu_fleet(name: str) -> Iterator[Result]:
    """Time placing and charging a VM on as many GPU hosts as openb has, half full.

    The mix is learnt from what is asked; requests come in 24 kinds, as they do in a server.
    """
    fleet, rng = Fleet(), np.random.default_rng(8)
    for number in range(1213):
        gpus = (Device("t4"),) * int(rng.choice((2, 4, 8)))
        room = Resource(96_000), Resource(512 * GIB), Resource(0)
        fleet.register(HostSpec(f"g{number:04}", *room, devices=gpus))
    shares = (DeviceDemand(1, 250), DeviceDemand(1, 500), DeviceDemand(1), DeviceDemand(2),
              DeviceDemand(4), DeviceDemand(8))  # fmt: skip
    kinds = [Demand(cpu * 1000, 4 * cpu * GIB, devices=each)
             for each in shares for cpu in (2, 4, 6, 8)]  # fmt: skip
    engine = Engine(fleet, "fragmentation")
    engine.asked = Asked()
    drawn = rng.choice(len(kinds), 4000, p=[0.9 / 16] * 16 + [0.1 / 8] * 8).tolist()
    requests = [PlaceRequest(f"v{at}", kinds[kind]) for at, kind in enumerate(drawn)]

    def ask(request: PlaceRequest) -> None:
        assert engine.asked is not None
        engine.asked.note(request.demand)
        if (found := engine.find(request)) is not None:
            engine.commit(request, found)

    for request in requests[:2000]:
        ask(request)
    with timed() as span:
        for request in requests[2000:]:
            ask(request)
    each = span.cpu_s / 2000
    note = "GPU hosts, 24 kinds of requests, placed and charged"
    yield at_most(name, each * 1e6, "us", 100.0, note=note)


def _first_use(name: str, sizes: Sizes) -> Iterator[Result]:
    """Time the first request with a rule nobody asked for before, among 10,000 pools."""
    fleet = empty_fleet(sizes.many, MANY_POOLS.pools).snapshot()
    engine = Engine(fleet)
    columns = MANY_POOLS.columns(fleet, 2000, seed=7)
    asked = requests_of(fleet, columns, "first")
    requests = {each.constraints: each for each in asked if each.constraints.labels}
    engine.find(asked[0])
    with timed() as span:
        for request in requests.values():
            engine.find(request)
    each = span.cpu_s / len(requests)
    note = f"{sizes.many:,} hosts; {len(requests)} label rules, most of them for a single pool"
    yield at_most(f"{name} of a label rule, 10,000 pools", each * 1e6, "us", None, note=note)
