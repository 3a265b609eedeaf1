"""The claim path on PostgreSQL, written against asyncpg itself.

The same steps as on SQLite, one round trip each: arrays instead of rows, and rows that others may
want too are locked in ascending order before they are touched.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg
from msgspec.structs import astuple
from sqlalchemy import BigInteger, Boolean, Float, Table

from roost.ledger.claims import (
    KEPT,
    Outcome,
    Proposal,
    Verdict,
    charges,
    group_charges,
    outpaced,
    quota_charges,
    quota_detail,
    reconsidered,
)
from roost.ledger.rows import Event
from roost.ledger.tables import claims, decisions, idempotency, members, vms
from roost.ledger.transaction import number_events

#: Rung after every commit that has events.
CHANNEL = "roost_events"


def _type(column: Any) -> str:
    if isinstance(column.type, BigInteger) or column.name == "seq":
        return "bigint[]"
    if isinstance(column.type, Boolean):
        return "boolean[]"
    return "float8[]" if isinstance(column.type, Float) else "text[]"


def _unnest(table: Table, *, rest: str = "") -> str:
    names = ", ".join(column.name for column in table.c)
    arrays = ", ".join(f"${at}::{_type(column)}" for at, column in enumerate(table.c, 1))
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays}) {rest}"


_INSERT_KEYS = _unnest(idempotency, rest="ON CONFLICT DO NOTHING RETURNING answer")
_INSERT_VMS = _unnest(vms, rest="ON CONFLICT DO NOTHING RETURNING id")
_INSERT_CLAIMS = _unnest(claims)
_INSERT_MEMBERS = _unnest(members)
_INSERT_DECISIONS = _unnest(decisions)
_CHARGE_HOSTS = """
UPDATE host_amounts AS h SET
  cpu_milli_committed = h.cpu_milli_committed + u.cpu,
  memory_bytes_committed = h.memory_bytes_committed + u.memory,
  disk_bytes_committed = h.disk_bytes_committed + u.disk,
  vms_committed = h.vms_committed + u.vms
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
  AS u(host, generation, cpu, memory, disk, vms)
WHERE h.host = u.host AND h.generation = u.generation
  AND h.cpu_milli_committed + u.cpu <= h.cpu_milli_capacity
  AND h.memory_bytes_committed + u.memory <= h.memory_bytes_capacity
  AND h.disk_bytes_committed + u.disk <= h.disk_bytes_capacity
  AND h.vms_committed + u.vms <= h.vms_capacity
RETURNING h.host
"""
_UNCHARGE_HOST = """
UPDATE host_amounts SET
  cpu_milli_committed = cpu_milli_committed - $1,
  memory_bytes_committed = memory_bytes_committed - $2,
  disk_bytes_committed = disk_bytes_committed - $3,
  vms_committed = vms_committed - 1
WHERE host = $4
"""
_CHARGE_COUNTER = """
UPDATE host_counters SET committed = committed + $1
WHERE host = $2 AND counter = $3 AND committed + $1 <= capacity RETURNING 1
"""
_CHARGE_PROJECT = """
UPDATE projects SET
  cpu_milli_used = cpu_milli_used + $1,
  memory_bytes_used = memory_bytes_used + $2,
  disk_bytes_used = disk_bytes_used + $3,
  vms_used = vms_used + $4
WHERE name = $5
  AND (cpu_milli_quota IS NULL OR cpu_milli_used + $1 <= cpu_milli_quota)
  AND (memory_bytes_quota IS NULL OR memory_bytes_used + $2 <= memory_bytes_quota)
  AND (disk_bytes_quota IS NULL OR disk_bytes_used + $3 <= disk_bytes_quota)
  AND (vms_quota IS NULL OR vms_used + $4 <= vms_quota)
RETURNING 1
"""
_UNCHARGE_PROJECT = """
UPDATE projects SET
  cpu_milli_used = cpu_milli_used - $1,
  memory_bytes_used = memory_bytes_used - $2,
  disk_bytes_used = disk_bytes_used - $3,
  vms_used = vms_used - 1
