"""The planner: one process for all assigns queued jobs to machines, and decides how many there are.

It reads the queue as arrays, asks `planning` for each pool, and commits what still holds: a job
that was cancelled meanwhile, or a machine that has left, is dropped and nothing else. Every commit
checks the lease's token, so a planner that stood still and wakes up assigns nothing. It runs when
somebody rings (jobs came, attempts ended, a machine is ready) and twice a second in any case.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sqlalchemy import Connection, bindparam, select, text, update

from roost.base.clock import Clock
from roost.base.errors import RoostError
from roost.base.ids import IdSource
from roost.jobs.bell import LOOK_S, Bell, Summons
from roost.jobs.books import Sums
from roost.jobs.catalogue import Catalogue, regions_for
from roost.jobs.deciding.experience import Experience, foreseen
from roost.jobs.deciding.ordering import Queued, Used
from roost.jobs.deciding.planning import COMING, MOST_AHEAD, Plan, next_market, plan_pool, staying
from roost.jobs.lowering import machines_to_leave, shed_machines
from roost.jobs.queue import read_queued, read_used
from roost.jobs.refusals import (
    NOTHING_REFUSED,
    Refusals,
    one_of_each_doubted,
    open_regions,
    read_refusals,
    still_offered,
    what_was_said,
)
from roost.jobs.rented import (
    Wanted,
    live_machines,
    move_machine,
    read_experience,
    want_machine,
)
from roost.jobs.rows import pool_of, type_of
from roost.jobs.unchanged import Unchanged
from roost.ledger.schema.jobtables import (
    QUEUED,
    RENTED,
    accounts,
    jobs,
    machines,
    pools,
)
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_rows
from roost.ledger.writes.transaction import Tx
from roost.model.job import MachineType, Market, Pool
from roost.parts.part import Loop, Part
from roost.parts.singleton import NotHolder, Singleton
from roost.providers.mix.problem import MixLimits

log = logging.getLogger("roost.jobs")

_J, _M = jobs.c, machines.c
_NEXT = (
    select(_J.idx)
    .where(_J.array == bindparam("of"), QUEUED, _J.not_before_ms <= bindparam("now"))
    .order_by(_J.idx)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
# SQLite takes the primary key by itself, and walks all jobs of the array that have ended.
_NEXT_ON_SQLITE = text(
    "SELECT idx FROM jobs INDEXED BY jobs_queued WHERE array = :of AND state = 'queued'"
    " AND not_before_ms <= :now ORDER BY idx LIMIT :most"
)
_ASSIGN = (
    update(jobs)
    .where(
        _J.array == bindparam("of"),
        _J.idx.in_(bindparam("these", expanding=True)),
        _J.state == "queued",
    )
    .values(
        state="scheduled",
        machine=bindparam("to"),
        ran_on=bindparam("to"),
        attempt=_J.attempt + 1,
        scheduled_ms=bindparam("at"),
        started_ms=None,
    )
)
_TAKE = (
    update(machines)
    .where(
        _M.id == bindparam("on"),
        _M.state == "ready",
        _M.cpu_milli_committed + bindparam("cpu") <= _M.cpu_milli_capacity * bindparam("times"),
        _M.memory_bytes_committed + bindparam("memory")
        <= _M.memory_bytes_capacity * bindparam("times"),
        _M.disk_bytes_committed + bindparam("disk") <= _M.disk_bytes_capacity * bindparam("times"),
        _M.attempts_committed + bindparam("number") <= _M.attempts_capacity,
    )
    .values(
        cpu_milli_committed=_M.cpu_milli_committed + bindparam("cpu"),
        memory_bytes_committed=_M.memory_bytes_committed + bindparam("memory"),
        disk_bytes_committed=_M.disk_bytes_committed + bindparam("disk"),
        attempts_committed=_M.attempts_committed + bindparam("number"),
        idle_ms=None,
    )
)
_TROUBLE = (
    update(pools)
    .where(pools.c.name == bindparam("of"), pools.c.trouble != bindparam("said"))
    .values(trouble=bindparam("said"))
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The rows that one look of the planner decides by."""

    pools: Mapping[str, Pool]
    troubles: Mapping[str, str]
    machines: Mapping[str, list[dict[str, Any]]]
    queued: Mapping[str, list[Queued]]
    used: Mapping[str, Used]
    rooms: Mapping[str, MixLimits]  # what each pool may still rent
    refused: Mapping[str, Refusals]  # what each pool leaves alone for a while
    known: Mapping[str, Experience]  # what machines of each pool came with
    sheds: bool  # a machine must leave for a pool's or an account's limits that were lowered


