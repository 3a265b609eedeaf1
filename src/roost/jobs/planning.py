"""What a pool should do next, decided by the engine on the pool's own fleet. Pure.

    machines that are ready   -> a fleet of hosts       -> queued jobs in their order are placed
    machines on their way     -> another one            -> what is left is placed there, in thought
    what is still left        -> the cheapest set of machine types, within what the pool may have

A job that finds no room is passed over and those behind it are looked at, so one that is large
blocks nobody. Jobs that end within a moment are assigned a little ahead, beyond what a machine can
run at once: its worker starts them when there is room, and a plan for each would take longer than
the job. Nothing here is written; the planner commits what still holds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roost.base.errors import Unavailable
from roost.fleet.fleet import Fleet
from roost.jobs.ordering import Queued, Used, Whole, in_order
from roost.model.hosts import HostSpec, Resource
from roost.model.job import Fit, MachineType, Market, Pool
from roost.model.resources import Demand
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine
from roost.providers.mix.problem import MixLimits, Need, Offer

Rows = Sequence[Mapping[str, Any]]

#: Strategies of the engine by a pool's fit; `next` goes on where the last one was placed.
STRATEGY: Mapping[Fit, str] = {
    "first": "first_fit",
    "next": "round_robin",
    "best": "best_fit",
    "worst": "worst_fit",
}
#: Work that a machine may have ahead, in seconds, and how many times its capacity at most.
AHEAD_S, MOST_AHEAD = 0.5, 32.0
#: Jobs of one plan: more are the next one's.
MOST_PLANNED = 200_000


@dataclass(slots=True)
class Plan:
    """Which jobs go where, which machines are wanted, and what found nothing."""

    assigned: Counter[tuple[str, str]] = field(default_factory=Counter)  # (machine, array)
    ahead: Counter[tuple[str, str]] = field(default_factory=Counter)
    wanted: list[tuple[MachineType, Market]] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)  # jobs of arrays without room
    coming: Counter[str] = field(default_factory=Counter)  # of those, on machines on their way

    @property
    def machines(self) -> set[str]:
        """Return the machines that get something."""
        return {machine for machine, _ in (*self.assigned, *self.ahead)}


def board(machines: Rows, factor: float = 1.0) -> Engine:
    """Return an engine on machines as hosts; `factor` times what they have may be assigned."""
    ratio = round(1000 * factor)
    specs = [
        HostSpec(
            name=row["id"],
            cpu=Resource(row["cpu_milli_capacity"], ratio_milli=ratio),
            memory=Resource(row["memory_bytes_capacity"], ratio_milli=ratio),
            disk=Resource(row["disk_bytes_capacity"], ratio_milli=ratio),
            # What is committed is charged as one VM.
            max_vms=max(0, row["attempts_capacity"] - row["attempts_committed"]) + 1,
        )
        for row in machines
    ]
    fleet = Fleet()
    fleet.register_plain(specs)
    if specs:
        taken = np.zeros((len(specs), len(fleet.hosts.resources)), np.int64)
        for place, row in enumerate(machines):
            taken[place, :3] = (
                row["cpu_milli_committed"],
                row["memory_bytes_committed"],
                row["disk_bytes_committed"],
            )
        names = [f"committed/{row['id']}" for row in machines]
        fleet.charge_many(names, np.arange(len(specs), dtype=np.int32), taken)
    return Engine(fleet)


def place(engine: Engine, demand: np.ndarray[Any, Any], fit: Fit) -> list[int]:
    """Place jobs in turn; return each one's machine by number, -1 where none has room."""
    count = len(demand)
    if not count or not len(engine.fleet):
        return [-1] * count
    none = np.zeros(count, np.int32)
    columns = RequestColumns(demand, none, none, np.zeros(0, np.int64))
    if fit != "next":
        return [int(row) for row in engine.place_columns(columns, STRATEGY[fit]).row]
    found: list[int] = []
    last = 0
    for index in range(count):
        engine.cursor = last - 1  # the one that took the last job is asked first
        row = int(engine.place_columns(columns.part(index, index + 1), "round_robin").row[0])
        found.append(row)
        last = row if row >= 0 else last
    return found


