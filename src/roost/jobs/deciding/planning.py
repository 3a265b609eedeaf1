"""What a pool should do next, decided by the engine on the pool's own fleet. Pure.

    machines that are ready   -> a fleet of hosts       -> queued jobs in their order are placed
    machines on their way     -> another one            -> what is left is placed there, in thought
    what is still left        -> the cheapest set of machine types, within what the pool may have

A job that finds no room is passed over and those behind it are looked at, so one that is large
blocks nobody; after a minute of that, in a pool that cannot grow, a machine is held for it: others
get nothing there until it fits. Jobs that end within a moment are assigned a little ahead, beyond
what a machine can run at once: its worker starts them when there is room, and a plan for each would
take longer than the job. Nothing here is written; the planner commits what still holds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roost.base.errors import Unavailable
from roost.fleet.fleet import Fleet
from roost.jobs.deciding.experience import NO_EXPERIENCE, Experience, usable
from roost.jobs.deciding.ordering import Queued, Used, Whole, in_order
from roost.model.hosts import HostSpec, Resource
from roost.model.job import Fit, MachineType, Market, Pool
from roost.model.resources import Demand
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine
from roost.providers.mix.problem import MixLimits, Need, Offer

Rows = Sequence[Mapping[str, Any]]
_AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes")
#: States of machines on their way.
COMING = ("pending", "allocating", "allocated")

#: Strategies of the engine by a pool's fit; `next` goes on where the last one was placed.
STRATEGY: Mapping[Fit, str] = {
    "first": "first_fit",
    "next": "round_robin",
    "best": "best_fit",
    "worst": "worst_fit",
}
#: Work that a machine may have ahead, in seconds, and how many times its capacity at most.
AHEAD_S, MOST_AHEAD = 0.5, 32.0
#: After how long a machine is held for a job that others pass.
HOLD_AFTER_S = 60.0
#: Jobs of one plan: more are the next one's.
MOST_PLANNED = 200_000


@dataclass(slots=True)
class Plan:
    """Which jobs go where, which machines are wanted, and what found nothing."""

    assigned: Counter[tuple[str, str]] = field(default_factory=Counter)  # (machine, array)
    ahead: Counter[tuple[str, str]] = field(default_factory=Counter)
    wanted: list[tuple[MachineType, Market]] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)  # of what is wanted; empty: anywhere
    left: Counter[str] = field(default_factory=Counter)  # jobs of arrays without room
    coming: Counter[str] = field(default_factory=Counter)  # of those, on machines on their way
    refused: str = ""  # what a provider said of types that are left alone for a while

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
    known: Experience = NO_EXPERIENCE,
) -> Plan:
    """Return what a pool should do next; `room` is what it may still rent.

    Of `types`, which are as providers describe them, jobs count on what is `known` to come.
    """
    plan = Plan()
    ready: Rows = [row for row in machines if row["state"] == "ready"]
    coming = [row for row in machines if row["state"] in COMING]
    more = max(0, pool.max_machines - len(machines))
    if room.machines is not None:
        more = min(more, room.machines)
    if queued and not more and not coming:
        ready, queued = hold(plan, ready, queued)
    if queued:
        whole = whole_of(machines, types)
        real = usable(types, known)
        slots = _slots(ready, coming, [form for _, form in real], more, queued)
        picks = _picks(plan, pool, queued, whole, used, slots)
        left = _assign(plan, pool, ready, picks)
        left = _place_ahead(plan, pool, ready, left)
        for array, number in left:
            plan.left[array.array] += number
        beyond = _place_coming(plan, coming, left) if left else []
        if beyond and more and types:
            limits = MixLimits(more, room.cpu_milli, room.budget_micro)
            _want(plan, pool, machines, real, limits, beyond)
    _keep_warm(plan, pool, ready, coming, machines, types)
    return plan


def hold(plan: Plan, ready: Rows, queued: Sequence[Queued]) -> tuple[Rows, Sequence[Queued]]:
    """Hold a machine for the job that was passed for longest; return what others may have.

    One job and one machine at a time: one that has room now, else the one of which least is taken,
    so that it is free soonest as far as anybody knows. It is chosen anew with every plan; nothing
    new goes there meanwhile.
    """
    passed = [each for each in queued if each.waits_s >= HOLD_AFTER_S]
    for each in sorted(passed, key=lambda each: (-each.priority, -each.waits_s, each.array)):
        asked = {name: getattr(each, name) for name in _AMOUNTS}
        large = [row for row in ready if all(row[f"{n}_capacity"] >= a for n, a in asked.items())]
        if not large:
            continue
        ranks = [(not has_room(row, asked), _taken(row), row["id"]) for row in large]
        rank, held = min(zip(ranks, large, strict=True), key=lambda pair: pair[0])
        if not rank[0]:
            plan.assigned[held["id"], each.array] += 1
        else:
            plan.left[each.array] += 1
        others = [replace(q, number=q.number - 1) if q is each else q for q in queued]
        return [row for row in ready if row is not held], [q for q in others if q.number]
    return ready, queued


def has_room(row: Mapping[str, Any], asked: Mapping[str, int]) -> bool:
    """Say whether a machine could take one more job of these amounts now."""
    more = {**asked, "attempts": 1}
    return all(row[f"{n}_capacity"] - row[f"{n}_committed"] >= a for n, a in more.items())


def _taken(row: Mapping[str, Any]) -> float:
    """Return the largest share of a machine's amounts that is promised."""
    shares: list[float] = [row[f"{n}_committed"] / max(1, row[f"{n}_capacity"]) for n in _AMOUNTS]
    return max(shares)


