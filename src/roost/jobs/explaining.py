"""Why a job is not running: the true cause first, each in a sentence with its numbers.

A queued job is looked at as the planner looks at it, by the same functions: which machines have
room, which are held for another job, what pool and account may still rent, who comes first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, select

from roost.base.timestamps import timestamp
from roost.base.units import format_bytes, format_cpu
from roost.jobs.deciding.experience import NO_EXPERIENCE, Experience, holding, usable
from roost.jobs.deciding.ordering import Queued, in_order
from roost.jobs.deciding.planning import Plan, has_room, hold, next_market, whole_of
from roost.jobs.queue import read_queued, read_used
from roost.jobs.rented import live_machines, read_experience
from roost.jobs.rows import pool_of, shown_name
from roost.ledger.schema.jobtables import accounts, job_arrays, job_links, machines, pools
from roost.ledger.writes.statements import find_row
from roost.model.job import MachineType, Pool
from roost.wire.jobs import ExplainBody

_A = job_arrays.c
_AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes")
#: Turns of others that are counted: with more of them a job waits long enough.
_MOST_TURNS = 10_000

Row = Mapping[str, Any]
Causes = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A queued job's array and what its pool has."""

    own: Row
    pool: Pool
    row: Row  # the pool's
    account: Row | None
    machines: Sequence[Row]
    types: Sequence[MachineType]  # that the pool may rent, as far as this process knows
    queued: Sequence[Queued]
    used: Mapping[str, tuple[int, int]]
    known: Experience  # what the pool's machines came with

    @property
    def ready(self) -> list[Row]:
        return [row for row in self.machines if row["state"] == "ready"]

    @property
    def coming(self) -> list[Row]:
        return [r for r in self.machines if r["state"] in ("pending", "allocating", "allocated")]

    @property
    def asked(self) -> dict[str, int]:
        return {name: self.own[name] for name in _AMOUNTS}


def explain(
    connection: Connection, row: Row, own: Row, now_ms: int, types: Sequence[MachineType]
) -> ExplainBody:
    """Return why a job is where it is; `types` are those that its pool may rent."""
    name = shown_name(row["array"], row["idx"], own["size"])
    state = row["state"]
    if state != "queued":
        cause, said = _not_queued(connection, row, own)
        return ExplainBody(job=name, state=state, cause=cause, sentences=said)
    found: Causes = []
    if row["not_before_ms"] > now_ms:
        found.append(
            (
                "back_off",
                f"it waits until {timestamp(row['not_before_ms'])} because its last attempt ended "
                f"with {row['reason']}",
            )
        )
    pool_row = find_row(connection, pools, {"name": own["pool"]})
    if pool_row is None:
        return ExplainBody(
            job=name, state=state, cause="pool_limit", sentences=["its pool is gone"]
        )
    seen = _see(connection, own, pool_row, now_ms, types)
    before = _before(seen)
    found += _causes(seen, before)
    if not found:
        found.append(("none", "there is room; it is assigned with the next plan"))
    return ExplainBody(
        job=name,
        state=state,
        cause=found[0][0],
        sentences=[said for _, said in found],
        before=before,
    )


def _see(
    connection: Connection, own: Row, pool_row: Row, now_ms: int, types: Sequence[MachineType]
) -> _Seen:
    pool = pool_of(pool_row["spec"])
    rows = [dict(each) for each in connection.execute(live_machines(pool.name)).mappings()]
    account = find_row(connection, accounts, {"name": pool.account}) if pool.account else None
    queued = read_queued(connection, now_ms, pool.name).get(pool.name, [])
    used = read_used(connection, pool.name).get(pool.name, {})
    known = read_experience(connection, now_ms, pool.name).get(pool.name, {})
    return _Seen(own, pool, pool_row, account, rows, types, queued, used, known)


