"""The row of the VMR snapshot: less free cpu beside 16-core slots, by at most 50 moves in 5 s.

A VM on one NUMA node stays on the node of that number, one on two nodes on both. Several prices of
a move are tried; of the moves that pay for themselves the most worthwhile 50 are kept.
"""

import csv
import gzip
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.fleet.layout import Int32Array
from roost.planner.layout import cost_of
from roost.planner.problem import Problem, Step, simple
from roost.planner.search import Search
from roost.planner.waves import order

SLOT, MOST_MOVES, SECONDS, GOAL = 16, 50, 5.0, 0.5
#: Cost of a core beside slots, and the prices of a move that are tried.
CORE = 100
PRICES = (920, 900, 890, 870)
HEAT = 1.5 * CORE


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


def few(problem: Problem, moves: tuple[Step, ...]) -> Int32Array:
    """Return where the VMs are after the moves that gain most for their number, at most 50.

    Moves whose hosts hang together are made all or none, so what is kept fits.
    """
    part = list(range(problem.hosts))

    def root(host: int) -> int:
        while part[host] != host:
            part[host] = part[part[host]]
            host = part[host]
        return host

    for vm, host in moves:
        part[root(host)] = root(int(problem.start[vm]))
    together: dict[int, list[Step]] = {}
    for vm, host in moves:
        together.setdefault(root(host), []).append((vm, host))
    before = cost_of(problem, problem.start)

    def gain(steps: list[Step]) -> int:
        place = problem.start.copy()
        for vm, host in steps:
            place[vm] = host
        return before - cost_of(problem, place)

    worth = sorted(((gain(steps) / len(steps), steps) for steps in together.values()), reverse=True)
    place, left = problem.start.copy(), MOST_MOVES
    for each, steps in worth:
        if each > 0 and len(steps) <= left:
            left -= len(steps)
            for vm, host in steps:
                place[vm] = host
    return place


def solve(problem: Problem, seconds: float) -> tuple[Int32Array, int]:
    """Search with several prices of a move; return the best with few enough moves."""
    best, lowest, searches = problem.start, cost_of(problem, problem.start), 0
    began = time.process_time()
    while (gone := (time.process_time() - began) / seconds) < 0.95:
        price = PRICES[searches % len(PRICES)]
        priced = replace(problem, move_cost=np.full(problem.vms, price, np.int64))
        search = Search(priced, seed=searches, heat=HEAT)
        end = min(1.0, gone + 1 / len(PRICES))
        while (now := (time.process_time() - began) / seconds) < end:
            search.run(1 - (end - now) / (end - gone))
        place = few(problem, search.finish().moves)
        searches += 1
        if (cost := cost_of(problem, place)) < lowest:
            best, lowest = place, cost
    return best, searches


def jobs(data: Path) -> Iterator[Job]:
    """Return the job."""
    yield Job("vmr fragment rate", lambda: _row(data / "bytedance-vmr"))


def _row(folder: Path) -> Iterator[Result]:
    row = "vmr fragment rate"
    if not folder.is_dir():
        yield skipped(row, "x", f"{folder} is not there")
        return
    problem = read(folder)
    warm = Search(problem)
    warm.run(1.0, 50)
    warm.finish()
    place, searches = solve(problem, SECONDS)
    moves = [(int(vm), int(place[vm])) for vm in np.flatnonzero(place != problem.start)]
    ordered = order(problem, moves)
    if ordered.impossible or len(ordered.moves) > MOST_MOVES:
        raise RuntimeError(
            f"{len(ordered.moves)} moves, {len(ordered.impossible)} without an order"
        )
    before, after = rate(problem, problem.start), rate(problem, place)
    note = f"{before:.3f} to {after:.3f} by {len(moves)} moves; {searches} searches in 5 s of CPU"
    yield at_most(row, after / before, "x", GOAL, note=note)
