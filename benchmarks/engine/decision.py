"""Rows: one decision through Python on many hosts, for every strategy, filled to 60 %."""

from collections.abc import Iterator
from functools import lru_cache, partial

from benchmarks.engine.checking import check_finds, time_plain
from benchmarks.engine.fleets import FLAVORED, MANY_POOLS, empty_fleet, requests_of
from benchmarks.engine.growth import INDEXED, SCANNING, filled, learn_rules
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.engine.plain_scan import PlainScan
from benchmarks.results import Result, at_most
from roost.fleet.fleet import Fleet
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