def _not_queued(connection: Connection, row: Row, own: Row) -> tuple[str, list[str]]:
    state = row["state"]
    if state == "waiting":
        open_needs = (
            select(_A.id)
            .join(job_links, job_links.c.needs == _A.id)
            .where(job_links.c.array == own["id"], _A.finished_ms.is_(None))
        )
        names = [str(each[0]) for each in connection.execute(open_needs)]
        return "needs", [f"it waits for {', '.join(names)} to end"]
    if state == "scheduled":
        return "starting", [
            f"it is assigned to {row['machine']}, which has not begun it yet",
            *_leaves(connection, row["machine"]),
        ]
    if state == "running":
        return "none", [f"it runs on {row['machine']}", *_leaves(connection, row["machine"])]
    if state == "cancelling":
        return "none", [f"{row['machine']} was told to end it"]
    why = f" ({row['reason']}: {row['message']})" if row["reason"] else ""
    return "none", [f"it has ended: {state}{why}"]


def _leaves(connection: Connection, machine: str) -> list[str]:
    """Return what is said of a machine that takes nothing new."""
    row = find_row(connection, machines, {"id": machine})
    if row is None or row["state"] != "draining":
        return []
    return [f"{machine} takes no further job and is given back then: {row['reason']}"]


def _causes(seen: _Seen, before: int) -> Causes:
    """Return what a queued job waits for, the most telling first."""
    held = _held(seen)
    has_place = any(has_room(row, seen.asked) for row in seen.ready if row["id"] not in held)
    fairness, order = _turns(seen, before)
    if has_place:
        return fairness + order
    found = _coming(seen)
    found += fairness
    found += _limits(seen)
    if seen.row["trouble"] and not any(said == seen.row["trouble"] for _, said in found):
        found.append(("provider", seen.row["trouble"]))
    found += [
        ("order", f"{name} has room, and is held for a job that has waited for longer")
        for name in held
    ]
    found.append(("room", _room(seen)))
    return _too_large(seen) + found + order


def _before(seen: _Seen) -> int:
    """Return how many queued jobs of other arrays are looked at earlier."""
    whole, number = whole_of(seen.machines, seen.types), 0
    turns = in_order(seen.queued, seen.pool.ordering, whole, seen.used)
    for array, count in islice(turns, _MOST_TURNS):
        if array.array == seen.own["id"]:
            break
        number += count
    return number


def _turns(seen: _Seen, before: int) -> tuple[Causes, Causes]:
    """Return what the shares of projects and what the order have to do with it."""
    if not before:
        return [], []
    whole = whole_of(seen.machines, seen.types)
    own = whole.share(*seen.used.get(seen.own["project"], (0, 0)))
    fewer = {
        each.project
        for each in seen.queued
        if each.priority == seen.own["priority"]
        and each.project != seen.own["project"]
        and whole.share(*seen.used.get(each.project, (0, 0))) < own
    }
    if seen.pool.ordering == "fair" and fewer:
        said = (
            f"project {seen.own['project']!r} has {own:.0%} of pool {seen.pool.name!r}, and "
            f"{len(fewer)} with less have jobs waiting: {before} come first"
        )
        return [("fairness", said)], []
    return [], [("order", f"{before} jobs are looked at before it ({seen.pool.ordering})")]


def _held(seen: _Seen) -> list[str]:
    """Return the machine that has room and is held for a job of another array, if there is one."""
    if len(seen.machines) < seen.pool.max_machines or seen.coming:
        return []
    plan = Plan()
    left, _ = hold(plan, seen.ready, seen.queued)
    if any(array == seen.own["id"] for array in (*plan.left, *(a for _, a in plan.assigned))):
        return []
    others = {row["id"] for row in left}
    return [r["id"] for r in seen.ready if r["id"] not in others and has_room(r, seen.asked)]


