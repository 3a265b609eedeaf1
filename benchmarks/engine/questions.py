"""Rows: explaining one answer, and counting what still fits with and without a loss."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.engine.checking import AnswersDiffer, time_plain
from benchmarks.engine.fleets import FLAVORED
from benchmarks.engine.growth import filled
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.engine.plain_scan import PlainScan
from benchmarks.results import Result, at_most
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import Constraints, LabelOperator, LabelTerm
from roost.model.flow import PlaceRequest, Rejection
from roost.model.hosts import Scope
from roost.model.resources import Demand
from roost.placement.batching import RequestColumns
from roost.placement.capacity import capacity, copies_of
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.kernels.keys import REFERENCE_CPU, REFERENCE_DISK, REFERENCE_MEMORY

_ROUNDS = 5
_SMALL = 200  # hosts on which a count is checked by brute force
_RULES = Constraints(labels=(LabelTerm("tier", LabelOperator.IN, ("gold",)),), zones=("a",))
FITS = PlaceRequest("fits", Demand(4000, 16 * GIB, 40 * GIB), _RULES)
REFUSED = PlaceRequest("refused", Demand(90_000, 370 * GIB, 20 * GIB), _RULES)
COUNTED = PlaceRequest("copy", Demand(4000, 16 * GIB, 40 * GIB))


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the jobs of this topic."""
    for hosts, goal_ms in ((sizes.rule_hosts, 20.0), (sizes.many, 500.0)):
        name = f"explain {hosts:,} hosts"
        yield Job(name, partial(_explain, name, hosts, sizes.goal(goal_ms)))
    name = f"capacity {sizes.many:,} hosts"
    yield Job(name, partial(_capacity, name, sizes))
    name = f"capacity {sizes.rule_hosts:,} hosts, surviving a host"
    yield Job(name, partial(_survive, name, sizes))


def _columns(fleet: Fleet, request: PlaceRequest) -> RequestColumns:
    return RequestColumns(
        fleet.vector(request.demand).reshape(1, -1),
        np.array([fleet.terms.number(request.terms)], np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int64),
    )


def _explain(name: str, hosts: int, goal_ms: float | None) -> Iterator[Result]:
    fleet = filled(hosts, FLAVORED, "least_loaded")
    engine = Engine(fleet)
    plain = PlainScan(fleet, "least_loaded")
    for request in (FITS, REFUSED):
        columns = _columns(fleet, request)
        spent = []
        for turn in range(_ROUNDS):
            # Each time other amounts, as no two people ask for the same.
            demand = replace(request.demand, cpu_milli=request.demand.cpu_milli + turn)
            asked = replace(request, demand=demand)
            _check_explanation(name, engine, plain, asked)
            with timed() as span:
                explain(engine, asked)
            spent.append(span.cpu_s)
        each = min(spent)
        yield at_most(
            f"{name}, {'fits' if request is FITS else 'refused'}",
            each * 1e3,
            "ms",
            goal_ms,
            ratio=each / time_plain(plain, columns),
        )


def _check_explanation(name: str, engine: Engine, plain: PlainScan, request: PlaceRequest) -> None:
    columns = _columns(engine.fleet, request)
    explanation = explain(engine, request)
    row = int(plain.place(columns, commit=False).row[0])
    answer = explanation.answer
    said = -1 if isinstance(answer, Rejection) else answer.host_row
    fitting = int(plain.fitting(columns).sum())
    if said != row or explanation.fitting != fitting:
        raise AnswersDiffer(
            f"{name}: host {said} and {explanation.fitting} that fit, the scan says {row} "
            f"and {fitting}"
        )


def _capacity(name: str, sizes: Sizes) -> Iterator[Result]:
    small = filled(_SMALL, FLAVORED, "least_loaded")
    said = capacity(Engine(small), COUNTED).count
    counted = _copies_by_scan(small)
    if said != counted:
        raise AnswersDiffer(f"{name}: {said} copies on {_SMALL} hosts, the scan says {counted}")
    fleet = filled(sizes.many, FLAVORED, "least_loaded")
    engine = Engine(fleet)
    plain_s = time_plain(PlainScan(fleet, "least_loaded"), _columns(fleet, COUNTED))
    spent = []
    for _ in range(3):
        with timed() as span:
            answer = capacity(engine, COUNTED)
        spent.append(span.cpu_s)
    world = Engine(fleet)
    copies = copies_of(world, COUNTED, 0, answer.count + 1)
    placed = world.place_columns(copies, "least_loaded").row
    if int((placed >= 0).sum()) != answer.count:
        raise AnswersDiffer(f"{name}: {answer.count} copies, the engine places another number")
    each = min(spent)
    yield at_most(
        name,
        each,
        "s",
        sizes.goal(0.5),
        ratio=each / (plain_s * answer.count),
        note=f"{answer.count:,} copies; ratio to so many scans",
    )


def _survive(name: str, sizes: Sizes) -> Iterator[Result]:
    small = filled(_SMALL, FLAVORED, "least_loaded")
    said = capacity(Engine(small), COUNTED, Scope.HOST).count
    if not _survives_by_scan(small, said) or _survives_by_scan(small, said + 1):
        raise AnswersDiffer(f"{name}: {said} copies on {_SMALL} hosts is not the most by scan")
    engine = Engine(filled(sizes.rule_hosts, FLAVORED, "least_loaded"))
    with timed() as span:
        answer = capacity(engine, COUNTED, Scope.HOST)
    note = f"{answer.count:,} copies, one more would not survive {answer.blocking}"
    yield at_most(name, span.cpu_s, "s", sizes.goal(5.0), note=note)


def _copies_by_scan(fleet: Fleet) -> int:
    """Place copies with the plain scan, more than can fit, and return how many did."""
    plain = PlainScan(fleet.snapshot(), "least_loaded")
    copies = copies_of(Engine(plain.fleet), COUNTED, 0, 50 * fleet.hosts.count)
    return int((plain.place(copies, commit=True).row >= 0).sum())


def _survives_by_scan(fleet: Fleet, count: int) -> bool:
    """Place copies, then lose every host in turn and restart its VMs with the plain scan."""
    world = fleet.snapshot()
    engine = Engine(world)
    placed = engine.place_columns(copies_of(engine, COUNTED, 0, count), "least_loaded").row
    if (placed < 0).any():
        return False
    return all(_loss_survived(world.snapshot(), row) for row in range(world.hosts.count))


def _loss_survived(world: Fleet, row: int) -> bool:
    world.hosts.arrays.takes[row] = False
    vms = world.vms
    numbers = vms.on_host(row)
    weights = (0.4 / REFERENCE_CPU, 0.4 / REFERENCE_MEMORY, 0.2 / REFERENCE_DISK)
    numbers = numbers[np.lexsort((numbers, -(vms.demand[numbers, :3] @ np.array(weights))))]
    for number in numbers.tolist():
        world.count_groups(int(vms.group_set[number]), row, -1)
    lost = RequestColumns(vms.demand[numbers], vms.terms[numbers], vms.group_set[numbers], numbers)
    plain = PlainScan(world, "least_loaded")
    return bool((plain.place(lost, commit=True).row >= 0).all())
