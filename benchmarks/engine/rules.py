"""Rows: group rules that must hold, at a size where other schedulers publish theirs."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.engine.checking import check_batch
from benchmarks.engine.fleets import FLAVORED
from benchmarks.engine.growth import filled
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_least
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine

STRATEGIES = ("least_loaded", "best_fit")
_GOAL_PER_S = 50_000.0
_ROUNDS = 3


class Case(NamedTuple):
    """A rule, and how many members a group of it gets; groups get their members in turn."""

    name: str
    rule: GroupRule
    scope: Scope
    members: int


CASES = (
    Case("anti-affinity, one group", GroupRule.ANTI_AFFINITY, Scope.HOST, 0),
    Case("anti-affinity, groups of 10", GroupRule.ANTI_AFFINITY, Scope.HOST, 10),
    Case("affinity to a host, groups of 5", GroupRule.AFFINITY, Scope.HOST, 5),
    Case("affinity to a zone, groups of 10", GroupRule.AFFINITY, Scope.ZONE, 10),
    Case("zone spread, one group", GroupRule.SPREAD, Scope.ZONE, 0),
    Case("zone spread, groups of 10", GroupRule.SPREAD, Scope.ZONE, 10),
)


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return one job per rule and strategy."""
    for case in CASES:
        for strategy in STRATEGIES:
            name = f"rules {case.name}, {strategy}"
            yield Job(name, partial(_rules, name, sizes, case, strategy))


def _columns(fleet: Fleet, case: Case, count: int) -> RequestColumns:
    """Return small VMs that all belong to groups of the case."""
    rng = np.random.default_rng(8)
    groups = count // case.members if case.members else 1
    sets = [
        fleet.groups.set_number((GroupSpec(f"{case.name}-{n}", case.rule, case.scope),))
        for n in range(groups)
    ]
    cores = rng.integers(1, 3, count)
    demand = np.column_stack([cores * 1000, cores * 2 * GIB, cores * 10 * GIB])
    members = np.array(sets, np.int32)[np.arange(count) % groups]
    return RequestColumns(
        demand.astype(np.int64), np.zeros(count, np.int32), members, np.arange(count)
    )


def _rules(name: str, sizes: Sizes, case: Case, strategy: str) -> Iterator[Result]:
    start = filled(sizes.rule_hosts, FLAVORED, strategy)
    count = sizes.rule_hosts // 5 if not case.members else sizes.rule_hosts
    rounds = []
    for _ in range(_ROUNDS):
        engine = Engine(start.snapshot())
        columns = _columns(engine.fleet, case, count)
        engine.place_columns(columns.part(0, 10), strategy)
        before = engine.fleet.vms.count
        rounds.append(check_batch(name, engine, strategy, columns.part(10, count)))
        placed = (engine.fleet.vms.count - before) / (count - 10)
    plain_s, best = (min(seconds) for seconds in zip(*rounds, strict=True))
    yield at_least(
        name,
        1 / best,
        "decisions/s",
        sizes.goal(_GOAL_PER_S),
        ratio=best / plain_s,
        note=f"{sizes.rule_hosts:,} hosts, {best * 1e6:.1f} us, {placed:.0%} placed",
    )
