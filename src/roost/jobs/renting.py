"""Renting: asks providers for the machines that are wanted, and gives back those that are not.

Every process does, each with machines that it claims for a while (rows that another has locked are
passed over). The claim is written before the provider is asked and carries the machine's id as the
launch's token, so that a process which dies in between leaks nothing: the detector takes the claim
away, and who asks again gets the machine that was made. What a provider answers is written by what
is to be done next: another zone or type, later, never.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, or_, select, update

from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.base.errors import RoostError
from roost.jobs.bell import Summons
from roost.jobs.books import lose_machine
from roost.jobs.catalogue import Catalogue
from roost.jobs.rented import move_machine
from roost.jobs.rows import pool_of, type_of
from roost.ledger.schema.jobtables import accounts, machine_secrets, machines, pools
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.ledger.writes.transaction import Tx
from roost.model.job import Bootstrap, CloudMachine, Launch
from roost.parts.access import Access, insert_token
from roost.parts.part import Loop, Part
from roost.parts.sealing import Seal
from roost.providers.base import MACHINE_TAG, OWNER_TAG, Provider
from roost.providers.errors import (
    BadCredentials,
    MachineGone,
    NoCapacity,
    QuotaReached,
    Refused,
)

log = logging.getLogger("roost.jobs")

#: Machines of one account that a process asks for, or gives back, at the same time, and accounts.
AT_ONCE, ACCOUNTS_AT_ONCE = 16, 4
#: Between two askings for the same machine, and how often it is asked for before it is given up.
AGAIN = BackOff(2.0, 120.0)
MOST_LAUNCHES = 8
#: A provider that has not answered after this is taken for unreachable.
ANSWER_S = 120.0
#: After how long a join token that nobody used opens nothing.
JOIN_S = 3600
#: How often the loop looks by itself.
LOOK_S = 1.0
#: How long a machine is looked for that was asked for and never named: a list may be so late.
UNNAMED_S = 120.0
#: Between two looks for it, and between two askings to end one.
_LATER_S = 10.0

_M = machines.c
_WORK = (
    select(_M.id, _M.account)
    .where(
        _M.ended_ms.is_(None),
        _M.claimed_by == "",
        _M.account.not_in(bindparam("busy", expanding=True)),
        _M.not_before_ms <= bindparam("now"),
        or_(_M.state == "pending", _M.state == "returning"),
    )
    .order_by(_M.id)
    .limit(AT_ONCE)
    .with_for_update(skip_locked=True)
)
_CLAIM = (
    update(machines)
    .where(_M.id.in_(bindparam("these", expanding=True)))
    .values(claimed_by=bindparam("by"))
)


class Renting(Part):
    """Asks providers, beside whatever else this process does."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        access: Access,
        seal: Seal,
        catalogue: Catalogue,
        holder: str,
        owner: Callable[[], Awaitable[str]],
        server: Callable[[], tuple[str, str]],
        able: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self._clock, self._access, self._seal = store, clock, access, seal
        self._catalogue, self._holder, self._owner, self._server = catalogue, holder, owner, server
        self._able = able
        self._busy: set[str] = set()  # accounts whose provider is being asked
        self.summons = Summons(clock)
        self.planning: Callable[[], None] = lambda: None  # rung when something has changed

    def loops(self) -> Sequence[Loop]:
        """Return the loops that rent and give back: a slow provider holds up one of them alone."""
        return (Loop(self._look_at_offers, LOOK_S), *(Loop(self._turn, 0.0),) * ACCOUNTS_AT_ONCE)

    async def _turn(self) -> None:
        await self.summons.wait(LOOK_S)
        if self._able():
            await self._work_for_one()

    async def work(self) -> int:
        """Do what there is to do now for one account; return how many machines that were."""
        await self._look_at_offers()
        return await self._work_for_one()

    async def _look_at_offers(self) -> None:
        wanted, every = await self._store.read(_offers_wanted)
        await self._catalogue.forget_others(wanted | every)
        await asyncio.gather(*(self._catalogue.refresh(*each) for each in sorted(wanted)))

    async def _work_for_one(self) -> int:
        busy, now = sorted(self._busy), self._clock.wall_ms()
        if not await self._store.read(lambda c: _has_work(c, busy, now)):
            return 0
        claimed = await self._store.write(self._claim, self._holder)
        if claimed:
            account = claimed[0]["account"]
            self._busy.add(account)
            try:
                await asyncio.gather(*(self._one(row) for row in claimed))
            finally:
                self._busy.discard(account)
            self.planning()
        return len(claimed)

    def _claim(self, tx: Tx) -> list[dict[str, Any]]:
        rows = tx.rows(_WORK, now=tx.at_ms, busy=sorted(self._busy))
        these = [row["id"] for row in rows if row["account"] == rows[0]["account"]]
        if not these:
            return []
        tx.connection.execute(_CLAIM, {"these": these, "by": self._holder})
        found = []
        for machine in these:
            row = tx.find(machines, id=machine)
            if row is not None and row["state"] == "pending":
                row = move_machine(
                    tx, machine, "pending", "allocating", launches=row["launches"] + 1, reason=""
                )
                if row is not None:
                    self._keep_token(tx, machine)
            if row is not None:
                found.append(row)
        return found

    def _keep_token(self, tx: Tx, machine: str) -> None:
        """Make the machine's join token once: asked again, its launch must say the same."""
        if tx.find(machine_secrets, machine=machine) is not None:
            return
        row, text = self._access.prepare(
            "worker_join", f"machine/{machine}", "join", host=machine, expires_in_s=JOIN_S
        )
        insert_token(tx, row)
        sealed = self._seal.close(f"machine/{machine}", text)
        tx.insert(machine_secrets, {"machine": machine, "secret": sealed})

    async def _one(self, row: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                if row["state"] == "allocating":
                    await self._launch(row)
                else:
                    await self._give_back(row)
        except TimeoutError:
            said = f"the provider has not answered for {ANSWER_S:.0f} s"
            await self._store.write(lambda tx: self._failed(tx, row, said, final=False))
        except RoostError as error:
            final = isinstance(error, MachineGone | Refused | BadCredentials)
            # Nothing was made, and another type may be had: the planner chooses again at once.
            final |= isinstance(error, NoCapacity | QuotaReached) and row["launches"] == 1
            log.warning("machine %s: %s", row["id"], error.message)
            said = error.message
            await self._store.write(lambda tx: self._failed(tx, row, said, final=final))
        except Exception as error:
            # Whatever an SDK throws: the other machines go on, and this one is asked for again.
            log.exception("machine %s", row["id"])
            # Its words may hold what the account is opened with: they are for the log alone.
            said = f"an error that nobody expected: {type(error).__name__}; the log has more"
            await self._store.write(lambda tx: self._failed(tx, row, said, final=False))

    async def _launch(self, row: dict[str, Any]) -> None:
        pool, token = await self._store.read(lambda c: self._told(c, row))
        provider = await self._catalogue.provider(pool.provider, row["account"])
        server, ca_pem = self._server()
        launch = Launch(
            token=row["id"],
            type=type_of(row["type"]),
            market=row["market"],
            bootstrap=Bootstrap(server, row["id"], token, ca_pem),
            region=row["region"],
            tags=(
                (OWNER_TAG, await self._owner()),
                ("roost-pool", row["pool"]),
                (MACHINE_TAG, row["id"]),
            ),
        )
        found = await provider.launch(launch)
        await self._store.write(lambda tx: self._launched(tx, row, found))

    def _told(self, connection: Connection, row: dict[str, Any]) -> tuple[Any, str]:
        pool = find_row(connection, pools, {"name": row["pool"]})
        secret = find_row(connection, machine_secrets, {"machine": row["id"]})
        assert pool is not None
        text = "" if secret is None else self._seal.open(f"machine/{row['id']}", secret["secret"])
        return pool_of(pool["spec"]), text

    def _launched(self, tx: Tx, row: dict[str, Any], found: CloudMachine) -> None:
        values: dict[str, Any] = {
            "cloud_id": found.cloud_id,
            "region": found.region or row["region"],
            "rented_ms": tx.at_ms,
        }
        kept = update(machines).where(_M.id == row["id"]).values(values)
        tx.connection.execute(kept.where(_M.cloud_id.is_(None)))
        if move_machine(tx, row["id"], "allocating", "allocated", claimed_by="") is None:
            # Its worker was quicker than the provider's answer, or it is to go already.
            tx.connection.execute(
                update(machines)
                .where(_M.id == row["id"], _M.claimed_by == self._holder)
                .values(claimed_by="")
            )

    async def _give_back(self, row: dict[str, Any]) -> None:
        if row["cloud_id"] is not None or row["launches"]:
            pool, _ = await self._store.read(lambda c: self._told(c, row))
            provider = await self._catalogue.provider(pool.provider, row["account"])
            found = await self._named(provider, row)
            waited_s = (self._clock.wall_ms() - row["state_ms"]) / 1000
            if not found and waited_s < UNNAMED_S:
                await self._store.write(lambda tx: self._look_later(tx, row["id"]))
                return
            for cloud_id in found:
                try:
                    await provider.terminate(cloud_id)
                except MachineGone:
                    log.info("machine %s was gone already", row["id"])
        await self._store.write(lambda tx: self._returned(tx, row["id"]))

    async def _named(self, provider: Provider, row: dict[str, Any]) -> list[str]:
        """Return what the provider calls a machine; all that one token made if nobody knows."""
        if row["cloud_id"] is not None:
            return [row["cloud_id"]]
        there = await provider.machines(await self._owner())
        return [each.cloud_id for each in there if each.machine == row["id"]]

    def _look_later(self, tx: Tx, machine: str) -> None:
        tx.connection.execute(
            update(machines)
            .where(_M.id == machine, _M.claimed_by == self._holder)
            .values(claimed_by="", not_before_ms=tx.at_ms + round(1000 * _LATER_S))
        )

    def _returned(self, tx: Tx, machine: str) -> None:
        row = tx.find(machines, lock=True, id=machine)
        if row is not None and row["state"] == "returning":
            lose_machine(tx, row, "machine_lost", "its machine was given back")
            move_machine(tx, machine, "returning", "returned")

    def _failed(self, tx: Tx, row: dict[str, Any], said: str, *, final: bool) -> None:
        """Note what a provider said instead of doing what was asked."""
        machine = tx.find(machines, lock=True, id=row["id"])
        if machine is None or machine["claimed_by"] != self._holder:
            return
        wait = tx.at_ms + round(1000 * AGAIN.wait_s(max(0, machine["launches"] - 1)))
        tx.connection.execute(
            update(pools).where(pools.c.name == row["pool"]).values(trouble=said[:500])
        )
        over = final or machine["launches"] >= MOST_LAUNCHES
        if machine["state"] == "allocating" and final and machine["launches"] == 1:
            move_machine(tx, row["id"], "allocating", "failed", reason=said[:500])
        elif machine["state"] == "allocating" and over:
            # One of the askings may have made something though nobody heard of it.
            move_machine(
                tx, row["id"], "allocating", "returning", claimed_by="", not_before_ms=0,
                reason=said[:500],
            )  # fmt: skip
        elif machine["state"] == "allocating":
            move_machine(
                tx, row["id"], "allocating", "pending", claimed_by="", not_before_ms=wait,
                reason=said[:500],
            )  # fmt: skip
        else:
            tx.change(
                machines, {"id": row["id"]}, claimed_by="", reason=said[:500],
                not_before_ms=tx.at_ms + round(1000 * _LATER_S),
            )  # fmt: skip


Accounts = set[tuple[str, str]]


def _offers_wanted(connection: Connection) -> tuple[Accounts, Accounts]:
    """Return whose offers pools need, and all accounts that there are."""
    found = set()
    for (spec,) in connection.execute(select(pools.c.spec)):
        pool = pool_of(spec)
        found.add((pool.provider, pool.account))
    every = select(accounts.c.provider, accounts.c.name)
    return found, {(str(provider), str(name)) for provider, name in connection.execute(every)}


_ANY = (
    select(_M.id)
    .where(
        _M.ended_ms.is_(None),
        _M.claimed_by == "",
        _M.state.in_(("pending", "returning")),
        _M.not_before_ms <= bindparam("now"),
        _M.account.not_in(bindparam("busy", expanding=True)),
    )
    .limit(1)
)


def _has_work(connection: Connection, busy: Sequence[str], now_ms: int) -> bool:
    return connection.execute(_ANY, {"busy": busy, "now": now_ms}).first() is not None
