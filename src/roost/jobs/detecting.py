"""The failure detector: one process for all looks for machines and jobs that got stuck.

| found | after | then |
|---|---|---|
| a machine allocating whose process is gone | allocating_s | asked for again, with the same token |
| a machine that is there and whose worker never spoke | worker_s | given back |
| a worker that is silent | silent_s | its machine is given back, its attempts end |
| a machine draining whose attempts have ended | at once | given back |
| a machine returning whose process is gone | returning_s | its provider is asked again |
| a provider's machine that no row knows | untracked_s | given back |
| a rented machine that its provider does not know | gone_s | ended; its attempts end |
| a job queued beyond its limit | queue_limit_s | failed |
| a job running beyond its limit and a grace | limit_grace_s | its worker is told to end it |

Everything is counted on this process's own monotonic clock, from when it first saw a thing as it
is; attempts on a machine that is given back end with it, whatever state they are in. The limits of
jobs alone are of the wall clock, as their rows are: after a jump of it no job is ended before it
has been steady for a while. Every change checks the lease's token.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select, text, update

from roost.base.clock import Clock
from roost.base.errors import RoostError
from roost.base.steady import SteadyWall
from roost.jobs.bell import Bell
from roost.jobs.books import Sums, lose_machine
from roost.jobs.catalogue import Catalogue
from roost.jobs.rented import SILENT_FROM_THE_START, live_machines, move_machine
from roost.jobs.rows import pool_of
from roost.jobs.unchanged import Unchanged
from roost.ledger.schema.jobtables import (
    QUEUED,
    accounts,
    job_arrays,
    jobs,
    machines,
    pools,
)
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.model.job import CloudMachine, EndReason
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.providers.base import Provider

log = logging.getLogger("roost.jobs")

_A, _J, _M = job_arrays.c, jobs.c, machines.c
#: Jobs that one transaction ends.
_PIECE = 1000
#: How long one account's provider may take over a sweep; all are asked at once.
_SWEEP_S = 20.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each thing may take, in seconds."""

    allocating_s: float = 180.0
    worker_s: float = 600.0
    silent_s: float = 60.0
    returning_s: float = 180.0
    untracked_s: float = 900.0
    gone_s: float = 120.0
    limit_grace_s: float = 60.0
    sweep_s: float = 60.0


