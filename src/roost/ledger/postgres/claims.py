"""The claim path on PostgreSQL, written against asyncpg itself.

The common case, in which nobody loses, is one statement: whatever others wait for (the rows of
hosts and projects, the event counter) is locked for as long as the server works, not for as long
as messages travel. When somebody would lose, all of it is taken back and the proposals are gone
through step by step, one round trip each, as on SQLite. Arrays stand for rows, and rows that others
may want too are locked in ascending order before they are touched.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import asyncpg
from msgspec.structs import astuple
from sqlalchemy import BigInteger, Boolean, Float, Table

from roost.ledger.claims import capacity
from roost.ledger.claims.capacity import Charge
from roost.ledger.claims.holding import (
    READ_COUNTERS_HELD,
    READ_HOLDS,
    READ_SPECIAL,
    WRITE_COUNTER_HELD,
    WRITE_HELD,
    changed_counters,
    held_by_rows,
)
from roost.ledger.claims.proposals import (
    KEPT,
    HostCharge,
    Outcome,
    Proposal,
    Verdict,
    charges,
    charging_counters,
    coming_to,
    constraints_seen,
    group_charges,
    host_row,
    joined_groups,
    outpaced,
    project_row,
    quota_charges,
    reconsidered,
    spec_rows,
    special_hosts,
    user_data_rows,
)
from roost.ledger.schema.rows import ClaimRow, Event
from roost.ledger.schema.tables import (
    claims,
    decisions,
    idempotency,
    members,
    vm_specs,
    vm_user_data,
    vms,
)
from roost.ledger.writes.transaction import number_events
from roost.model.kept import Kept

#: Rung after every commit that has events.
CHANNEL = "roost_events"


def _type(column: Any) -> str:
    if isinstance(column.type, BigInteger) or column.name == "seq":
        return "bigint[]"
    if isinstance(column.type, Boolean):
        return "boolean[]"
    return "float8[]" if isinstance(column.type, Float) else "text[]"


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.c)


def _types(table: Table) -> list[str]:
    return [_type(column).removesuffix("[]") for column in table.c]


def _unnest(table: Table, *, rest: str = "") -> str:
    names = _names(table)
    arrays = ", ".join(f"${at}::{_type(column)}" for at, column in enumerate(table.c, 1))
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays}) {rest}"


_INSERT_KEYS = _unnest(idempotency, rest="ON CONFLICT DO NOTHING RETURNING answer")
_INSERT_VMS = _unnest(vms, rest="ON CONFLICT DO NOTHING RETURNING id")
_INSERT_SPECS = _unnest(vm_specs)
_INSERT_USER_DATA = _unnest(vm_user_data)
_INSERT_CLAIMS = _unnest(claims)
_INSERT_MEMBERS = _unnest(members)
_INSERT_DECISIONS = _unnest(decisions)
_APPEND_EVENTS = f"""
WITH counted AS (
  UPDATE counters SET value = value + $1
  WHERE name = 'events' AND constraints = coalesce($10::bigint, constraints) RETURNING value
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


class _Arrays:
    """The parameters of one statement, numbered as they are asked for."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, kind: str) -> str:
        """Return one more parameter."""
        self._last += 1
        return f"${self._last}::{kind}"

    def unnest(self, kinds: Sequence[str]) -> str:
        """Return rows of one array for each column."""
        return f"unnest({', '.join(self.next(f'{kind}[]') for kind in kinds)})"


@cache
def _keep_all_text(hosts: Charge, projects: Charge) -> str:
    """Return the statement that keeps a whole batch; it divides by zero when somebody would lose.

    Each step waits for the one before, because it asks how many rows that has touched: so rows are
    locked in the order that proposals.py gives, and nothing is waited for in vain. A batch of VMs
    that wait for room asks nothing of any host, so later steps ask for the VMs' rows too.
    """
    arrays = _Arrays()
    keys = arrays.unnest(["text"] * 4)
    at_ms = arrays.next("bigint")
    rows, specs, user_data = (arrays.unnest(_types(each)) for each in (vms, vm_specs, vm_user_data))
    asked_hosts, asked_projects = arrays.unnest(hosts.types), arrays.unnest(projects.types)
    promised = arrays.unnest(_types(claims))
    decided, snapshot = arrays.unnest(["text"] * 2), arrays.next("bigint")
    told, tx, number = arrays.unnest(["text"] * 5), arrays.next("text"), arrays.next("bigint")
    under = arrays.next("bigint")

    def all_of(step: str, asked: str) -> str:
        return f"(SELECT count(*) FROM {step}) = (SELECT count(*) FROM {asked})"

    return f"""
WITH keys_asked AS MATERIALIZED (SELECT * FROM {keys} AS k(scope, key, digest, answer)),
vms_asked AS MATERIALIZED (SELECT * FROM {rows} AS v({_names(vms)})),
hosts_asked({", ".join(hosts.columns)}) AS MATERIALIZED (SELECT * FROM {asked_hosts}),
projects_asked({", ".join(projects.columns)}) AS MATERIALIZED (SELECT * FROM {asked_projects}),
new_keys AS (
  INSERT INTO idempotency (scope, key, digest, answer, created_ms)
  SELECT scope, key, digest, answer, {at_ms} FROM keys_asked ON CONFLICT DO NOTHING RETURNING 1
), new_vms AS (
  INSERT INTO vms ({_names(vms)})
  SELECT * FROM vms_asked WHERE {all_of("new_keys", "keys_asked")}
  ON CONFLICT DO NOTHING RETURNING 1
), locked_hosts AS (
  SELECT host FROM host_amounts WHERE host = ANY(ARRAY(SELECT host FROM hosts_asked))
    AND {all_of("new_vms", "vms_asked")} ORDER BY host FOR UPDATE
), charged_hosts AS (
  {hosts.of("hosts_asked")} AND {all_of("locked_hosts", "hosts_asked")} RETURNING 1
), locked_projects AS (
  SELECT name FROM projects WHERE name = ANY(ARRAY(SELECT name FROM projects_asked))
    AND {all_of("new_vms", "vms_asked")} AND {all_of("charged_hosts", "hosts_asked")}
  ORDER BY name FOR UPDATE
), charged_projects AS (
  {projects.of("projects_asked")} AND {all_of("locked_projects", "projects_asked")} RETURNING 1
), new_specs AS (
  INSERT INTO vm_specs ({_names(vm_specs)}) SELECT * FROM {specs}
), new_user_data AS (
  INSERT INTO vm_user_data ({_names(vm_user_data)}) SELECT * FROM {user_data}
), new_claims AS (
  INSERT INTO claims ({_names(claims)}) SELECT * FROM {promised}
), new_decisions AS (
  INSERT INTO decisions (vm, snapshot, cause, answer, at_ms)
  SELECT d.vm, {snapshot}, 'create', d.answer, {at_ms} FROM {decided} AS d(vm, answer)
), counted AS (
  UPDATE counters SET value = value + {number}
  WHERE name = 'events' AND constraints = coalesce({under}, constraints)
    AND {all_of("new_vms", "vms_asked")}
    AND {all_of("charged_projects", "projects_asked")} RETURNING value
), new_events AS (
  INSERT INTO events (seq, at_ms, actor, kind, subject, project, changes, note, tx)
  SELECT counted.value - {number} + e.place, {at_ms}, e.actor, e.kind, e.subject, e.project,
    e.changes, '', {tx}
  FROM counted, {told} WITH ORDINALITY AS e(actor, kind, subject, project, changes, place)
)
SELECT (SELECT value FROM counted), pg_notify('{CHANNEL}', ''),
  1 / (SELECT count(*) FROM counted) AS somebody_lost
"""


@cache
def _from_arrays(charge: Charge) -> str:
    """Return a charge whose rows are arrays, one for each column."""
    arrays = ", ".join(f"${at}::{kind}[]" for at, kind in enumerate(charge.types, 1))
    asked = f"(SELECT * FROM unnest({arrays}) AS r({', '.join(charge.columns)}))"
    keys = ", ".join(f"t.{column}" for column in charge.key)
    return f"{charge.of(asked)}\nRETURNING {keys}"


async def append_events(connection: Any, events: list[Event], constraints: int | None) -> None:
    """Number and insert events: the last statement of a transaction.

    When the constraints are not of this generation any more, all of it is to be tried again.
    """
    if not events:
        return
    columns = list(zip(*(event.columns()[1:] for event in events), strict=True))
    last = await connection.fetchval(_APPEND_EVENTS, len(events), *map(list, columns), constraints)
    if last is None:
        raise asyncpg.SerializationError("the constraints have changed")
    number_events(events, last)


def _columns(rows: Sequence[Sequence[Any]], width: int = 0) -> list[Sequence[Any]]:
    """Return rows as columns; without rows as many empty ones as there would be."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


class PostgresClaims:
    """Commits one batch of proposals in a PostgreSQL transaction."""

    def __init__(
        self,
        connection: "asyncpg.Connection[Any] | Any",
        proposals: Sequence[Proposal],
        snapshot: int,
        at_ms: int,
        perhaps_ms: Sequence[int] = (),
    ) -> None:
        self.connection = connection
        self.proposals = proposals
        self.snapshot = snapshot
        self.at_ms = at_ms
        self.perhaps_ms = perhaps_ms  # what the time may be as well (`Tx`)
        self.outcomes = [KEPT] * len(proposals)
        self.generations: dict[str, int] = {}
        self.held: dict[int, Kept] = {}  # what hosts hold now, where it has changed
        self._special: list[int] = []  # hosts that are settled with their claims
        self._coming: dict[int, list[ClaimRow]] = defaultdict(list)  # charged, not inserted yet
        self.constraints: int | None = None  # the generation that those kept were placed under

    async def keep_all(self, events: list[Event], tx: str) -> bool:
        """Keep all proposals, with their events; False, and nothing is done, when one would lose.

        Outside of a transaction it is durable when this returns.
        """
        proposals, everybody = self.proposals, range(len(self.proposals))
        keys = sorted((*p.key, p.vm.id) for p in proposals if p.key is not None)
        rows = sorted((p.vm for p in proposals), key=lambda vm: (vm.project, vm.name))
        hosts = [charge.row(host) for host, charge in charges(proposals, everybody).items()]
        projects = [
            project_row(project, proposals, asking)
            for project, asking in quota_charges(proposals, everybody).items()
        ]
        taken = [astuple(p.claim) for p in proposals if p.claim is not None]
        decided = [(p.vm.id, p.answer) for p in proposals if p.answer]
        told = [(e.actor, e.kind, e.subject, e.project, e.changes) for e in events]
        try:
            last = await self.connection.fetchval(
                _keep_all_text(capacity.CHARGE_HOSTS, capacity.CHARGE_PROJECTS),
                *_columns(keys, 4), self.at_ms,
                *_columns([astuple(row) for row in rows], len(vms.c)),
                *_columns(spec_rows(proposals), len(vm_specs.c)),
                *_columns(user_data_rows(proposals), len(vm_user_data.c)),
                *_columns(hosts, len(capacity.CHARGE_HOSTS.columns)),
                *_columns(projects, len(capacity.CHARGE_PROJECTS.columns)),
                *_columns(taken, len(claims.c)),
                *_columns(decided, 2), self.snapshot,
                *_columns(told, 5), tx, len(events), constraints_seen(proposals),
            )  # fmt: skip
        except asyncpg.DivisionByZeroError:
            return False
        number_events(events, last)
        return True

    async def commit(self) -> list[Outcome]:
        """Commit the proposals that fit, step by step, and return a verdict on each."""
        await self._use_keys()
        await self._insert_vms()
        await self._charge_hosts()
        await self._charge_counters()
        await self._charge_projects()
        await self._advance_groups()
        await self._insert_rest()
        for host in self._special:
            await self._settle(host, ())
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
            await self._charge(capacity.CHARGE_PROJECTS, (vm.project, *vm.amounts.negative(), -1))
        if counters is None or claim is None:
            return
        back = (claim.host, None, *claim.amounts.negative(), -1)
        await self._charge(capacity.CHARGE_HOSTS, back)
        for counter, amount in proposal.counters[:counters]:
            await self._charge(capacity.CHARGE_COUNTERS, (claim.host, counter, -amount))

    async def _charge(self, charge: Charge, row: Sequence[int | str | None]) -> bool:
        return len(await self._charge_rows(charge, [row])) == 1

    async def _charge_rows(self, charge: Charge, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Change the sums of different keys and return the keys of those that were changed."""
        found: Sequence[Any] = await self.connection.fetch(_from_arrays(charge), *_columns(rows))
        return found

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
        self._special = special_hosts(self.proposals, self._alive())
        together = [
            charge.row(host) for host, charge in wanted.items() if host not in self._special
        ]
        charged = set()
        if together:
            found = await self._charge_rows(capacity.CHARGE_HOSTS, together)
            charged = {row["host"] for row in found}
        for host, charge in wanted.items():
            if host in charged or await self._charge_settled(host, charge):
                continue
            for index in charge.proposals:  # together they do not fit: one after the other
                if not await self._charge_alone(self.proposals[index]):
                    await self._turn_away(index, Outcome(Verdict.STALE, "host"))

    async def _charge_settled(self, host: int, charge: HostCharge) -> bool:
        """Charge all that a special host is asked at once, settled once; False when not all fit.

        Each is then charged alone: a claim only ever makes a host's load greater, so who fits
        with all the others fits with those before, too.
        """
        if host not in self._special or len(charge.claims) == 1:
            return False
        await self._settle(host, [claim for claim in charge.claims if claim.is_special])
        if await self._charge(capacity.CHARGE_HOSTS, charge.row(host)):
            return True
        await self._settle(host, ())
        return False

    async def _charge_alone(self, proposal: Proposal) -> bool:
        """Charge one proposal to its host, which holds less or more with a claim that ends."""
        claim = proposal.claim
        if claim is None or not claim.is_special:
            return await self._charge(capacity.CHARGE_HOSTS, host_row(proposal))
        coming = self._coming[claim.host]
        await self._settle(claim.host, [*coming, claim])
        if await self._charge(capacity.CHARGE_HOSTS, host_row(proposal)):
            coming.append(claim)
            return True
        await self._settle(claim.host, coming)
        return False

    async def _settle(self, host: int, coming: Sequence[ClaimRow]) -> None:
        """Write what a host must hold, of its rows and of claims that are not inserted yet."""
        of_holds = await self.connection.fetch(READ_HOLDS.replace("@", "$"), host)
        of_claims = await self.connection.fetch(READ_SPECIAL.replace("@", "$"), host)
        held = held_by_rows(of_holds, of_claims, coming, (self.at_ms, *self.perhaps_ms))
        write = WRITE_HELD.replace("@", "$")
        if await self.connection.execute(write, host, *held.limits) != "UPDATE 0":
            self.held[host] = held
        before = await self.connection.fetch(READ_COUNTERS_HELD.replace("@", "$"), host)
        for counter, amount in changed_counters(before, held.counters):
            write = WRITE_COUNTER_HELD.replace("@", "$")
            await self.connection.execute(write, host, counter, amount)
            self.held[host] = held

    async def _charge_counters(self) -> None:
        asking = charging_counters(self.proposals, self._alive())
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
                asked = (proposal.claim.host, counter, amount)
                if not await self._charge(capacity.CHARGE_COUNTERS, asked):
                    await self._turn_away(index, Outcome(Verdict.STALE, counter), counters=done)
                    claim = proposal.claim
                    if claim.is_special:  # what it was to draw is held again, before the next asks
                        kept = [self.proposals[each] for each in self._alive()]
                        await self._settle(claim.host, coming_to(claim.host, kept))
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
                    limits = capacity.passed_limits(dict(found), proposal.vm.amounts, 1)
                    outcome = Outcome(Verdict.QUOTA, quota=limits)
                await self._turn_away(index, outcome, counters=len(proposal.counters))

    async def _charge_project(self, project: str, asking: list[int]) -> bool:
        row = project_row(project, self.proposals, asking)
        return await self._charge(capacity.CHARGE_PROJECTS, row)

    async def _advance_groups(self) -> None:
        """Check what was seen of constraints, groups and label rules.

        Nobody is turned away after this. The constraints are compared once more with the last
        statement, whose row they are in: locked here, it would be kept from everybody else.
        """
        self.constraints = await self.connection.fetchval(
            "SELECT constraints FROM counters WHERE name = 'events'"
        )
        for index in self._alive():
            if self.proposals[index].constraints not in (None, self.constraints):
                await self._moved_on(index, "constraints")
        labelled = [i for i in self._alive() if self.proposals[i].rules is not None]
        if labelled:
            current = await self.connection.fetchval(
                "SELECT value FROM counters WHERE name = 'rules' FOR SHARE"
            )
            for index in labelled:
                if self.proposals[index].rules != current:
                    await self._moved_on(index, "label rules")
        asking, joined = group_charges(self.proposals), joined_groups(self.proposals)
        if not joined and not any(p.reads_amounts for p in self.proposals):
            return
        found = await self.connection.fetch(
            "SELECT id, generation, hard AND rule = 'spread' AS spread FROM groups "
            "WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE",
            joined,
        )
        current = {row["id"]: row["generation"] for row in found}
        spread = [row["id"] for row in found if row["spread"]]
        while True:
            lost = [(index, "amounts") for index in await self._misjudged()] or [
                (index, "group")
                for index in outpaced(self.proposals, self._alive(), asking, current, spread)
            ]
            for index, what in lost:
                await self._moved_on(index, what)
            if not lost:
                break
        for group, indices in asking.items():
            kept = sum(self.outcomes[index] is KEPT for index in indices)
            if kept:
                self.generations[group] = current[group] + kept
        await self.connection.execute(
            "UPDATE groups SET generation = u.generation "
            "FROM unnest($1::text[], $2::bigint[]) AS u(id, generation) WHERE groups.id = u.id",
            list(self.generations), list(self.generations.values()),
        )  # fmt: skip

    async def _misjudged(self) -> list[int]:
        """Return those whose rules read what their host or project has not come to in the end.

        Both rows are locked: they were charged before.
        """
        found = []
        for index in self._alive():
            proposal = self.proposals[index]
            if proposal.host_after is not None and proposal.claim is not None:
                limits = await self.connection.fetchrow(
                    f"SELECT {capacity.PROMISED} FROM host_amounts WHERE host = $1",
                    proposal.claim.host,
                )
                counters = await self.connection.fetch(
                    capacity.PROMISED_EXTENDED.replace("@host", "$1"), proposal.claim.host
                )
                now = capacity.Promised.of_rows(limits, counters)
                if not proposal.host_after.is_as_read(now, special=proposal.claim.is_special):
                    found.append(index)
                    continue
            if proposal.project_after is not None:
                used = await self.connection.fetchrow(
                    f"SELECT {capacity.PROJECT_USE} FROM projects WHERE name = $1",
                    proposal.vm.project,
                )
                if capacity.ProjectUse.of_row(tuple(used)) != proposal.project_after:
                    found.append(index)
        return found

    async def _moved_on(self, index: int, what: str) -> None:
        counters = len(self.proposals[index].counters)
        outcome = Outcome(Verdict.STALE, what)
        await self._turn_away(index, outcome, counters=counters, project=True)

    async def _insert_rest(self) -> None:
        kept = [self.proposals[index] for index in self._alive()]
        if kept:
            await self.connection.execute(_INSERT_SPECS, *_columns(spec_rows(kept)))
        if data := user_data_rows(kept):
            await self.connection.execute(_INSERT_USER_DATA, *_columns(data))
        rows = [astuple(p.claim) for p in kept if p.claim is not None]
        if rows:
            await self.connection.execute(_INSERT_CLAIMS, *_columns(rows))
        rows = [(group, p.vm.id) for p in kept for group, _ in p.groups]
        if rows:
            await self.connection.execute(_INSERT_MEMBERS, *_columns(rows))
        rows = [(p.vm.id, self.snapshot, "create", p.answer, self.at_ms) for p in kept if p.answer]
        if rows:
            await self.connection.execute(_INSERT_DECISIONS, *_columns(rows))
