"""A batch of creates in one statement leaves the same rows as one that is gone through in steps."""

import asyncio
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select

from roost.base.ids import IdSource
from roost.ledger.claims.proposals import KEPT, Outcome, Proposal
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import metadata
from roost.ledger.sqlite import whole as sqlitewhole
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import DatabaseUnavailable
from roost.testing.clock import HandClock
from tests.integration.ledger.records import add_host, add_project, proposal

HOSTS = 3
_BATCHES = st.lists(
    st.lists(
        st.builds(
            dict,
            number=st.integers(1, 6),
            host=st.sampled_from([None, 1, 2, HOSTS]),
            generation=st.sampled_from([1, 1, 1, 1, 2]),
            key=st.sampled_from([None, None, "a", "b"]),
            answer=st.sampled_from(["", "{}"]),
            user_data=st.sampled_from(["", "#cloud-config"]),
            project=st.sampled_from(["default", "default", "small", "nowhere"]),
            cpu_milli=st.sampled_from([0, 1000, 9000]),
        ),
        max_size=5,
    ),
    max_size=5,
)


_VM = {"number": 1, "host": 1, "generation": 1, "key": "a", "answer": "{}",
       "user_data": "#cloud-config", "project": "default", "cpu_milli": 9000}  # fmt: skip
#: Something of each kind, and a second VM for which its host has no room.
_EVERYTHING = [[_VM], [{**_VM, "number": 2, "key": "b"}]]
#: Two VMs that saw different generations of one host: charged together, one would be forgotten.
_TWO_VIEWS = [
    {**_VM, "number": number, "key": None, "cpu_milli": 1000, "generation": number}
    for number in (1, 2)
]


def _proposals(batch: list[dict[str, Any]], turn: int) -> list[Proposal]:
    found = []
    for place, each in enumerate(batch):
        key = None if each["key"] is None else ("s", each["key"], "d")
        found.append(
            proposal(
                f"vm-{turn}-{place}",
                each["host"],
                name=f"vm-{each['number']}",
                generation=each["generation"],
                key=key,
                answer=each["answer"],
                user_data=each["user_data"],
                project=each["project"],
                cpu_milli=each["cpu_milli"],
            )
        )
    return found