class Detecting(Part):
    """Looks for what got stuck."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        clock: Clock,
        singleton: Singleton,
        catalogue: Catalogue,
        owner: Callable[[], Awaitable[str]],
        patience: Patience,
        bell: Bell,
        planning: Callable[[], None],
        renting: Callable[[], None],
    ) -> None:
        self._store, self._clock, self.singleton = store, clock, singleton
        self._catalogue, self._owner, self._patience = catalogue, owner, patience
        self._bell, self._planning, self._renting = bell, planning, renting
        self._machines = Unchanged(clock)
        self._unknown = Unchanged(clock)
        self._missing = Unchanged(clock)
        self._swept_at = self._looked_at = float("-inf")
        self._steady = SteadyWall(clock, aloud=False)

    def gained(self) -> None:
        """Begin to count anew: another process has looked until now."""
        self._machines.clear()
        self._unknown.clear()
        self._missing.clear()

    async def look(self) -> None:
        """Look at every machine and at jobs beyond their limits."""
        rows = await self._store.read(
            lambda c: [dict(row) for row in c.execute(live_machines()).mappings()]
        )
        now = self._clock.monotonic()
        if now - self._looked_at > self._patience.silent_s / 2:
            # Nobody could be heard while this process stood still or the ledger was away.
            self.gained()
        self._looked_at = now
        for row in rows:
            await self._look_at(row)
        live = {row["id"] for row in rows}
        self._machines.forget_others(live)
        self._missing.forget_others(live)
        if self._steady.is_steady():
            await self._end_old()
        now = self._clock.monotonic()
        if now - self._swept_at >= self._patience.sweep_s:
            self._swept_at = now
            await self._sweep()

    # Machines

    async def _look_at(self, row: dict[str, Any]) -> None:
        state, wait = row["state"], self._patience
        # A worker that speaks on though it was told to leave keeps no machine from its return.
        heard = () if state == "returning" else (row["heard"], row["instance"])
        seen = (state, row["state_ms"], row["claimed_by"], *heard)
        unchanged_s = self._machines.seconds(row["id"], seen)
        if state == "allocating" and unchanged_s >= wait.allocating_s:
            await self._write(row, lambda tx: self._ask_again(tx, row))
        elif state == "allocated" and unchanged_s >= wait.worker_s:
            await self._give_up(row, "allocated", "worker_silent", SILENT_FROM_THE_START)
        elif state in ("ready", "draining") and unchanged_s >= wait.silent_s:
            said = f"its worker has been silent for {unchanged_s:.0f} s"
            await self._give_up(row, state, "worker_silent", said)
        elif state == "draining" and row["attempts_committed"] == 0:
            await self._give_up(row, "draining", "machine_reclaimed", row["reason"] or "drained")
        elif state == "returning" and row["claimed_by"] and unchanged_s >= wait.returning_s:
            await self._write(row, lambda tx: tx.change(machines, {"id": row["id"]}, claimed_by=""))

    async def _write(self, row: dict[str, Any], change: Callable[[Tx], object]) -> None:
        def checked(tx: Tx) -> None:
            self.singleton.check(tx)
            change(tx)

        if row["state"] == "draining" and row["attempts_committed"] == 0:
            log.info("machine %s has drained", row["id"])
        else:
            log.warning("machine %s is stuck %s", row["id"], row["state"])
        await self._store.write(checked, self.singleton.name)
        self._renting()
        self._planning()

    def _ask_again(self, tx: Tx, row: dict[str, Any]) -> None:
        move_machine(
            tx, row["id"], "allocating", "pending", _M.claimed_by == row["claimed_by"],
            claimed_by="", reason="nobody answered",
        )  # fmt: skip

    async def _give_up(self, row: dict[str, Any], state: Any, reason: EndReason, said: str) -> None:
        def change(tx: Tx) -> None:
            heard = and_(_M.heard == row["heard"], _M.instance == row["instance"])
            found = move_machine(tx, row["id"], state, "returning", heard, reason=said)
            if found is not None:
                lose_machine(tx, found, reason, said)

        await self._write(row, change)

    # What providers have

    async def _sweep(self) -> None:
        found = await self._store.read(_accounts)
        # Those that need no account too: the last pool of one may be gone, and a machine not.
        found |= {(name, "") for name in self._catalogue.without_account()}
        await asyncio.gather(*(self._sweep_one(*each) for each in sorted(found)))

    async def _sweep_one(self, provider: str, account: str) -> None:
        """Compare one account; what its provider does or does not say holds up no other."""
        try:
            async with asyncio.timeout(_SWEEP_S):
                opened = await self._catalogue.provider(provider, account)
                there = await opened.machines(await self._owner())
                live, known = await self._store.read(lambda c: _known(c, provider, account))
                whose = f"{provider}/{account}/"
                for each in there:
                    await self._spare_or_return(opened, each, live.get(each.machine), whose)
                self._unknown.forget_others({f"{whose}{each.cloud_id}" for each in there}, whose)
        except RoostError as error:
            log.warning("%s does not say which machines it has: %s", provider, error.message)
            return
        except TimeoutError:
            log.warning("%s has not said for %.0f s which machines it has", provider, _SWEEP_S)
            return
        except Exception:
            # Whatever an SDK throws: other accounts are looked through all the same.
            log.exception("%s does not say which machines it has", provider)
            return
        tokens = {each.machine for each in there}
        for row in known:
            await self._miss(row, tokens)

    async def _spare_or_return(
        self, opened: Provider, each: CloudMachine, row: dict[str, Any] | None, whose: str
    ) -> None:
        # One that is being made now has a row: the row comes before the asking. A second one of
        # the same token is nobody's.
        if row is not None and row["cloud_id"] in (None, each.cloud_id):
            return
        unknown_s = self._unknown.seconds(f"{whose}{each.cloud_id}", each.machine)
        if unknown_s >= self._patience.untracked_s:
            log.warning("giving back %s, which no pool knows", each.cloud_id)
            try:
                await opened.terminate(each.cloud_id)
            except RoostError as error:
                log.warning("%s is not given back: %s", each.cloud_id, error.message)

    async def _miss(self, row: dict[str, Any], there: set[str]) -> None:
        """End a machine that its provider has lost; lists may be late, hence the patience."""
        if row["state"] not in ("allocated", "ready", "draining"):
            return
        if row["id"] in there:
            self._missing.seconds(row["id"], "there")
            return
        if self._missing.seconds(row["id"], row["heard"]) >= self._patience.gone_s:
            await self._give_up(
                row, row["state"], "machine_lost", "its provider knows nothing of it"
            )

    # Jobs

    async def _end_old(self) -> None:
        now = self._clock.wall_ms()
        late = await self._store.read(lambda c: _beyond_queue(c, now))
        if late:
            await self._store.write(lambda tx: self._fail_queued(tx, late), self.singleton.name)
        grace = round(1000 * self._patience.limit_grace_s)
        long = await self._store.read(lambda c: _beyond_run(c, now - grace))
        if long:
            told = await self._store.write(lambda tx: self._stop(tx, long), self.singleton.name)
            self._bell.ring(f"machine/{machine}" for machine in told)

    def _fail_queued(self, tx: Tx, late: Sequence[tuple[str, int, int]]) -> None:
        self.singleton.check(tx)
        sums = Sums()
        for array, index, limit in sorted(late):
            row = tx.update(
                jobs, _J.array == array, _J.idx == index, _J.state == "queued", state="failed",
                finished_ms=tx.at_ms, reason="queue_limit",
                message=f"it found no room within {limit} s",
            )  # fmt: skip
            if row is not None:
                sums.moved(array, "queued", "failed")
        sums.write(tx)

    def _stop(self, tx: Tx, long: Sequence[tuple[str, int, str]]) -> list[str]:
        self.singleton.check(tx)
        told = []
        for array, index, machine in sorted(long):
            change = (
                update(jobs)
                .where(_J.array == array, _J.idx == index, _J.state == "running")
                .values(state="cancelling", reason="run_limit")
            )
            if tx.connection.execute(change).rowcount:
                told.append(machine)
        return told


def _accounts(connection: Connection) -> set[tuple[str, str]]:
    # Accounts of no pool too: its last machine may have been made though nobody heard of it.
    every = select(accounts.c.provider, accounts.c.name)
    found = {(str(provider), str(name)) for provider, name in connection.execute(every)}
    for (spec,) in connection.execute(select(pools.c.spec)):
        pool = pool_of(spec)
        found.add((pool.provider, pool.account))
    return found


Rows = dict[str, dict[str, Any]]


def _known(
    connection: Connection, provider: str, account: str
) -> tuple[Rows, list[dict[str, Any]]]:
    """Return all live machines by their tokens, and those that are rented with an account.

    Several accounts may see the same machines at their provider, so none of them is a stranger.
    """
    specs = connection.execute(select(pools.c.name, pools.c.spec))
    names = {name for name, spec in specs if pool_of(spec).provider == provider}
    live = {row["id"]: dict(row) for row in connection.execute(live_machines()).mappings()}
    mine = [row for row in live.values() if row["account"] == account and row["pool"] in names]
    return live, mine


# Arrays with such a limit first, then what is queued of each.
_LATE = (
    select(_J.array, _J.idx, _A.queue_limit_s)
    .select_from(job_arrays.join(jobs, _A.id == _J.array))
    .where(
        QUEUED,
        _A.finished_ms.is_(None),
        _A.queue_limit_s.is_not(None),
        _J.queued_ms + 1000 * _A.queue_limit_s < bindparam("now"),
    )
    .limit(_PIECE)
)
# SQLite takes the primary key by itself, and walks all jobs of the array that have ended.
_LATE_ON_SQLITE = text(
    "SELECT j.array, j.idx, a.queue_limit_s FROM job_arrays a"
    " CROSS JOIN jobs j INDEXED BY jobs_queued ON j.array = a.id WHERE j.state = 'queued'"
    " AND a.finished_ms IS NULL AND a.queue_limit_s IS NOT NULL"
    f" AND j.queued_ms + 1000 * a.queue_limit_s < :now LIMIT {_PIECE}"
)


def _beyond_queue(connection: Connection, now_ms: int) -> list[tuple[str, int, int]]:
    query = _LATE_ON_SQLITE if connection.dialect.name == "sqlite" else _LATE
    found = connection.execute(query, {"now": now_ms})
    return [(str(a), int(i), int(limit)) for a, i, limit in found]


def _beyond_run(connection: Connection, now_ms: int) -> list[tuple[str, int, str]]:
    query = (
        select(_J.array, _J.idx, _J.machine)
        .join(job_arrays, _A.id == _J.array)
        .where(
            _J.machine.is_not(None),
            _J.state == "running",
            _J.started_ms + 1000 * _A.run_limit_s < now_ms,
        )
        .limit(_PIECE)
    )
    return [(str(a), int(i), str(m)) for a, i, m in connection.execute(query)]
