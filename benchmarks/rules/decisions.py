"""Rows: a decision of a VM that rules bind, over one of the same VM on the same fleet without.

Before anything is timed, the answers are compared with those of the plain interpreter: it is asked
about every host, and the best host that it allows must be the one that the engine chooses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.fleets import FLAVORED, host_spec, requests_of
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.results import Result, at_most
from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray
from roost.model.flow import PlaceRequest
from roost.model.rules import Rule, RuleSet
from roost.placement.engine import NO_FIT, Engine
from roost.placement.rules.facts import HostRecord, vm_record
from roost.rules.checking import Condition, condition
from roost.rules.evaluating import judge

STRATEGY = "least_loaded"
_LOTS = 20
_REQUESTS = 500
_ROUNDS = 15
#: Requests whose answers are compared: the interpreter takes seconds for a fleet.
_CHECKED = 40

#: Twenty rules that read what hosts register with: two lots of twenty remain, a tenth of the hosts.
SLOW = (
    'vm.labels.role != "db" || host.zone in ["a", "b", "c"]',
    'host.name.startsWith("h") && host.capacity.cpu >= cores("32")',
    *(f'host.labels.lot != "{lot}"' for lot in range(2, 11)),
    *(f'!(has(host.labels.lot) && host.labels.lot == "{lot}")' for lot in range(11, _LOTS)),
)

#: Five rules on free amounts: floors that the index prunes on, and inequalities.
DYNAMIC = (
    'host.free.memory >= quantity("96Gi")',
    'host.free.cpu - vm.demand.cpu >= cores("8")',
    'host.free.disk >= quantity("1Ti")',
    "host.free.memory * 5 >= host.capacity.memory",
    "host.committed.cpu * 10 <= host.capacity.cpu * 9",
)


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the jobs; a short run has no fleet of the larger size."""
    for hosts, label in ((10_000, "10k"), (100_000, "100k")):
        if hosts <= sizes.many:
            name = f"rules 20 at {label}"
            yield Job(name, partial(_row, name, hosts, SLOW, goal=2.0, aim=1.3))
    name = "rules dynamic 5 at 10k"
    yield Job(name, partial(_row, name, 10_000, DYNAMIC, goal=3.0, aim=None))


def fleet_of(hosts: int) -> Fleet:
    """Return a fleet whose hosts are in lots, filled to 60 % by the strategy."""
    rng = np.random.default_rng(1)
    fleet = Fleet()
    for number in range(hosts):
        spec = host_spec(number, 0, rng, cells=False)
        lot = int(rng.integers(_LOTS))
        fleet.register(replace(spec, labels=(*spec.labels, ("lot", str(lot)))))
    columns = FLAVORED.columns(fleet, 12 * hosts, seed=3)
    plain = replace(
        columns, terms=np.zeros_like(columns.terms), group_set=np.zeros_like(columns.group_set)
    )
    engine, capacity = Engine(fleet), fleet.hosts.arrays.capacity[:, 0].sum()
    for start in range(0, len(plain), hosts):
        if fleet.hosts.arrays.committed[:, 0].sum() >= 0.6 * capacity:
            break
        engine.place_columns(plain.part(start, start + hosts), STRATEGY)
    return fleet


def plain_requests(fleet: Fleet) -> list[PlaceRequest]:
    """Return VMs of a few sizes that ask for nothing but amounts, with labels for rules to read."""
    asked = requests_of(fleet, FLAVORED.columns(fleet, _REQUESTS, seed=6), "one", STRATEGY)
    return [
        PlaceRequest(each.name, each.demand, strategy=STRATEGY, labels=(("role", "db"),))
        for each in asked
    ]


def allowed(fleet: Fleet, request: PlaceRequest, rules: Sequence[Condition]) -> BoolArray:
    """Return the hosts that the interpreter allows, asking it about each of them."""
    vm = vm_record(request, STRATEGY)
    passes = np.zeros(fleet.hosts.count, np.bool_)
    for row in range(fleet.hosts.count):
        known = {"host": HostRecord(fleet, row), "vm": vm}
        passes[row] = all(judge(rule, known) is True for rule in rules)
    return passes


def check(
    name: str, ruled: Engine, free: Engine, requests: list[PlaceRequest], slow: bool
) -> float:
    """Compare answers with the interpreter's; return the share of hosts that it allows."""
    rules = [condition(rule.expression) for rule in ruled.rules.rules]
    passes: dict[object, BoolArray] = {}
    for request in requests:
        kind = None if slow else request.demand  # what the rules read of the VM
        if kind not in passes:
            passes[kind] = allowed(free.fleet, request, rules)
        scores = np.where(passes[kind], free.scores(request), NO_FIT)
        best = int(np.argmin(scores))
        expected = None if scores[best] == NO_FIT else best
        found = ruled.find(request)
        if (None if found is None else found.host_row) != expected:
            raise AnswersDiffer(f"{name}: {request.name} went to {found}, not to row {expected}")
    return float(np.mean([each.mean() for each in passes.values()]))


def _row(
    name: str, hosts: int, texts: Sequence[str], goal: float, aim: float | None
) -> Iterator[Result]:
    fleet = fleet_of(hosts)
    rules = RuleSet(tuple(Rule(f"rule-{n}", text) for n, text in enumerate(texts)), 1)
    free, ruled = Engine(fleet), Engine(fleet, rules=rules)
    requests = plain_requests(fleet)
    slow = texts is SLOW
    share = check(name, ruled, free, requests[: _CHECKED if slow else 10], slow)
    best = {free: float("inf"), ruled: float("inf")}
    for _ in range(_ROUNDS):
        for engine in (free, ruled):
            with timed() as span:
                for request in requests:
                    engine.find(request)
            best[engine] = min(best[engine], span.cpu_s / len(requests))
    note = (
        f"{best[free] * 1e6:.2f} -> {best[ruled] * 1e6:.2f} us; {len(texts)} rules, "
        f"{share:.0%} of {hosts:,} hosts pass"
    )
    yield at_most(name, best[ruled] / best[free], "x", goal, aim, note=note)