def _coming(seen: _Seen) -> Causes:
    """Return what is known of machines on their way: those that were asked for in vain say why."""
    coming = seen.coming
    vain = [row for row in coming if row["state"] == "pending" and row["reason"]]
    found: Causes = []
    if len(vain) < len(coming):
        found.append(("starting", f"{len(coming) - len(vain)} machines are on their way"))
    found += [("provider", said) for said in dict.fromkeys(row["reason"] for row in vain)]
    return found


def _too_large(seen: _Seen) -> Causes:
    if not seen.types or _fitting(seen) or any(_is_large_enough(seen, r) for r in seen.ready):
        return []
    said = f"no machine type that pool {seen.pool.name!r} may have is large enough"
    if called := holding(seen.types, NO_EXPERIENCE, seen.asked):
        had = [
            (each.name, {name: getattr(each, name) for name in _AMOUNTS})
            for _, each in usable(called, seen.known)
        ]
        nearest, came = min(had, key=lambda each: (_short(each[1], seen.asked), each[0]))
        said += (
            f": it asks for {_amounts(seen.asked)}, and machines of type {nearest!r} came with "
            f"{_amounts(came)}"
        )
    return [("too_large", said)]


def _is_large_enough(seen: _Seen, row: Row) -> bool:
    """Say whether a machine that is there will have room once others have ended."""
    return all(row[f"{n}_capacity"] >= a for n, a in seen.asked.items())


def _fitting(seen: _Seen) -> list[MachineType]:
    return holding(seen.types, seen.known, seen.asked)


def _limits(seen: _Seen) -> Causes:
    """Return the limits that leave no room for a further machine which could run the job."""
    market = next_market(seen.pool, seen.machines, ())
    fitting = _fitting(seen)
    needs = {
        "machines": 1,
        "cpu_milli": min((each.cpu_milli for each in fitting), default=1),
        "micro": min((each.price(market) for each in fitting), default=1),
    }
    found: Causes = []
    for whose, name, row in (
        ("pool", seen.pool.name, seen.row),
        ("account", seen.pool.account, seen.account),
    ):
        for amount, need in needs.items():
            most = None if row is None else row[f"max_{amount}"]
            if row is None or most is None or row[f"{amount}_used"] + need <= most:
                continue
            cause = "budget" if amount == "micro" else f"{whose}_limit"
            said = _limit_words(amount, row[f"{amount}_used"], most, need)
            if row[f"{amount}_used"] > most:
                said += ": it was lowered, and machines beyond it leave when their jobs have ended"
            found.append((cause, f"{whose} {name!r} {said}"))
    return found


def _limit_words(amount: str, used: int, most: int, need: int) -> str:
    if amount == "machines":
        return f"has {used} of {most} machines"
    if amount == "cpu_milli":
        return (
            f"has {format_cpu(used)} of {format_cpu(most)} cores, and a machine for it takes "
            f"{format_cpu(need)}"
        )
    return (
        f"spends {used / 1e6:.4g} of {most / 1e6:.4g} an hour, and a machine for it costs "
        f"{need / 1e6:.4g}"
    )


def _room(seen: _Seen) -> str:
    asked, ready = seen.asked, seen.ready
    said = f"it asks for {_amounts(asked)}"
    if not ready:
        return f"{said}; no machine is ready"
    free = [{n: row[f"{n}_capacity"] - row[f"{n}_committed"] for n in _AMOUNTS} for row in ready]
    nearest = min(free, key=lambda each: _short(each, asked))
    return f"{said}; the nearest of {len(ready)} machines has {_amounts(nearest)} free"


def _short(free: Mapping[str, int], asked: Mapping[str, int]) -> float:
    return sum(max(0, asked[name] - free[name]) / asked[name] for name in asked if asked[name])


def _amounts(amounts: Mapping[str, int]) -> str:
    disk = amounts["disk_bytes"]
    words = f"{format_cpu(amounts['cpu_milli'])} cores and {format_bytes(amounts['memory_bytes'])}"
    return f"{words} and {format_bytes(disk)} of disk" if disk else words
