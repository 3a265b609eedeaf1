"""A batch of 200 different VMs, all or none, on 1,000 hosts, where placing in turn gets stuck.

Most hosts are nearly full; the few that are empty are the only ones for the large VMs, which come
last in the batch and fit there in pairs. Rules, three groups and three resources bind them. One
batch fits, the other has one database too many for a rule: its conflict is named and checked.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from time import perf_counter

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_most
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import LabelOperator, LabelTerm
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import HostSpec, Resource, Scope
from roost.model.resources import Demand
from roost.model.rules import Rule, RuleScope, RuleSet
from roost.placement.engine import Engine
from roost.placement.greedy import place_in_turn
from roost.placement.group import EXACT, GroupAnswer, place_group
from roost.placement.solver import searching
from roost.placement.solver.checking import order_that_fits
from roost.placement.solver.restrictions import without

HOSTS, EMPTY, VMS = 1000, 60, 200
#: Seconds that a batch may take.
GOAL_S = 5.0
_DATABASES = RuleScope(selector=(LabelTerm("tier", LabelOperator.IN, ("db",)),))
RULES = RuleSet(
    (
        Rule("databases on ssd", 'host.labels["disk"] == "ssd"', scope=_DATABASES),
        Rule("room to breathe", 'host.free.memory >= quantity("4Gi")', scope=_DATABASES),
        Rule("not the old ones", 'host.labels["generation"] != "1"'),
    ),
    1,
)
APART = GroupSpec("db", GroupRule.ANTI_AFFINITY, Scope.HOST)
EVEN = GroupSpec("web", GroupRule.SPREAD, Scope.ZONE, max_skew=2)
TOGETHER = GroupSpec("cache", GroupRule.AFFINITY, Scope.ZONE)


def busy_fleet() -> Engine:
    """Return an engine on hosts of which only some are empty."""
    rng, fleet = Random(20), Fleet()
    for number in range(HOSTS):
        empty = number % (HOSTS // EMPTY) == 0 and number // (HOSTS // EMPTY) < EMPTY
        ssd = number // (HOSTS // EMPTY) % 2 == 0 if empty else rng.random() < 0.5
        spec = HostSpec(
            f"host-{number:04}",
            Resource(16_000), Resource(64 * GIB), Resource(1000 * GIB),
            zone=f"z{number % 3}", rack=f"r{number % 30}",
            labels=(("disk", "ssd" if ssd else "hdd"),
                    ("generation", "2" if empty else str(rng.randint(1, 3)))),
        )  # fmt: skip
        row = fleet.register(spec)
        if not empty:
            free = (rng.randint(0, 3), rng.randint(1, 8), rng.randint(10, 80))
            taken = Demand(16_000 - free[0] * 1000, (64 - free[1]) * GIB, (1000 - free[2]) * GIB)
            fleet.apply(f"old-{number}", row, fleet.vector(taken))
    return Engine(fleet, "least_loaded", rules=RULES)


def batch(databases: int = EMPTY // 2, pairs: int = EMPTY) -> list[PlaceRequest]:
    """Return different VMs, small ones first, then pairs that fill an empty host together.

    Half of the empty hosts have the disks that databases need; one of a pair may be one.
    """
    rng = Random(21)
    asked = []
    for number in range(VMS - 2 * pairs):
        cpu, memory = rng.choice((500, 1000, 1500, 2000)), rng.randint(1, 4) * GIB
        demand = Demand(cpu, memory, rng.choice((0, 5, 10, 20)) * GIB)
        groups = ((EVEN,), (), (TOGETHER,), ())[number % 4]
        asked.append(PlaceRequest(f"small-{number}", demand, groups=groups))
    for number in range(pairs):
        cores, memory = rng.choice(((10, 16), (9, 30), (11, 12), (8, 24), (5, 40), (7, 36)))
        one = Demand(cores * 1000, memory * GIB, rng.choice((100, 200)) * GIB)
        other = Demand((14 - cores) * 1000, (56 - memory) * GIB, rng.choice((300, 400)) * GIB)
        first = PlaceRequest(f"one-{number}", one)
        if number < databases:
            first = replace(first, groups=(APART,), labels=(("tier", "db"),))
        asked += [first, PlaceRequest(f"other-{number}", other)]
    return asked


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the jobs, of which a short run has both."""
    yield Job("solver 200x1000", _fitting)
    yield Job("solver 200x1000 conflict", _refused)


def _fitting() -> list[Result]:
    """Time a batch that fits, once every filter has let it pass step by step."""
    engine, asked = busy_fleet(), batch()
    if place_in_turn(engine, asked)[1] is None:
        raise AnswersDiffer("solver 200x1000: placing in turn is enough")
    seconds, answer = _timed(engine, asked)
    if answer.how != EXACT or not answer.fits:
        raise AnswersDiffer("solver 200x1000: a batch that fits was refused")
    requests = [asked[at] for at in answer.order]
    if order_that_fits(engine, requests, [answer.placements[at] for at in answer.order]) is None:
        raise AnswersDiffer("solver 200x1000: a filter refuses what was found")
    return [at_most("solver 200x1000", seconds, "s", goal=GOAL_S)]


def _refused() -> list[Result]:
    """Time a batch that does not fit, once its conflict was lifted and put back."""
    engine, asked = busy_fleet(), batch(EMPTY // 2 + 1, pairs=40)
    seconds, answer = _timed(engine, asked)
    conflict = answer.conflict
    if answer.fits or not answer.proven or conflict is None or not conflict.checked:
        raise AnswersDiffer("solver 200x1000 conflict: it was not proven and checked")
    if not place_group(engine, without(asked, conflict.restrictions)).fits:
        raise AnswersDiffer("solver 200x1000 conflict: without it the batch does not fit")
    return [at_most("solver 200x1000 conflict", seconds, "s", goal=GOAL_S)]


def _timed(engine: Engine, asked: list[PlaceRequest]) -> tuple[float, GroupAnswer]:
    searching.search(engine, asked[:1])  # the kernels are compiled, the solver is loaded
    begun = perf_counter()
    answer = place_group(engine, asked)
    return perf_counter() - begun, answer