def whole_of(machines: Rows, types: Sequence[MachineType]) -> Whole:
    """Return what shares are of: all machines of a pool, or one of its largest type."""
    cpu = sum(row["cpu_milli_capacity"] for row in machines)
    memory = sum(row["memory_bytes_capacity"] for row in machines)
    if not machines:
        cpu = max((each.cpu_milli for each in types), default=1)
        memory = max((each.memory_bytes for each in types), default=1)
    return Whole(max(1, cpu), max(1, memory))


Amounts = tuple[int, int, int]


def _slots(
    ready: Rows, coming: Rows, types: Sequence[MachineType], more: int, queued: Sequence[Queued]
) -> dict[Amounts, int]:
    """Return of each demand how many can be placed at most, and no more than are queued.

    A long queue is not looked at for nothing, and what has no place keeps nobody behind it back.
    """
    rows = (*ready, *coming)
    free = np.array(
        [[r[f"{name}_capacity"] - r[f"{name}_committed"] for name in _AMOUNTS] for r in rows],
        np.int64,
    ).reshape(-1, 3)
    attempts = np.array([r["attempts_capacity"] - r["attempts_committed"] for r in rows], np.int64)
    kinds = np.array(
        [(t.cpu_milli, t.memory_bytes, t.disk_bytes) for t in types], np.int64
    ).reshape(-1, 3)
    number: Counter[Amounts] = Counter()
    ahead: set[Amounts] = set()
    for each in queued:
        number[_demand(each)] += each.number
        if _factor(each) > 1:
            ahead.add(_demand(each))
    found: dict[Amounts, int] = {}
    for demand, queued_number in number.items():
        slots = int(np.minimum(_times(free, demand), attempts).clip(min=0).sum())
        if demand in ahead:
            slots += int(attempts[: len(ready)].clip(min=0).sum())
        if more and len(kinds):
            slots += more * int(_times(kinds, demand).max())
        found[demand] = min(slots, queued_number)
    return found


def _demand(each: Queued) -> Amounts:
    return each.cpu_milli, each.memory_bytes, each.disk_bytes


def _times(room: np.ndarray[Any, Any], demand: Amounts) -> np.ndarray[Any, Any]:
    """Return how many times a demand fits into each row of amounts."""
    asked = [place for place in range(3) if demand[place]]
    if not asked:
        return np.full(len(room), MOST_PLANNED, np.int64)
    times: np.ndarray[Any, Any] = room[:, asked] // np.array([demand[place] for place in asked])
    least: np.ndarray[Any, Any] = times.min(axis=1).clip(min=0)
    return least


def _picks(
    plan: Plan,
    pool: Pool,
    queued: Sequence[Queued],
    whole: Whole,
    used: Used,
    slots: Mapping[Amounts, int],
) -> list[tuple[Queued, int]]:
    """Return in order which jobs are tried; those of which none can be placed are left at once."""
    open_slots = {demand: number for demand, number in slots.items() if number}
    for each in queued:
        if not slots[_demand(each)]:
            plan.left[each.array] += each.number
    able = [each for each in queued if slots[_demand(each)]]
    found: list[tuple[Queued, int]] = []
    most = MOST_PLANNED
    for array, number in in_order(able, pool.ordering, whole, used):
        if most <= 0 or not open_slots:
            break
        demand = _demand(array)
        taken = min(number, most, open_slots.get(demand, 0))
        if not taken:
            continue
        most -= taken
        open_slots[demand] -= taken
        if not open_slots[demand]:
            del open_slots[demand]
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
    taken, left = _tally(picks, rows, [row["id"] for row in ready])
    plan.assigned.update(taken)
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
    types: Sequence[tuple[MachineType, MachineType]],
    limits: MixLimits,
    beyond: Sequence[tuple[Queued, int]],
) -> None:
    """Want the cheapest machines that hold what is left, of types as they are called and are."""
    demands: Counter[tuple[int, int, int]] = Counter()
    for array, number in beyond:
        demands[array.cpu_milli, array.memory_bytes, array.disk_bytes] += number
    needs = [Need(Demand(*amounts), number) for amounts, number in demands.items()]
    needs = [need for need in needs if any(real.holds(need.demand) for _, real in types)]
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
    found = cheapest_mix(needs, [Offer(real, market) for _, real in types], limits)
    for filled in found.filled:
        for _ in range(filled.machines):
            called, _ = types[filled.offer]
            plan.wanted.append((called, next_market(pool, machines, plan.wanted)))


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
        pool.min_machines - staying(machines) - len(plan.wanted),
        pool.warm - idle - spare,
    )
    room = pool.max_machines - len(machines) - len(plan.wanted)
    cheapest = min(types, key=lambda each: (each.price(pool.market), each.name))
    for _ in range(max(0, min(short, room))):
        plan.wanted.append((cheapest, next_market(pool, machines, plan.wanted)))


def staying(machines: Rows) -> int:
    """Count the machines that a pool has or soon will, without those on their way back.

    The latter are rented still, so they count against every limit, and for no least number.
    """
    return sum(row["state"] not in ("draining", "returning") for row in machines)


def next_market(pool: Pool, machines: Rows, wanted: Sequence[tuple[MachineType, Market]]) -> Market:
    """Return on which market the next machine is rented: the base is on demand."""
    if pool.market == "on_demand":
        return "on_demand"
    steady = sum(row["market"] == "on_demand" for row in machines)
    steady += sum(market == "on_demand" for _, market in wanted)
    return "on_demand" if steady < pool.on_demand_base else pool.market
