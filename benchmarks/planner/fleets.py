"""Rows of balancing a made fleet: time to a quarter of the spread, memory, and calm afterwards.

The fleet is filled by best_fit to 60% of its cpu; a tenth of the VMs each ask for a label, for a
zone, and to be apart from others. Every move is held to the engine's filters: the classes are made
by them, waves are checked here host by host, and a sample of moves is asked of the engine again.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.engine.batch_worker import peak_mib
from benchmarks.engine.fleets import FLAVORED, empty_fleet
from benchmarks.engine.measuring import Job, timed
from benchmarks.results import Result, at_most
from roost.fleet.fleet import Fleet
from roost.placement.attributes import eligible
from roost.placement.engine import Engine
from roost.placement.question import Question
from roost.placement.registry import FILTERS
from roost.placement.rules.columns import RuleColumns
from roost.planner.formulating import Formulated, formulate
from roost.planner.problem import Problem
from roost.planner.search import Search, propose
from roost.planner.waves import Limits, Ordered, order

FULLNESS = 0.6
QUARTER = 0.25
VMS_A_HOST = 10


def jobs(*, short: bool) -> Iterator[Job]:
    """Return the jobs; a short run leaves the large fleet out."""
    yield Job("plan 1k", lambda: _plan("plan 1k", 1_000, 10.0))
    if not short:
        yield Job("plan 10k", lambda: _plan("plan 10k", 10_000, 60.0))
    yield Job("replan empty", _replan)


def filled(hosts: int) -> Engine:
    """Return an engine on a fleet that best_fit has filled."""
    fleet: Fleet = empty_fleet(hosts).snapshot()
    engine = Engine(fleet, "best_fit")
    columns = FLAVORED.columns(fleet, VMS_A_HOST * hosts, seed=3)
    room = fleet.hosts.arrays.capacity[:hosts, :2].sum(axis=0)
    scale = FULLNESS * room / columns.demand[:, :2].sum(axis=0)
    # Both at 60%, in whole millicores and MiB; disk is never short.
    columns.demand[:, 0] = np.maximum(1, columns.demand[:, 0] * scale[0])
    columns.demand[:, 1] = np.maximum(1, columns.demand[:, 1] * scale[1] // 2**20) * 2**20
    columns.demand[:, 2] //= 8
    answers = engine.place_columns(columns, "best_fit")
    if np.count_nonzero(answers.row < 0) > 0.01 * len(answers.row):
        raise RuntimeError(f"{np.count_nonzero(answers.row < 0)} VMs found no place")
    return engine


def loads(problem: Problem, place: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Return the load of every host: the larger share of cpu and memory."""
    used = problem.base[:, -2:].copy()
    np.add.at(used, place, problem.demand[:, -2:])
    shares: npt.NDArray[np.float64] = (used / problem.even_unit[:, -2:]).max(axis=1)
    return shares


def _plan(row: str, hosts: int, goal_s: float) -> Iterator[Result]:
    engine = filled(hosts)
    _warm()
    before_mib = peak_mib()
    with timed() as span:
        made = formulate(engine)
        problem = made.problem
        spread = float(np.std(loads(problem, problem.start)))
        search = Search(problem, seed=1, heat=0.0)
        while np.std(loads(problem, search.state.place)) > 0.9 * QUARTER * spread:
            search.run(0.0)
            if search.settled:
                break
        found = search.finish()
        ordered = order(problem, found.moves, Limits(per_host=4))
    left = float(np.std(loads(problem, found.place))) / spread
    _check(engine, made, ordered, found.place)
    memory = f"{peak_mib() - before_mib:,.0f} MiB more than the fleet"
    what = f"{len(found.moves):,} moves in {len(ordered.waves)} waves; {memory}"
    yield at_most(row, span.cpu_s, "s of CPU", goal_s, note=what)
    note = f"from {spread:.3f}, {len(ordered.impossible)} moves without an order"
    yield at_most(f"{row} spread left", left, "x", QUARTER, note=note)


def _replan() -> Iterator[Result]:
    made = formulate(filled(1_000))
    found = propose(made.problem, 40_000_000, seed=1, least=made.worth)
    again = propose(made.problem.starting_at(found.place), 40_000_000, seed=2, least=made.worth)
    spread = [float(np.std(loads(made.problem, p))) for p in (made.problem.start, found.place)]
    note = f"{len(found.moves):,} moves before, spread {spread[0]:.3f} to {spread[1]:.3f}"
    yield at_most("replan empty", len(again.moves), "moves", 0, note=note)


def _warm() -> None:
    """Compile or load the kernels before anything is timed."""
    search = Search(formulate(filled(64)).problem, heat=0.0)
    search.run(0.0, 100)
    search.finish()


def _check(
    engine: Engine, made: Formulated, ordered: Ordered, place: npt.NDArray[np.int32]
) -> None:
    """Hold the waves to the capacity of every host while they run, and the moves to the engine."""
    problem = made.problem
    used = problem.base.copy()
    np.add.at(used, problem.start, problem.demand)
    at = problem.start.copy()
    for wave in ordered.waves:
        rows = np.array([(m.vm, m.source, m.target) for m in wave], np.int64)
        if np.any(at[rows[:, 0]] != rows[:, 1]):
            raise RuntimeError("a move starts where its VM is not")
        np.add.at(used, rows[:, 2], problem.demand[rows[:, 0]])
        if np.any(used > problem.capacity):
            raise RuntimeError("a host is over its capacity while a wave runs")
        np.subtract.at(used, rows[:, 1], problem.demand[rows[:, 0]])
        at[rows[:, 0]] = rows[:, 2]
    impossible = [vm for vm, _ in ordered.impossible]
    if np.any(np.delete(at != place, impossible)):
        raise RuntimeError("the waves do not lead where the search went")
    _ask_engine(engine, made, ordered)


def _ask_engine(engine: Engine, made: Formulated, ordered: Ordered) -> None:
    """Make all moves in the fleet, and ask the engine's filters about every 20th of them."""
    fleet = engine.fleet.snapshot()
    vms, rules = fleet.vms, RuleColumns(fleet)
    for move in ordered.moves:
        number, target = int(made.vms[move.vm]), int(made.hosts[move.target])
        demand, expected = vms.demand[number].copy(), vms.expected[number].copy()
        terms, group_set = int(vms.terms[number]), int(vms.group_set[number])
        fleet.remove(number)
        if move.number % 20 == 0:
            groups = fleet.groups.set_members(group_set)
            asked = Question(fleet, demand, fleet.terms.values[terms], groups, eligible, rules)
            row = np.array([target])
            said = [f.reason for f in FILTERS if f.applies(asked) and not f.column(asked, row)[0]]
            if said:
                raise RuntimeError(f"the engine refuses a move: {said}")
        if fleet.apply(None, target, demand, terms, group_set, 0, 0, expected) != number:
            raise RuntimeError("a moved VM got another number")