WHERE name = $4
"""
_APPEND_EVENTS = f"""
WITH counted AS (
  UPDATE counters SET value = value + $1 WHERE name = 'events' RETURNING value
), inserted AS (
  INSERT INTO events (seq, at_ms, actor, kind, subject, project, changes, note, tx)
  SELECT counted.value - $1 + u.place, u.at_ms, u.actor, u.kind, u.subject, u.project, u.changes,
    u.note, u.tx
  FROM counted, unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::text[]) WITH ORDINALITY
    AS u(at_ms, actor, kind, subject, project, changes, note, tx, place)
)
SELECT value, pg_notify('{CHANNEL}', '') FROM counted
"""


async def append_events(connection: Any, events: list[Event]) -> None:
    """Number and insert events: the last statement of a transaction."""
    if not events:
        return
    columns = list(zip(*(event.columns()[1:] for event in events), strict=True))
    last = await connection.fetchval(_APPEND_EVENTS, len(events), *map(list, columns))
    number_events(events, last)


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


class PostgresClaims:
    """One batch in one transaction."""

    def __init__(
        self,
        connection: "asyncpg.Connection[Any] | Any",
        proposals: Sequence[Proposal],
        snapshot: int,
        at_ms: int,
    ) -> None:
        self.connection = connection
        self.proposals = proposals
        self.snapshot = snapshot
        self.at_ms = at_ms
        self.outcomes = [KEPT] * len(proposals)
        self.generations: dict[str, int] = {}

    async def commit(self) -> list[Outcome]:
        """Keep what can be kept and return a verdict on each."""
        await self._use_keys()
        await self._insert_vms()
        await self._charge_hosts()
        await self._charge_counters()
        await self._charge_projects()
        await self._advance_groups()
        await self._insert_rest()
        return reconsidered(self.proposals, self.outcomes)

    def _alive(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is KEPT]

    async def _turn_away(
        self, index: int, outcome: Outcome, *, counters: int | None = None, project: bool = False
    ) -> None:
        self.outcomes[index] = outcome
        proposal = self.proposals[index]
        vm, claim = proposal.vm, proposal.claim
        execute = self.connection.execute
        await execute("DELETE FROM vms WHERE id = $1", vm.id)
        if proposal.key is not None:
            scope, key, _ = proposal.key
            await execute(
                "DELETE FROM idempotency WHERE scope = $1 AND key = $2 AND answer = $3",
                scope, key, vm.id,
            )  # fmt: skip
        if project:
            await execute(
                _UNCHARGE_PROJECT, vm.cpu_milli, vm.memory_bytes, vm.disk_bytes, vm.project
            )
        if counters is None or claim is None:
            return
        await execute(
            _UNCHARGE_HOST, claim.cpu_milli, claim.memory_bytes, claim.disk_bytes, claim.host
        )
        for counter, amount in proposal.counters[:counters]:
            await execute(
                "UPDATE host_counters SET committed = committed - $1 "
                "WHERE host = $2 AND counter = $3",
                amount, claim.host, counter,
            )  # fmt: skip

    async def _use_keys(self) -> None:
        keyed = [(i, p.key, p.vm.id) for i, p in enumerate(self.proposals) if p.key is not None]
        if not keyed:
            return
        # In ascending order: two batches that share keys wait for each other in the same order.
        rows = sorted((*key, vm_id, self.at_ms) for _, key, vm_id in keyed)
        new = {row["answer"] for row in await self.connection.fetch(_INSERT_KEYS, *_columns(rows))}
        for index, (scope, key, digest), vm_id in keyed:
            if vm_id in new:
                continue
            found = await self.connection.fetchrow(
                "SELECT digest, answer FROM idempotency WHERE scope = $1 AND key = $2", scope, key
            )
            if found is None:  # removed between the two statements: as good as never used
                self.outcomes[index] = Outcome(Verdict.STALE, "idempotency key")
                continue
            verdict = Verdict.REPLAYED if found["digest"] == digest else Verdict.KEY_REUSED
            self.outcomes[index] = Outcome(verdict, found["answer"])

    async def _insert_vms(self) -> None:
        alive = self._alive()
        if not alive:
            return
        rows = [self.proposals[index].vm for index in alive]
        rows.sort(key=lambda vm: (vm.project, vm.name))
        inserted = await self.connection.fetch(_INSERT_VMS, *_columns([astuple(r) for r in rows]))
        if len(inserted) == len(alive):
            return
        new = {row["id"] for row in inserted}
        for index in alive:
            if self.proposals[index].vm.id not in new:
                await self._turn_away(index, Outcome(Verdict.NAME_TAKEN))

    async def _charge_hosts(self) -> None:
        wanted = charges(self.proposals, self._alive())
        if not wanted:
            return
        await self.connection.execute(
            "SELECT 1 FROM host_amounts WHERE host = ANY($1::bigint[]) ORDER BY host FOR UPDATE",
            list(wanted),
        )
        together = [
            (host, c.generation, c.cpu_milli, c.memory_bytes, c.disk_bytes, c.vms)
            for host, c in wanted.items()
        ]
        charged = await self._charge(together)
        for host, charge in wanted.items():
            if host in charged:
                continue
            for index in charge.proposals:  # together they do not fit: one after the other
                proposal = self.proposals[index]
                claim = proposal.claim
                assert claim is not None
                alone = (host, proposal.host_generation, claim.cpu_milli, claim.memory_bytes,
                         claim.disk_bytes, 1)  # fmt: skip
                if not await self._charge([alone]):
                    await self._turn_away(index, Outcome(Verdict.STALE, "host"))

    async def _charge(self, rows: Sequence[tuple[int, ...]]) -> set[int]:
        found = await self.connection.fetch(_CHARGE_HOSTS, *_columns(rows))
        return {row["host"] for row in found}

    async def _charge_counters(self) -> None:
        asking = [i for i in self._alive() if self.proposals[i].counters]
        if not asking:
            return
        hosts = sorted({claim.host for i in asking if (claim := self.proposals[i].claim)})
        await self.connection.execute(
            "SELECT 1 FROM host_counters WHERE host = ANY($1::bigint[]) "
            "ORDER BY host, counter FOR UPDATE",
            hosts,
        )
        for index in asking:
            proposal = self.proposals[index]
            if proposal.claim is None:
                continue
            for done, (counter, amount) in enumerate(proposal.counters):
                if not await self.connection.fetchval(
                    _CHARGE_COUNTER, amount, proposal.claim.host, counter
                ):
                    await self._turn_away(index, Outcome(Verdict.STALE, counter), counters=done)
                    break

    async def _charge_projects(self) -> None:
        for project, asking in quota_charges(self.proposals, self._alive()).items():
            if await self._charge_project(project, asking):
                continue
            for index in asking:
                if await self._charge_project(project, [index]):
                    continue
                found = await self.connection.fetchrow(
                    "SELECT * FROM projects WHERE name = $1", project
                )
                proposal = self.proposals[index]
                outcome = Outcome(Verdict.NO_PROJECT)
                if found is not None:
                    outcome = Outcome(Verdict.QUOTA, quota=quota_detail(dict(found), proposal.vm))
                await self._turn_away(index, outcome, counters=len(proposal.counters))

    async def _charge_project(self, project: str, asking: list[int]) -> bool:
        rows = [self.proposals[index].vm for index in asking]
        return bool(
            await self.connection.fetchval(
                _CHARGE_PROJECT,
                sum(vm.cpu_milli for vm in rows),
                sum(vm.memory_bytes for vm in rows),
                sum(vm.disk_bytes for vm in rows),
                len(rows),
                project,
            )
        )

    async def _advance_groups(self) -> None:
        """Check what was seen of groups and label rules; nobody is turned away after this."""
        labelled = [i for i in self._alive() if self.proposals[i].rules is not None]
        if labelled:
            current = await self.connection.fetchval(
                "SELECT value FROM counters WHERE name = 'rules' FOR SHARE"
            )
            for index in labelled:
                if self.proposals[index].rules != current:
                    await self._moved_on(index, "label rules")
        asking = group_charges(self.proposals)
        if not asking:
            return
        found = await self.connection.fetch(
            "SELECT id, generation, hard AND rule = 'spread' AS spread FROM groups "
            "WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE",
            list(asking),
        )
        current = {row["id"]: row["generation"] for row in found}
        spread = [row["id"] for row in found if row["spread"]]
        for index in outpaced(self.proposals, self._alive(), asking, current, spread):
            await self._moved_on(index, "group")
        for group, indices in asking.items():
            kept = sum(self.outcomes[index] is KEPT for index in indices)
            if kept:
                self.generations[group] = current[group] + kept
        await self.connection.execute(
            "UPDATE groups SET generation = u.generation "
            "FROM unnest($1::text[], $2::bigint[]) AS u(id, generation) WHERE groups.id = u.id",
            list(self.generations), list(self.generations.values()),
        )  # fmt: skip

    async def _moved_on(self, index: int, what: str) -> None:
        counters = len(self.proposals[index].counters)
        outcome = Outcome(Verdict.STALE, what)
        await self._turn_away(index, outcome, counters=counters, project=True)

    async def _insert_rest(self) -> None:
        kept = [self.proposals[index] for index in self._alive()]
        rows = [astuple(p.claim) for p in kept if p.claim is not None]
        if rows:
            await self.connection.execute(_INSERT_CLAIMS, *_columns(rows))
        rows = [(group, p.vm.id) for p in kept for group, _ in p.groups]
        if rows:
            await self.connection.execute(_INSERT_MEMBERS, *_columns(rows))
        rows = [(p.vm.id, self.snapshot, "create", p.answer, self.at_ms) for p in kept if p.answer]
        if rows:
            await self.connection.execute(_INSERT_DECISIONS, *_columns(rows))
