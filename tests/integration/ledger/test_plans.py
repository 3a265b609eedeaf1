"""Query plans: no question of a start, of doctor or of retention goes through a table in a loop.

The statements are collected while the real code runs on a filled database, then explained: on
PostgreSQL before there are any statistics, as right after a large restore, and with them. What is
wrong at a hundred thousand VMs is already wrong here, by its plan: a scan of a large table for each
row of another takes minutes there, and nothing warns of it.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Connection, Table, event, func, select, text

from roost.control.agents.dispatch import Dispatch
from roost.control.memory.follower import _NEXT
from roost.control.survive.restore_judge import what_is_open
from roost.control.vms.states import count_states
from roost.jobs import detecting, planner, renting
from roost.jobs.stats import read_stats
from roost.ledger.postgres import store as postgres
from roost.ledger.schema.jobtables import job_arrays, jobs, machines
from roost.ledger.schema.tables import claims, constraints, metadata, reservations, vms
from roost.ledger.sqlite import writer as sqlitewriter
from roost.ledger.store import Store
from roost.ledger.upkeep import checks
from roost.ledger.upkeep.fold import FOLDED
from roost.ledger.upkeep.retention import purge, surplus
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.wire.jobs import AskStats
from tests.databases import opened
from tests.examining import parts_on
from tests.integration.ledger.records import add_host, vm_row

VMS, HOSTS = 6_000, 800
#: Tables that grow with the fleet or with time.
LARGE = frozenset(metadata.tables) - {
    "counters", "leases", "projects", "groups", "pools", "accounts", "job_kinds",
}  # fmt: skip

_FILL = (
    "INSERT INTO vms ({columns}) SELECT {values} FROM n",
    "INSERT INTO claims SELECT 'vm-' || i || ':run', 'vm-' || i, 1 + i % {hosts}, 'run', 1000, 1,"
    " 0, '', 0, 0, NULL, NULL FROM n",
    "INSERT INTO vm_specs SELECT 'vm-' || i, 1, '{{\"demand\":{{\"cpu_milli\":1000,'"
    " || '\"memory_bytes\":1}}}}' FROM n",
    "INSERT INTO groups SELECT 'default/g' || i, 'default', 'g' || i, 'spread', 'host', {true}, 9,"
    " 50, '', 0, NULL, NULL FROM n WHERE i <= 20",
    "INSERT INTO members SELECT 'default/g' || (1 + i % 20), 'vm-' || i FROM n WHERE i <= 3000",
    "INSERT INTO tombstones SELECT 'old-' || i, 1 + i % {hosts}, 1, 'default', 0 FROM n"
    " WHERE i <= 2000",
    "INSERT INTO events (seq, at_ms, actor, kind, subject, changes, note, tx)"
    " SELECT i, 0, 'x', 'vm.created', 'vm/' || i, '{{}}', '', 'tx-' || i FROM n",
    "INSERT INTO idempotency SELECT 's', 'k' || i, 'd', 'a', i FROM n",
    "INSERT INTO decisions SELECT 'vm-' || i, 1, 'create', '', i FROM n",
    "INSERT INTO decisions SELECT 'vm-1', i, 'create', '', i FROM n WHERE i > 5900",
    "INSERT INTO samples SELECT 1 + i % {hosts}, 'vm-' || i, i, 1, 1, 1, NULL FROM n",
    "INSERT INTO doubts SELECT 'vm-' || i FROM n WHERE i <= 2000",
    "INSERT INTO mixes SELECT 'mix-' || i, '[]', i FROM n",
    "INSERT INTO vm_ends SELECT 'gone-' || i, 'default', 1000, 1, '', i, i FROM n",
    "INSERT INTO lifetimes SELECT i, 1, 'default', '', i % 40, 1024, i FROM n",
    "INSERT INTO plans SELECT 'plan-' || i, 'balance', 'done', 1, '', '', 1, 0, '', NULL,"
    " NULL, i, 'x', NULL, NULL FROM n WHERE i <= 600",
    "INSERT INTO plan_moves SELECT 'plan-' || (1 + i % 600), i, 1, 'vm-' || i, 'vm', 1,"
    " 1 + i % {hosts}, 'done', '', 0, '', '', 1, 1 FROM n",
    "INSERT INTO job_arrays ({arrays}) SELECT {array} FROM n WHERE i <= 600",
    "INSERT INTO jobs ({jobs}) SELECT {job} FROM n",
    "INSERT INTO job_links SELECT 'job-' || i, 'job-' || (i - 1) FROM n WHERE i BETWEEN 2 AND 600",
    "INSERT INTO job_attempts SELECT 'job-' || (1 + i % 600), i, 1, 'm', '', '', NULL, 1, NULL, i"
    " FROM n",
    "INSERT INTO job_logs SELECT 'm/job-' || i || '.0:1', 'stdout', 0, '', 10, 0, i FROM n",
    "INSERT INTO machines ({machines}) SELECT {machine} FROM n WHERE i <= 2000",
    "INSERT INTO asked SELECT '{{\"cpu_milli\":' || i || ',\"memory_bytes\":1}}', i, i FROM n",
    "INSERT INTO constraints ({rules}) SELECT {rule} FROM n WHERE i <= 600",
    "INSERT INTO policies SELECT 'p-' || i, '', '{{}}', 1, 0, '', 0, '' FROM n WHERE i <= 200",
    "INSERT INTO relaxations SELECT 'vm-' || i, 'rule-' || (1 + i % 600), 0, i, NULL FROM n",
    "INSERT INTO priority_classes SELECT 'c-' || i, i, 'lower', {false}, '', 0, '', 0, '' FROM n"
    " WHERE i <= 200",
    "INSERT INTO flavors SELECT 'f-' || i, '{{\"cpu\":1,\"memory\":1}}', '', 0, '', 0, '' FROM n"
    " WHERE i <= 600",
    "INSERT INTO reservations ({kepts}) SELECT {kept} FROM n WHERE i <= 600",
    "INSERT INTO holds SELECT 'r-' || (1 + i % 600) || '/' || i, 1 + i % {hosts}, 'reservation',"
    " 'project:default', 1, 1, 0, 1, '[]', NULL FROM n",
    "INSERT INTO displaced SELECT 'vm-' || i, 'vm-1', 1, i FROM n WHERE i <= 600",
    "INSERT INTO roll_call SELECT i, {true} FROM n WHERE i <= {hosts}",
    "INSERT INTO topologies SELECT 'fleet', 1, '{{}}', 0, '' FROM n WHERE i = 1",
    "INSERT INTO traffic SELECT 'declared', 1, '[' || {joined} || ']', 0, '' FROM n"
    " WHERE i <= 3000",
)
#: A pair of VMs that talk, by their names.
_PAIR = '\'{"a":"default/vm-\' || i || \'","b":"default/vm-\' || (i + 3000) || \'","mbit":1.0}\''


def _fill(tx: Tx) -> None:
    postgres = tx.connection.dialect.name == "postgresql"
    for number in range(1, HOSTS + 1):
        add_host(tx, number, counters={"x:licence": 1})
    tx.events.clear()
    row = {name: getattr(vm_row("x"), name) for name in vm_row("x").__struct_fields__}
    made = {"id": "'vm-' || i", "name": "'vm-' || i", "host": f"1 + i % {HOSTS}"}
    values = [
        made.get(name) or ("NULL" if value is None else repr(value)) for name, value in row.items()
    ]
    words = {"columns": ", ".join(row), "values": ", ".join(values), "hosts": HOSTS,
             "true": "TRUE" if postgres else "1"}  # fmt: skip
    words |= {
        "false": "FALSE" if postgres else "0",
        "joined": f"string_agg({_PAIR}, ',')" if postgres else f"group_concat({_PAIR}, ',')",
    }
    words |= _of("rule", constraints, id="'rule-' || i", name="'rule-' || i",
                 expression="'host.zone == \"a\"'", form="'cel'", kind="'hard'",
                 enabled=words["true"])  # fmt: skip
    words |= _of("kept", reservations, id="'r-' || i", owner_kind="'project'", owner="'default'",
                 windows="'[]'")  # fmt: skip
    words |= _of("array", job_arrays, id="'job-' || i", size="10", queued="0", spec="'{}'",
                 finished_ms="CASE WHEN i % 2 = 0 THEN i END")  # fmt: skip
    words |= _of("job", jobs, array="'job-' || (1 + i % 600)", idx="i", machine="NULL",
                 state="CASE WHEN i % 3 = 0 THEN 'queued' ELSE 'completed' END")  # fmt: skip
    words |= _of("machine", machines, id="'m-' || i",
                 ended_ms="CASE WHEN i > 20 THEN i END")  # fmt: skip
    numbers = f"n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {VMS})"
    for statement in _FILL:
        tx.connection.exec_driver_sql(f"WITH RECURSIVE {numbers} {statement.format(**words)}")
    tx.connection.execute(text(f"UPDATE counters SET value = {VMS} WHERE name = 'events'"))


def _of(word: str, table: Table, **given: str) -> dict[str, str]:
    """Return the columns of a table and a value for each: what is given, else zero or empty."""
    values = [
        given.get(each.name) or ("NULL" if each.nullable else "0" if _is_number(each) else "''")
        for each in table.columns
    ]
    return {
        f"{word}s": ", ".join(f'"{each.name}"' for each in table.columns),
        word: ", ".join(values),
    }


def _is_number(column: Column[Any]) -> bool:
    return isinstance(column.type, BigInteger)


@contextmanager
def collected(
    connection: Connection, times: Counter[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Collect the statements that run, with the parameters of the last time, and how often."""
    found: dict[str, Any] = {}

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        found[statement] = parameters
        if times is not None:
            times[statement] += 1

    event.listen(connection.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(connection.engine, "before_cursor_execute", note)


def _start(connection: Connection, store: Store) -> None:
    """Load every part of a plane, list what one host is to run, and follow the next events."""
    parts = parts_on(store)
    for part in parts:
        part.load(connection)
    [dispatch] = (part for part in parts if isinstance(part, Dispatch))
    dispatch.whole_list(connection, 1)
    connection.execute(_NEXT, {"since": 100}).all()


def _doctor(connection: Connection, store: Store) -> None:
    found = checks.examine(connection)
    for part in parts_on(store):
        part.examine(connection, found)
    assert {
        "committed",
        "fold",
        "quotas",
        "vms",
        "specs",
        "hosts",
        "groups",
    } <= found.checked.keys()
    what_is_open(connection)
    for folded in FOLDED.values():
        list(folded.rows(connection))


def _retention(connection: Connection, store: Store) -> None:
    every = [kept for part in parts_on(store) for kept in part.keeps]
    surpluses = {}
    for kept in every:
        kept = replace(kept, most=100) if kept.most is not None else kept
        found = surpluses[kept.table.name] = surplus(connection, kept, 500)
        purge(Tx(connection, "test", 0, "tx"), kept, 10**12, 500, found)
    assert len(surpluses) == 9
    assert surpluses["decisions"].keys
    assert all(surpluses[name].beyond for name in ("job_arrays", "job_logs", "machines"))


def _jobs(connection: Connection, _store: Store) -> None:
    """Ask what the planner, the detector, renting and users ask all the time."""
    planner._read(connection, 10**12)
    renting._has_work(connection, [], 0)
    planner._next_jobs(connection, "job-1", 1, 5)
    detecting._beyond_queue(connection, 10**12)
    detecting._beyond_run(connection, 10**12)
    read_stats(connection, AskStats(), Principal("x", "operator"), 10**12)


def _metrics(connection: Connection, _store: Store) -> None:
    assert sum(count_states(connection).values()) == VMS


def _claims_by_vm(connection: Connection, _store: Store) -> None:
    held = select(func.count()).select_from(claims).where(claims.c.vm == vms.c.id)
    connection.execute(select(vms.c.id, held.scalar_subquery())).all()


WORK = {"start": _start, "doctor": _doctor, "retention": _retention, "jobs": _jobs,
        "metrics": _metrics}  # fmt: skip
WRONG = {"claims by VM": _claims_by_vm}
#: What consists of fewer statements than the others.
SMALL = {"metrics", *WRONG}


# Reading plans


def _slow_on_postgres(plan: dict[str, Any], *, looped: bool = False) -> Iterator[str]:
    """Yield the scans of large tables that a plan repeats for the rows of something else."""
    table = plan.get("Relation Name")
    whole = plan["Node Type"] == "Seq Scan" or (
        plan["Node Type"] in ("Index Scan", "Index Only Scan") and "Index Cond" not in plan
    )
    if looped and whole and table in LARGE:
        yield f"{plan['Node Type']} of {table} in a loop"
    filters = " ".join(str(plan.get(key, "")) for key in ("Filter", "Join Filter", "Output"))
    for child in plan.get("Plans", ()):
        relation, name = child["Parent Relationship"], child.get("Subplan Name", "")
        again = relation == "Inner" and plan["Node Type"] == "Nested Loop"
        correlated = relation == "SubPlan" and f"hashed {name}" not in filters
        once = relation == "InitPlan" or (relation == "SubPlan" and not correlated)
        yield from _slow_on_postgres(child, looped=not once and (looped or again or correlated))


_STEP = re.compile(r"^(SCAN|SEARCH) (\S+)(.*)")


def _slow_on_sqlite(
    rows: list[tuple[int, int, int, str]], *, looped: bool = False
) -> Iterator[str]:
    """The same for SQLite: of the steps of one level, all but the first are loops in loops."""
    children: dict[int, list[tuple[int, str]]] = {}
    for number, parent, _, detail in rows:
        children.setdefault(parent, []).append((number, detail))

    def walk(parent: int, looped: bool) -> Iterator[str]:
        inner = looped
        for number, detail in children.get(parent, ()):
            step = _STEP.match(detail)
            if step is not None:
                word, table, rest = step.groups()
                missing = word == "SCAN" or "AUTOMATIC" in rest
                if inner and missing and table in LARGE:
                    yield f"{detail} in a loop"
                inner = True
            yield from walk(number, looped or detail.startswith("CORRELATED"))

    yield from walk(0, looped)


def _explained(
    connection: Connection, statement: str, parameters: Any, *, again: bool = False
) -> list[str]:
    """Return what is wrong with a statement's plan; `again`: the work asks it in a loop itself."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return list(_slow_on_sqlite([tuple(row) for row in found], looped=again))  # type: ignore[misc]
    found = connection.exec_driver_sql(f"EXPLAIN (VERBOSE, FORMAT JSON) {statement}", parameters)
    plan = found.scalar_one()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return list(_slow_on_postgres(plan[0]["Plan"], looped=again))


def unfilled(connection: Connection, statements: Iterable[str]) -> set[str]:
    """Return the tables that statements read and that have no rows: their plans say nothing."""
    read = set(re.findall(r"\w+", " ".join(statements))) & set(metadata.tables)
    return {
        name
        for name in read
        if connection.execute(select(metadata.tables[name]).limit(1)).first() is None
    }


def slow_statements(url: str, work: str, *, statistics: bool = False) -> list[str]:
    """Return what is wrong with the plans of some work on a filled database."""

    def question(connection: Connection, store: Store) -> list[str]:
        # A load asks by keys what it asks again and again; the others go through tables in pieces.
        # With statistics so small a table is rightly scanned for 500 names.
        often = 5 if work == "start" and not statistics else inf
        times: Counter[str] = Counter()
        with collected(connection, times) as found:
            (WORK | WRONG)[work](connection, store)
        assert len(found) > 3 or work in SMALL
        if work == "start":
            assert unfilled(connection, found) == set()
        return [
            f"{slow}: {statement}"
            for statement, parameters in found.items()
            for slow in _explained(
                connection, statement, parameters, again=times[statement] > often
            )
        ]

    async def run() -> list[str]:
        async with opened(url) as store:
            if url.startswith("postgresql"):
                alone = [f"ALTER TABLE {name} SET (autovacuum_enabled = off)" for name in LARGE]
                await store.write(
                    lambda tx: [tx.connection.execute(text(a)) for a in alone] and None
                )
            await store.write(_fill)
            if statistics:
                await store.write(lambda tx: tx.connection.execute(text("ANALYZE")) and None)
            return await store.write(lambda tx: question(tx.connection, store))

    return asyncio.run(run())


@pytest.mark.parametrize("statistics", [False, True], ids=["fresh", "analyzed"])
@pytest.mark.parametrize("work", WORK)
def test_no_plan_reads_a_large_table_in_a_loop(
    database_url: str, work: str, statistics: bool
) -> None:
    assert slow_statements(database_url, work, statistics=statistics) == []


def test_queued_jobs_are_found_by_the_index_of_what_is_queued(database_url: str) -> None:
    """The jobs of an array that have ended, thousands of them, are not looked at for the next."""
    asked: dict[str, Callable[[Connection], object]] = {
        "planner": lambda c: planner._next_jobs(c, "job-1", 1, 5),
        "detector": lambda c: detecting._beyond_queue(c, 10**12),
    }

    def plans(connection: Connection) -> dict[str, str]:
        found = {}
        for name, ask in asked.items():
            with collected(connection) as said:
                ask(connection)
            [(statement, parameters)] = said.items()
            word = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
            rows = connection.exec_driver_sql(f"{word} {statement}", parameters)
            found[name] = "\n".join(str(row) for row in rows)
        return found

    async def run() -> None:
        async with opened(database_url) as store:
            await store.write(_fill)
            await store.write(lambda tx: tx.connection.execute(text("ANALYZE")) and None)
            for name, plan in (await store.write(lambda tx: plans(tx.connection))).items():
                assert "jobs_queued" in plan, f"{name}: {plan}"

    asyncio.run(run())


def test_a_question_by_a_column_without_an_index_is_caught(database_url: str) -> None:
    """Claims are found by their ids; a check that asked for their VM would read them all, often."""
    wrong = slow_statements(database_url, "claims by VM")
    assert any("claims" in each for each in wrong), wrong


def test_a_lost_commit_is_looked_up_by_sequence(database_url: str) -> None:
    def lookup(connection: Connection) -> str:
        if connection.dialect.name == "sqlite":
            explain = f"EXPLAIN QUERY PLAN {sqlitewriter.FIND_TX}"
            found = connection.exec_driver_sql(explain, (17, "tx-17"))
        else:
            statement = str(postgres.FIND_TX).replace(":since", "5990").replace(":tx", "'tx-17'")
            connection.execute(postgres.BY_KEY)
            found = connection.exec_driver_sql(f"EXPLAIN {statement}")
        return "\n".join(str(row) for row in found)

    async def run() -> None:
        async with opened(database_url) as store:
            await store.write(_fill)
            plan = await store.read(lookup)
            assert "Seq Scan" not in plan
            assert "SCAN" not in plan
            assert "Index Cond: (seq" in plan or "PRIMARY KEY (rowid>?)" in plan, plan

    asyncio.run(run())