class Planner(Part):
    """Assigns jobs, wants machines and gives idle ones back."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        singleton: Singleton,
        catalogue: Catalogue,
        bell: Bell,
        renting: Summons,
        able: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self._clock, self._ids, self.singleton = store, clock, ids, singleton
        self._catalogue, self._bell, self._renting = catalogue, bell, renting
        self._able = able
        self.summons = Summons(clock)
        self._idle = Unchanged(clock)
        self._held: dict[str, tuple[float, int]] = {}  # arrays whose jobs wait for their back-off

    def loops(self) -> Sequence[Loop]:
        """Return the loop that plans, wherever the lease is held."""
        return (Loop(self._turn, 0.0),)

    async def _turn(self) -> None:
        if self.singleton.token is None or not self._able():
            await self._clock.sleep(LOOK_S)
            return
        began = self._clock.monotonic()
        try:
            worked = await self.plan_all()
        except NotHolder:
            worked = False
        took = self._clock.monotonic() - began
        # A plan that takes long leaves as much time for everything else.
        await self._clock.sleep(min(1.0, took))
        if not worked:
            await self.summons.wait(LOOK_S)

    async def plan_all(self) -> bool:
        """Plan every pool once; return whether anything was assigned."""
        now_ms = self._clock.wall_ms()
        seen = await self._store.read(lambda connection: _read(connection, now_ms))
        if seen.sheds and await self._shed():
            seen = await self._store.read(lambda connection: _read(connection, now_ms))
        # Of all pools at once: what one of them has, the others do not.
        self._idle.forget_others({row["id"] for rows in seen.machines.values() for row in rows})
        waits = {each.array for arrays in seen.queued.values() for each in arrays}
        self._held = {array: held for array, held in self._held.items() if array in waits}
        worked = False
        for name, pool in seen.pools.items():
            try:
                worked |= await self._plan_one(name, pool, seen)
            except RoostError as error:
                if isinstance(error, NotHolder):
                    raise
                log.warning("pool %s is not planned this time: %s", name, error.message)
        return worked

    async def _shed(self) -> bool:
        """Let machines beyond lowered limits leave; return whether there were any that stayed."""

        def change(tx: Tx) -> list[str]:
            self.singleton.check(tx)
            return shed_machines(tx)

        told = await self._store.write(change, self.singleton.name)
        self._bell.ring(f"machine/{machine}" for machine in told)
        if told:
            self._renting.ring()
        return bool(told)

    async def _plan_one(self, name: str, pool: Pool, seen: Seen) -> bool:
        rows = seen.machines.get(name, [])
        queued = [self._without_held(each) for each in seen.queued.get(name, ())]
        queued = [each for each in queued if each.number]
        types, trouble = self._catalogue.types(pool, self._clock.monotonic())
        used, room = seen.used.get(name, {}), seen.rooms[name]
        market, refused = next_market(pool, rows, ()), seen.refused.get(name, NOTHING_REFUSED)
        coming = {type_of(row["type"]).name for row in rows if row["state"] in COMING}
        offered = still_offered(pool, types, market, refused, coming)
        # Beside the event loop: a long queue or a hard mix takes a second.
        known = seen.known.get(name, {})
        there = [_foreseen(row, known) for row in rows]
        plan = await asyncio.to_thread(plan_pool, pool, there, queued, used, offered, room, known)
        surplus = self._surplus(pool, rows, plan)
        if plan.left or max(pool.min_machines, pool.warm) > staying(rows):
            left_alone = [each for each in types if each not in offered]
            plan.refused = what_was_said(left_alone, market, refused)
        plan.wanted = one_of_each_doubted(plan.wanted, refused)
        plan.regions = [_region(pool, kind, on, refused) for kind, on in plan.wanted]
        said = trouble or plan.refused
        if said and said != seen.troubles[name]:
            await self._store.write(lambda tx: self._say(tx, name, said))
        if not (plan.assigned or plan.ahead or plan.wanted or surplus):
            return False
        demands = {each.array: each for each in queued}
        assigned, short = await self._store.write(
            lambda tx: self._commit(tx, pool, plan, demands, surplus), self.singleton.name
        )
        until = self._clock.monotonic() + 1.0
        self._held |= {array: (until, number) for array, number in short.items()}
        self._bell.ring(f"machine/{machine}" for machine in plan.machines)
        if plan.wanted or surplus:
            self._renting.ring()
        return assigned > 0

    def _without_held(self, queued: Queued) -> Queued:
        """Leave out the jobs of an array that wait for their back-off, as far as is known."""
        until, number = self._held.get(queued.array, (0.0, 0))
        if number and until > self._clock.monotonic():
            return _fewer(queued, max(0, queued.number - number))
        self._held.pop(queued.array, None)
        return queued

    def _surplus(self, pool: Pool, rows: Sequence[dict[str, Any]], plan: Plan) -> list[str]:
        """Return machines that have been idle for long enough and that nobody wants."""
        ready = [row for row in rows if row["state"] == "ready"]
        idle = [
            row
            for row in ready
            if row["attempts_committed"] == 0 and row["id"] not in plan.machines
        ]
        since = {row["id"]: self._idle.seconds(row["id"], row["idle_ms"]) for row in idle}
        # While others wait, what is idle is of no use to them, and may stand in a limit's way.
        waiting = bool(plan.left or plan.wanted)
        grace = min(pool.idle_grace_s, 5) if waiting else pool.idle_grace_s
        old = [row for row in idle if since[row["id"]] >= grace]
        old.sort(key=lambda row: (-row["price_micro"], row["id"]))
        spare = min(staying(rows) - pool.min_machines, len(idle) - pool.warm)
        return [row["id"] for row in old[: max(0, spare)]]

    def _commit(
        self,
        tx: Tx,
        pool: Pool,
        plan: Plan,
        demands: Mapping[str, Queued],
        surplus: Sequence[str],
    ) -> tuple[int, dict[str, int]]:
        """Write a plan as far as it still holds; return how many jobs were assigned."""
        self.singleton.check(tx)
        assigned, short = 0, Counter[str]()
        sums = Sums()
        by_array: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        wishes = [(key, number, 1) for key, number in plan.assigned.items()]
        wishes += [(key, number, int(MOST_AHEAD)) for key, number in plan.ahead.items()]
        for (machine, array), number, times in sorted(wishes):
            if self._take(tx, machine, demands[array], number, times):
                by_array[array].append((machine, number, times))
        for array in sorted(by_array):
            places = by_array[array]
            most = sum(number for _, number, _ in places)
            indexes = _next_jobs(tx.connection, array, tx.at_ms, most)
            if len(indexes) < most:
                short[array] = max(0, demands[array].number - len(indexes))
            for machine, number, times in places:
                these, indexes = indexes[:number], indexes[number:]
                if these:
                    values = {"of": array, "these": these, "to": machine, "at": tx.at_ms}
                    tx.connection.execute(_ASSIGN, values)
                if len(these) < number:
                    self._take(tx, machine, demands[array], len(these) - number, times)
                sums.moved(array, "queued", "scheduled", len(these))
                assigned += len(these)
        sums.write(tx)
        said = plan.refused
        for (kind, market), region in zip(plan.wanted, plan.regions, strict=True):
            wanted = Wanted(pool.name, pool.account, kind, market, region)
            refused = want_machine(tx, self._ids.new("machine"), wanted)
            if refused is not None:
                said = f"the limits of its {refused} allow no further machine {kind.name}"
                break
        self._say(tx, pool.name, said)
        for machine in surplus:
            move_machine(
                tx, machine, "ready", "returning", _M.attempts_committed == 0, reason="idle"
            )
        return assigned, dict(short)

    def _take(self, tx: Tx, machine: str, each: Queued, number: int, times: int) -> bool:
        """Charge a machine with jobs if it has room for them; a negative number gives back."""
        amounts = {
            "on": machine,
            "cpu": number * each.cpu_milli,
            "memory": number * each.memory_bytes,
            "disk": number * each.disk_bytes,
            "number": number,
            "times": times,
        }
        return tx.connection.execute(_TAKE, amounts).rowcount == 1

    def _say(self, tx: Tx, pool: str, said: str) -> None:
        tx.connection.execute(_TROUBLE, {"of": pool, "said": said})


def _next_jobs(connection: Connection, array: str, now_ms: int, most: int) -> list[int]:
    """Return the next queued jobs of an array by their indexes, locked."""
    query = _NEXT_ON_SQLITE if connection.dialect.name == "sqlite" else _NEXT
    rows = connection.execute(query, {"of": array, "now": now_ms, "most": most})
    return [int(row[0]) for row in rows]


def _fewer(queued: Queued, number: int) -> Queued:
    return replace(queued, number=number)


def _region(pool: Pool, kind: MachineType, market: Market, refused: Refusals) -> str:
    """Return where a machine is to be; empty: its provider goes through all that it has."""
    return (open_regions(pool, kind, market, refused) or regions_for(pool, kind))[0]


def _foreseen(row: Mapping[str, Any], known: Experience) -> Mapping[str, Any]:
    return row if row["heard"] else foreseen(row, type_of(row["type"]), known)


def _read(connection: Connection, now_ms: int) -> Seen:
    found = find_rows(connection, pools, {})
    known = read_experience(connection, now_ms)
    payers = {row["name"]: row for row in find_rows(connection, accounts, {})}
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(live_machines()).mappings():
        of[row["pool"]].append(dict(row))
    return Seen(
        {row["name"]: pool_of(row["spec"]) for row in found},
        {row["name"]: row["trouble"] for row in found},
        of,
        read_queued(connection, now_ms),
        read_used(connection),
        {row["name"]: _room(row, payers.get(row["account"])) for row in found},
        read_refusals(connection, now_ms),
        known,
        bool(machines_to_leave(found, payers.values(), chain.from_iterable(of.values()))),
    )


def _room(pool: Mapping[str, Any], account: Mapping[str, Any] | None) -> MixLimits:
    """Return what a pool may still rent, by its own limits and its account's."""
    left: list[int | None] = []
    for name in RENTED:
        rows = [row for row in (pool, account) if row is not None]
        most = [
            row[f"max_{name}"] - row[f"{name}_used"]
            for row in rows
            if row[f"max_{name}"] is not None
        ]
        left.append(max(0, min(most)) if most else None)
    return MixLimits(*left)