def plan_pool(
    pool: Pool,
    machines: Rows,
    queued: Sequence[Queued],
    used: Used,
    types: Sequence[MachineType],
    room: MixLimits,
) -> Plan:
    """Return what a pool should do next; `room` is what it may still rent."""
    plan = Plan()
    ready = [row for row in machines if row["state"] == "ready"]
    coming = [row for row in machines if row["state"] in ("pending", "allocating", "allocated")]
    more = max(0, pool.max_machines - len(machines))
    if room.machines is not None:
        more = min(more, room.machines)
    if queued:
        whole = _whole(machines, types)
        picks = _picks(pool, queued, whole, used, _most(ready, coming, types, more, queued))
        left = _assign(plan, pool, ready, picks)
        left = _place_ahead(plan, pool, ready, left)
        for array, number in left:
            plan.left[array.array] += number
        beyond = _place_coming(plan, coming, left) if left else []
        if beyond and more and types:
            limits = MixLimits(more, room.cpu_milli, room.budget_micro)
            _want(plan, pool, machines, types, limits, beyond)
    _keep_warm(plan, pool, ready, coming, machines, types)
    return plan


def _whole(machines: Rows, types: Sequence[MachineType]) -> Whole:
    """Return what shares are of: all machines of a pool, or one of its largest type."""
    cpu = sum(row["cpu_milli_capacity"] for row in machines)
    memory = sum(row["memory_bytes_capacity"] for row in machines)
    if not machines:
        cpu = max((each.cpu_milli for each in types), default=1)
        memory = max((each.memory_bytes for each in types), default=1)
    return Whole(max(1, cpu), max(1, memory))


