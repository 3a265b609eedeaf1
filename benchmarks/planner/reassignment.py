"""Instances of the ROADEF/EURO 2012 machine reassignment: read, checked, and as a problem.

The checker follows the challenge's rules from the instance alone and shares nothing with the
search: it is what a row's cost is taken from.
"""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from roost.fleet.layout import Int32Array, Int64Array
from roost.planner.problem import APART, COUNTED, WIDE, Problem, simple

INSTANCES = ("a1_1", "a1_2", "a1_3", "a1_4", "a1_5", "a2_1", "a2_2", "a2_3", "a2_4", "a2_5")


@dataclass(frozen=True)
class Instance:
    """An instance as its two files say it."""

    transient: npt.NDArray[np.bool_]
    load_weight: Int64Array
    neighbourhood: Int32Array
    location: Int32Array
    capacity: Int64Array
    safety: Int64Array
    way_cost: Int64Array
    spread_min: list[int]
    needs: list[list[int]]
    service: Int32Array
    demand: Int64Array
    move_cost: Int64Array
    balances: list[tuple[int, int, int, int]]
    weights: tuple[int, int, int]
    start: Int32Array


def read(folder: Path, name: str) -> Instance:
    """Read an instance."""
    with gzip.open(folder / f"model_{name}.txt.gz", "rt") as file:
        numbers = iter(np.array(file.read().split(), np.int64).tolist())

    def take(count: int) -> list[int]:
        return [next(numbers) for _ in range(count)]

    resources = next(numbers)
    about = np.array(take(2 * resources)).reshape(resources, 2)
    machines = next(numbers)
    rows = np.array(take(machines * (2 + 2 * resources + machines)), np.int64)
    rows = rows.reshape(machines, -1)
    spread_min, needs = [], []
    for _ in range(next(numbers)):
        least, count = take(2)
        spread_min.append(least)
        needs.append(take(count))
    processes = next(numbers)
    each = np.array(take(processes * (2 + resources)), np.int64).reshape(processes, -1)
    balances = []
    for _ in range(next(numbers)):
        one, other, target, weight = take(4)
        balances.append((one, other, target, weight))
    with gzip.open(folder / f"assignment_{name}.txt.gz", "rt") as file:
        start = np.array(file.read().split(), np.int32)
    process, service, machine = take(3)
    return Instance(
        transient=about[:, 0].astype(np.bool_),
        load_weight=about[:, 1].copy(),
        neighbourhood=rows[:, 0].astype(np.int32),
        location=rows[:, 1].astype(np.int32),
        capacity=rows[:, 2 : 2 + resources].copy(),
        safety=rows[:, 2 + resources : 2 + 2 * resources].copy(),
        way_cost=rows[:, 2 + 2 * resources :].copy(),
        spread_min=spread_min,
        needs=needs,
        service=each[:, 0].astype(np.int32),
        demand=each[:, 1:-1].copy(),
        move_cost=each[:, -1].copy(),
        balances=balances,
        weights=(process, service, machine),
        start=start,
    )


def published(folder: Path) -> dict[str, dict[str, int]]:
    """Read the published costs by instance."""
    with (folder / "costs.csv").open() as file:
        return {
            row["instance"]: {key: int(value) for key, value in row.items() if key != "instance"}
            for row in csv.DictReader(file)
        }


def as_problem(instance: Instance) -> Problem:
    """Say an instance in the planner's form."""
    process, service, machine = instance.weights
    hosts = len(instance.capacity)
    domain = np.stack([np.arange(hosts), instance.location, instance.neighbourhood], axis=1).astype(
        np.int32
    )
    services = len(instance.spread_min)
    of = [np.flatnonzero(instance.service == s).astype(np.int32) for s in range(services)]
    groups: list[tuple[int, int, int, int]] = []
    members: list[Int32Array] = []
    away_group = np.full(len(instance.service), -1, np.int32)
    counted: dict[int, int] = {}
    linked = {s for s, needed in enumerate(instance.needs) if needed}
    linked |= {s for needed in instance.needs for s in needed}
    for s in range(services):
        away_group[of[s]] = len(groups)
        groups.append((APART, 0, 1, 0))
        members.append(of[s])
        if instance.spread_min[s] > 1:
            groups.append((WIDE, 1, instance.spread_min[s], 0))
            members.append(of[s])
        if s in linked:
            counted[s] = len(groups)
            groups.append((COUNTED, 2, 0, 0))
            members.append(of[s])
    needs = [(counted[s], counted[t]) for s, needed in enumerate(instance.needs) for t in needed]
    return simple(
        instance.start,
        instance.demand,
        instance.capacity,
        transient=instance.transient,
        safety=instance.safety,
        load_weight=instance.load_weight,
        pairs=np.array(instance.balances, np.int64).reshape(-1, 4),
        move_cost=process * instance.move_cost,
        way_cost=machine * instance.way_cost,
        away_weight=service,
        away_group=away_group,
        domain=domain,
        groups=np.array(groups, np.int64).reshape(-1, 4),
        member_start=np.cumsum([0, *(len(m) for m in members)]).astype(np.int64),
        members=np.concatenate(members),
        needs=np.array(needs, np.int32).reshape(-1, 2),
    )


def checked_cost(instance: Instance, place: Int32Array) -> int:
    """Return the cost of an assignment by the challenge's rules; ValueError if it breaks one."""
    machines, resources = instance.capacity.shape
    used = [[0] * resources for _ in range(machines)]
    kept = [[0] * resources for _ in range(machines)]
    for p, at in enumerate(place.tolist()):
        here = int(instance.start[p])
        for r in range(resources):
            amount = int(instance.demand[p, r])
            used[at][r] += amount
            kept[at][r] += amount
            if here != at and instance.transient[r]:
                kept[here][r] += amount
    if any(kept[m][r] > instance.capacity[m, r] for m in range(machines) for r in range(resources)):
        raise ValueError("a machine is over its capacity")
    of: dict[int, list[int]] = {}
    for p, s in enumerate(instance.service.tolist()):
        of.setdefault(s, []).append(int(place[p]))
    for s, at in of.items():
        if len(set(at)) != len(at):
            raise ValueError(f"two processes of service {s} share a machine")
        if len({int(instance.location[m]) for m in at}) < instance.spread_min[s]:
            raise ValueError(f"service {s} is in too few locations")
    around = {s: {int(instance.neighbourhood[m]) for m in at} for s, at in of.items()}
    for s, needed in enumerate(instance.needs):
        for t in needed:
            if not around.get(s, set()) <= around.get(t, set()):
                raise ValueError(f"service {s} is where service {t} is not")
    cost = 0
    for m in range(machines):
        for r in range(resources):
            over = used[m][r] - int(instance.safety[m, r])
            cost += int(instance.load_weight[r]) * max(0, over)
        for one, other, target, weight in instance.balances:
            free_one = int(instance.capacity[m, one]) - used[m][one]
            free_other = int(instance.capacity[m, other]) - used[m][other]
            cost += weight * max(0, target * free_one - free_other)
    process, service, machine = instance.weights
    gone: dict[int, int] = {}
    for p, at in enumerate(place.tolist()):
        here = int(instance.start[p])
        if at != here:
            cost += process * int(instance.move_cost[p])
            cost += machine * int(instance.way_cost[here, at])
            gone[int(instance.service[p])] = gone.get(int(instance.service[p]), 0) + 1
    return cost + service * max(gone.values(), default=0)
