"""The row of the VMR snapshot: less free cpu beside 16-core slots, by at most 50 moves in 5 s.

A VM on one NUMA node stays on the node of that number, one on two nodes on both. What no plan of
so many moves can be better than is a row of its own: an integer program in which a VM on one node
may go to either node of a host.
"""

import csv
import gzip
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.fleet.layout import Int32Array
from roost.planner.problem import Problem, simple
from roost.planner.search import Found, Search, search_while
from roost.planner.waves import order

SLOT, MOST_MOVES, SECONDS, GOAL = 16, 50, 5.0, 0.5
#: Of the seconds, those that the end of a search and the order of its moves may take.
MARGIN = 0.2
#: Cost of a core beside slots, and the temperature to begin with.
CORE = 100
HEAT = 2.5 * CORE
#: Seconds for the proof, and its word for a VM on both NUMA nodes.
PROOF_SECONDS = 120.0
BOTH = 2


def read(folder: Path) -> Problem:
    """Read the snapshot: cpu and memory of both NUMA nodes are four resources of a host."""
    with gzip.open(folder / "hosts.csv.gz", "rt") as file:
        hosts = list(csv.DictReader(file))
    with gzip.open(folder / "vms.csv.gz", "rt") as file:
        vms = list(csv.DictReader(file))
    row = {host["host"]: number for number, host in enumerate(hosts)}
    capacity = [[int(h[name]) for name in ("cpu0", "cpu1", "mem0_mb", "mem1_mb")] for h in hosts]
    names = ("cpu_numa0", "cpu_numa1", "mem_numa0_mb", "mem_numa1_mb")
    return simple(
        np.array([row[vm["host"]] for vm in vms], np.int32),
        np.array([[int(vm[name]) for name in names] for vm in vms], np.int64),
        np.array(capacity, np.int64),
        fixed=np.array([not int(vm["movable"]) for vm in vms]),
        slot=np.array([SLOT, SLOT, 0, 0]),
        slot_weight=np.array([CORE, CORE, 0, 0]),
    )


def rate(problem: Problem, place: Int32Array) -> float:
    """Return the share of free cpu beside slots; ValueError if a host is over."""
    used = np.zeros_like(problem.capacity)
    np.add.at(used, place, problem.demand)
    free = problem.capacity - used
    if free.min() < 0:
        raise ValueError("a NUMA node is over its capacity")
    return float((free[:, :2] % SLOT).sum() / free[:, :2].sum())


def solve(problem: Problem, seconds: float) -> Found:
    """Search for so many seconds of CPU for the moves to make, at most 50."""
    began = time.process_time()

    def gone() -> float:
        return (time.process_time() - began) / (seconds - MARGIN)

    return search_while(problem, gone, heat=HEAT, most=MOST_MOVES)


def most_slots(problem: Problem, seconds: float) -> int:
    """Return how many slots so many moves can leave at most.

    An integer program of its own, which counts VMs of one size and leaves memory out; a VM on one
    NUMA node may go to either. So no plan leaves more, and it shares nothing with the search.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    cpu, start = problem.demand[:, :2].tolist(), problem.start.tolist()
    there: Counter[tuple[int, int, int]] = Counter()  # host, NUMA node or both, cores: how many
    for (one, other), host in zip(cpu, start, strict=True):
        node = BOTH if one and other else 0 if one else 1
        there[host, node, max(one, other)] += 1
    used = np.zeros_like(problem.capacity)
    np.add.at(used, problem.start, problem.demand)
    room = {
        (host, node): [int(problem.capacity[host, node] - used[host, node])]
        for host in range(problem.hosts)
        for node in (0, 1)
    }
    kinds = {(node == BOTH, cores) for _, node, cores in there}
    leaving: list[cp_model.IntVar] = []
    for both, cores in sorted(kinds):
        balance: list[cp_model.LinearExprT] = []
        for host in range(problem.hosts):
            for node in (BOTH,) if both else (0, 1):
                left = model.new_int_var(0, there[host, node, cores], "")
                came = model.new_int_var(0, int(problem.capacity[host].max()) // cores, "")
                leaving.append(left)
                balance.append(came - left)
                for each in (0, 1) if both else (node,):
                    room[host, each].append(cores * (left - came))
        model.add(sum(balance) == 0)
    slots = []
    for (host, node), parts in room.items():
        whole = model.new_int_var(0, int(problem.capacity[host, node]) // SLOT, "")
        model.add(sum(parts) >= SLOT * whole)
        slots.append(whole)
    model.add(sum(leaving) <= MOST_MOVES)
    model.maximize(sum(slots))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    solver.solve(model)
    return int(solver.best_objective_bound + 0.001)


def jobs(data: Path) -> Iterator[Job]:
    """Return the jobs."""
    yield Job("vmr fragment rate", lambda: _row(data / "bytedance-vmr"))
    yield Job("vmr fragment rate, no plan is better", lambda: _least(data / "bytedance-vmr"))


def _row(folder: Path) -> Iterator[Result]:
    row = "vmr fragment rate"
    if not folder.is_dir():
        yield skipped(row, "x", f"{folder} is not there")
        return
    problem = read(folder)
    warm = Search(problem, most=1)
    warm.run(1.0, 50)
    warm.finish()
    found = solve(problem, SECONDS)
    ordered = order(problem, found.moves)
    if ordered.impossible or len(ordered.moves) > MOST_MOVES:
        raise RuntimeError(
            f"{len(ordered.moves)} moves, {len(ordered.impossible)} without an order"
        )
    before, after = rate(problem, problem.start), rate(problem, found.place)
    note = f"{before:.3f} to {after:.3f} by {len(found.moves)} moves; "
    note += f"{found.steps / 1e6:.1f} million trials in 5 s of CPU"
    yield at_most(row, after / before, "x", GOAL, note=note)


def _least(folder: Path) -> Iterator[Result]:
    row = "vmr fragment rate, no plan is better"
    if not folder.is_dir():
        yield skipped(row, "x", f"{folder} is not there")
        return
    if find_spec("ortools") is None:
        yield skipped(row, "x", "needs ortools: pip install 'roost[solver]'")
        return
    problem = read(folder)
    slots = most_slots(problem, PROOF_SECONDS)
    free = int(problem.capacity[:, :2].sum() - problem.demand[:, :2].sum())
    least = (free - SLOT * slots) / free / rate(problem, problem.start)
    note = f"{MOST_MOVES} moves leave at most {slots} slots of {SLOT} in {free:,} free cores"
    yield Result(row, least, "x", note=note)