def _most(
    ready: Rows, coming: Rows, types: Sequence[MachineType], more: int, queued: Sequence[Queued]
) -> int:
    """Return how many jobs can be placed at most: a long queue is not looked at for nothing."""
    least_cpu = max(1, min(each.cpu_milli for each in queued))
    least_memory = max(1, min(each.memory_bytes for each in queued))

    def slots(cpu: int, memory: int) -> int:
        return max(0, min(cpu // least_cpu, memory // least_memory))

    free = sum(
        slots(
            row["cpu_milli_capacity"] - row["cpu_milli_committed"],
            row["memory_bytes_capacity"] - row["memory_bytes_committed"],
        )
        for row in (*ready, *coming)
    )
    if any(_factor(each) > 1 for each in queued):
        free += sum(row["attempts_capacity"] - row["attempts_committed"] for row in ready)
    grown = more * max((slots(t.cpu_milli, t.memory_bytes) for t in types), default=0)
    return min(MOST_PLANNED, free + grown)


def _picks(
    pool: Pool, queued: Sequence[Queued], whole: Whole, used: Used, most: int
) -> list[tuple[Queued, int]]:
    found: list[tuple[Queued, int]] = []
    for array, number in in_order(queued, pool.ordering, whole, used):
        if most <= 0:
            break
        taken = min(number, most)
        most -= taken
        if found and found[-1][0] is array:
            found[-1] = array, found[-1][1] + taken
        else:
            found.append((array, taken))
    return found


def _columns(picks: Sequence[tuple[Queued, int]]) -> np.ndarray[Any, Any]:
    kinds = np.array(
        [(each.cpu_milli, each.memory_bytes, each.disk_bytes) for each, _ in picks], np.int64
    ).reshape(-1, 3)
    return np.repeat(kinds, [number for _, number in picks], axis=0)


def _tally(
    picks: Sequence[tuple[Queued, int]], rows: Sequence[int], names: Sequence[str]
) -> tuple[Counter[tuple[str, str]], list[tuple[Queued, int]]]:
    """Return how many of each array each machine takes, and what is left, in order."""
    taken: Counter[tuple[str, str]] = Counter()
    left: list[tuple[Queued, int]] = []
    at = 0
    for array, number in picks:
        here = Counter(rows[at : at + number])
        at += number
        for row, count in here.items():
            if row < 0:
                left.append((array, count))
            else:
                taken[names[row], array.array] += count
    return taken, left


def _assign(
    plan: Plan, pool: Pool, ready: Rows, picks: Sequence[tuple[Queued, int]]
) -> list[tuple[Queued, int]]:
    rows = place(board(ready), _columns(picks), pool.fit) if picks else []
    plan.assigned, left = _tally(picks, rows, [row["id"] for row in ready])
    return left


def _factor(array: Queued) -> float:
    """Return how many times its capacity a machine may have of such jobs."""
    return (
        min(MOST_AHEAD, 1.0 + AHEAD_S / max(array.run_s, 0.001)) if array.run_s < AHEAD_S else 1.0
    )


def _place_ahead(
    plan: Plan, pool: Pool, ready: Rows, left: list[tuple[Queued, int]]
) -> list[tuple[Queued, int]]:
    short = [(array, number) for array, number in left if _factor(array) > 1]
    if not short or not ready:
        return left
    factor = min(_factor(array) for array, _ in short)
    taken = Counter[str]()
    amounts = {array.array: array for array, _ in short}
    rows = []
    for row in ready:
        mine = [(a, n) for (m, a), n in plan.assigned.items() if m == row["id"]]
        more = dict.fromkeys(("cpu_milli", "memory_bytes", "disk_bytes"), 0)
        for array, number in mine:
            if (asked := amounts.get(array)) is None:
                more["cpu_milli"] = row["cpu_milli_capacity"] * int(MOST_AHEAD)  # long ones: none
                break
            for name in more:
                more[name] += number * getattr(asked, name)
        taken[row["id"]] = sum(number for _, number in mine)
        rows.append(
            {
                **row,
                **{f"{name}_committed": row[f"{name}_committed"] + more[name] for name in more},
                "attempts_committed": row["attempts_committed"] + taken[row["id"]],
            }
        )
    found = place(board(rows, factor), _columns(short), "worst")
    plan.ahead, still = _tally(short, found, [row["id"] for row in ready])
    return [*(each for each in left if _factor(each[0]) <= 1), *still]


def _place_coming(
    plan: Plan, coming: Rows, left: Sequence[tuple[Queued, int]]
) -> list[tuple[Queued, int]]:
    if not coming:
        return list(left)
    rows = place(board(coming), _columns(left), "best")
    taken, beyond = _tally(left, rows, [row["id"] for row in coming])
    for (_, array), number in taken.items():
        plan.coming[array] += number
    return beyond


def _want(
    plan: Plan,
    pool: Pool,
    machines: Rows,
    types: Sequence[MachineType],
    limits: MixLimits,
    beyond: Sequence[tuple[Queued, int]],
) -> None:
    """Want the cheapest machines that hold what is left."""
    demands: Counter[tuple[int, int, int]] = Counter()
    for array, number in beyond:
        demands[array.cpu_milli, array.memory_bytes, array.disk_bytes] += number
    needs = [Need(Demand(*amounts), number) for amounts, number in demands.items()]
    needs = [need for need in needs if any(each.holds(need.demand) for each in types)]
    if not needs:
        return
    # Its solver takes a second to import, and most control planes never rent a machine.
    try:
        from roost.providers.mix.program import cheapest_mix
    except ModuleNotFoundError as missing:
        raise Unavailable(
            "which machines to rent for jobs is found with OR-Tools, which is not installed",
            hint="Maybe pip install 'roost[solver]' where the control plane runs.",
        ) from missing

    market = next_market(pool, machines, ())
    found = cheapest_mix(needs, [Offer(each, market) for each in types], limits)
    for filled in found.filled:
        for _ in range(filled.machines):
            plan.wanted.append((types[filled.offer], next_market(pool, machines, plan.wanted)))


def _keep_warm(
    plan: Plan,
    pool: Pool,
    ready: Rows,
    coming: Rows,
    machines: Rows,
    types: Sequence[MachineType],
) -> None:
    """Want machines up to the pool's least number, and up to the idle ones that it keeps."""
    if not types:
        return
    empty = {row["id"] for row in ready if row["attempts_committed"] == 0}
    idle = len(empty - plan.machines)
    spare = max(0, len(coming) + len(plan.wanted) - (1 if plan.left else 0))
    short = max(
        pool.min_machines - len(machines) - len(plan.wanted),
        pool.warm - idle - spare,
    )
    room = pool.max_machines - len(machines) - len(plan.wanted)
    cheapest = min(types, key=lambda each: (each.price(pool.market), each.name))
    for _ in range(max(0, min(short, room))):
        plan.wanted.append((cheapest, next_market(pool, machines, plan.wanted)))


def next_market(pool: Pool, machines: Rows, wanted: Sequence[tuple[MachineType, Market]]) -> Market:
    """Return on which market the next machine is rented: the base is on demand."""
    if pool.market == "on_demand":
        return "on_demand"
    steady = sum(row["market"] == "on_demand" for row in machines)
    steady += sum(market == "on_demand" for _, market in wanted)
    return "on_demand" if steady < pool.on_demand_base else pool.market
