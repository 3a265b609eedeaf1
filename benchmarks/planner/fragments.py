"""The row of the VMR snapshot: less free cpu beside 16-core slots, by at most 50 moves in 5 s.

Every NUMA node is a host of the problem. VMs on two nodes stay where they are. The price of a move
is raised or lowered until as many moves as are allowed pay for themselves.
"""

import csv
import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.fleet.layout import Int32Array
from roost.planner.problem import Problem, simple
from roost.planner.search import Search
from roost.planner.waves import order

SLOT, MOST_MOVES, SECONDS, GOAL = 16, 50, 5.0, 0.5
#: Cost of a core beside slots: moves are priced in hundredths of it.
CORE = 100


@dataclass(frozen=True)
class Snapshot:
    """The VMs on one NUMA node as a problem, and the free cpu at the start."""

    problem: Problem
    free: int


def read(folder: Path) -> Snapshot:
    """Read the snapshot; what VMs on two nodes and unmovable ones take stays taken."""
    with gzip.open(folder / "hosts.csv.gz", "rt") as file:
        hosts = list(csv.DictReader(file))
    with gzip.open(folder / "vms.csv.gz", "rt") as file:
        vms = list(csv.DictReader(file))
    row = {host["host"]: number for number, host in enumerate(hosts)}
    capacity = np.array(
        [(int(h[f"cpu{n}"]), int(h[f"mem{n}_mb"])) for h in hosts for n in (0, 1)], np.int64
    )
    base = np.zeros_like(capacity)
    start, demand = [], []
    for vm in vms:
        parts = [(int(vm[f"cpu_numa{n}"]), int(vm[f"mem_numa{n}_mb"])) for n in (0, 1)]
        on = [n for n in (0, 1) if any(parts[n])]
        if len(on) == 1 and int(vm["movable"]):
            start.append(2 * row[vm["host"]] + on[0])
            demand.append(parts[on[0]])
        else:
            for n in on:
                base[2 * row[vm["host"]] + n] += parts[n]
    problem = simple(
        np.array(start, np.int32),
        np.array(demand, np.int64),
        capacity,
        base=base,
        slot=np.array([SLOT, 0]),
        slot_weight=np.array([CORE, 0]),
    )
    return Snapshot(
        problem, int(capacity[:, 0].sum() - base[:, 0].sum() - sum(d[0] for d in demand))
    )


def rate(snapshot: Snapshot, place: Int32Array) -> float:
    """Return the share of free cpu beside slots, from the snapshot alone."""
    used = snapshot.problem.base[:, 0].copy()
    np.add.at(used, place, snapshot.problem.demand[:, 0])
    free = snapshot.problem.capacity[:, 0] - used
    return float((free % SLOT).sum() / free.sum())


def solve(problem: Problem, seconds: float) -> tuple[Int32Array, int]:
    """Search with several prices of a move; return the best with few enough moves."""
    best, lowest, searches = problem.start, None, 0
    began = time.process_time()
    low, high, price = 1, SLOT * CORE, 6 * CORE
    while (gone := (time.process_time() - began) / seconds) < 1.0:
        priced = replace(problem, move_cost=np.full(problem.vms, price, np.int64))
        search = Search(priced, seed=searches, heat=2.0 * CORE)
        share = 0.0
        end = min(1.0, gone + 0.16)
        while (now := (time.process_time() - began) / seconds) < end:
            share = 1 - (end - now) / (end - gone)
            search.run(share)
        found = search.finish()
        searches += 1
        cost = found.cost - price * len(found.moves)
        if len(found.moves) > MOST_MOVES:
            low = price
        else:
            high = price
            if lowest is None or cost < lowest:
                best, lowest = found.place, cost
        price = (low + high) // 2
    return best, searches


def jobs(data: Path) -> Iterator[Job]:
    """Return the job."""
    yield Job("vmr fragment rate", lambda: _row(data / "bytedance-vmr"))


def _row(folder: Path) -> Iterator[Result]:
    row = "vmr fragment rate"
    if not folder.is_dir():
        yield skipped(row, "x", f"{folder} is not there")
        return
    snapshot = read(folder)
    warm = Search(snapshot.problem)
    warm.run(1.0, 50)
    warm.finish()
    place, searches = solve(snapshot.problem, SECONDS)
    moved = np.flatnonzero(place != snapshot.problem.start)
    moves = [(int(vm), int(place[vm])) for vm in moved]
    ordered = order(snapshot.problem, moves)
    before, after = rate(snapshot, snapshot.problem.start), rate(snapshot, place)
    if len(moved) > MOST_MOVES or ordered.impossible:
        raise RuntimeError(
            f"{len(moved)} moves, {len(ordered.impossible)} of them without an order"
        )
    detours = sum(move.detour for move in ordered.moves)
    note = (
        f"{before:.3f} to {after:.3f} with {len(moved) + detours} moves, {searches} searches in 5 s"
    )
    yield at_most(row, after / before, "x", GOAL, note=note)