def _rows(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return all there is; transactions may have other names."""
    return {
        name: sorted(
            tuple(value for column, value in row._mapping.items() if column != "tx")
            for row in connection.execute(select(table))
        )
        for name, table in metadata.tables.items()
    }


@cache
def _hosts_and_projects() -> bytes:
    """Return a ledger with a few hosts and a small project, as a file's bytes."""

    async def run(path: Path) -> None:
        store = _store(path)
        for number in range(1, HOSTS + 1):
            await store.write(lambda tx: add_host(tx, number, cpu_milli=10_000))  # noqa: B023
        await store.write(lambda tx: add_project(tx, "small", vms_quota=2))
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roost.db"
        asyncio.run(run(path))
        return path.read_bytes()


def _store(path: Path) -> SqliteStore:
    clock = HandClock()
    return SqliteStore(path, clock, IdSource(clock.wall_ms), inline=True, full=False)


def outcome(batches: list[list[dict[str, Any]]]) -> tuple[Any, ...]:
    """Return verdicts, rows and what a follower is told after some batches."""

    async def run(path: Path) -> tuple[Any, ...]:
        store = _store(path)
        heard: list[Event] = []
        store.listener = heard.extend
        verdicts: list[Outcome] = []
        for turn, batch in enumerate(batches):
            asked = _proposals(batch, turn)
            verdicts += await store.claim(asked, ["test"] * len(asked), turn)
        rows = await store.read(_rows)
        await store.close()
        return verdicts, rows, [(e.seq, e.kind, e.subject, e.changes, e.actor) for e in heard]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roost.db"
        path.write_bytes(_hosts_and_projects())
        return asyncio.run(run(path))


def in_steps(batches: list[list[dict[str, Any]]]) -> tuple[Any, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlitewhole, "separable", lambda _: False)
        return outcome(batches)


@settings(deadline=None, max_examples=50)
@given(_BATCHES)
@example([_TWO_VIEWS])
def test_one_statement_is_worth_all_steps(batches: list[list[dict[str, Any]]]) -> None:
    assert outcome(batches) == in_steps(batches)


# Broken on purpose


@pytest.mark.parametrize(
    ("step", "instead"),
    [
        ("INSERT INTO vm_user_data", "SELECT 1"),
        ("INSERT INTO decisions", "SELECT 1"),
        ("INSERT INTO idempotency", "SELECT 1"),
        ("SELECT RAISE(ABORT, 'host')", "SELECT 1"),
        ("UPDATE host_amounts", "SELECT 1"),
    ],
)
def test_a_trigger_that_leaves_something_out_is_found(
    monkeypatch: pytest.MonkeyPatch, step: str, instead: str
) -> None:
    real = sqlitewhole._steps
    monkeypatch.setattr(
        sqlitewhole,
        "_steps",
        lambda *charges: [instead if each.startswith(step) else each for each in real(*charges)],
    )
    assert outcome(_EVERYTHING) != in_steps(_EVERYTHING)


def test_a_ledger_that_is_elsewhere_than_expected_is_not_written(tmp_path: Path) -> None:
    """Sequences are remembered, not asked for: should the memory ever be wrong, nothing is kept."""
    path = tmp_path / "roost.db"
    path.write_bytes(_hosts_and_projects())

    async def run() -> None:
        store = _store(path)
        heard: list[Event] = []
        store.listener = heard.extend
        await store.claim([proposal("vm-1", 1)], ["test"], 0)
        store._writer._last = 2
        await store.claim([proposal("vm-2", 1)], ["test"], 0)  # in steps, from the ledger's count
        await store.claim([proposal("vm-3", 1)], ["test"], 0)
        assert [event.seq for event in heard] == [5, 6, 7]
        await store.close()

    asyncio.run(run())


def test_a_commit_that_fails_after_it_was_made_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "roost.db"
    path.write_bytes(_hosts_and_projects())
    write = sqlitewhole.WholeBatch.write

    def late(self: sqlitewhole.WholeBatch, raw: sqlite3.Connection, last: int) -> bool:
        assert write(self, raw, last)
        raise sqlite3.OperationalError("disk I/O error")

    def early(self: sqlitewhole.WholeBatch, raw: sqlite3.Connection, last: int) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    async def run() -> None:
        store = _store(path)
        heard: list[Event] = []
        store.listener = heard.extend
        monkeypatch.setattr(sqlitewhole.WholeBatch, "write", late)
        assert await store.claim([proposal("vm-1", 1)], ["test"], 0) == [KEPT]
        monkeypatch.setattr(sqlitewhole.WholeBatch, "write", early)
        with pytest.raises(DatabaseUnavailable):
            await store.claim([proposal("vm-2", 1)], ["test"], 0)
        monkeypatch.setattr(sqlitewhole.WholeBatch, "write", write)
        assert await store.claim([proposal("vm-2", 1)], ["test"], 0) == [KEPT]
        assert [event.seq for event in heard] == [5, 6]
        await store.close()

    asyncio.run(run())


def test_a_batch_whose_sum_is_no_number_of_the_database_fails_alone(tmp_path: Path) -> None:
    """Nobody can ask for so much; should they, the writer goes on for all others."""
    path = tmp_path / "roost.db"
    path.write_bytes(_hosts_and_projects())

    async def run() -> None:
        store = _store(path)
        large = [proposal(f"vm-{n}", None, name=f"vm-{n}", cpu_milli=2**62) for n in (1, 2)]
        assert await store.claim([proposal("vm-0", 1, name="vm-0")], ["test"], 0) == [KEPT]
        connection = store._writer._open
        with pytest.raises(OverflowError):
            await store.claim(large, ["test", "test"], 0)
        assert store._writer._open is connection
        assert await store.claim([proposal("vm-3", 1)], ["test"], 0) == [KEPT]
        await store.close()

    asyncio.run(run())
