"""Opening a ledger: a fresh one is made, and what is no ledger of this roost is left as it is."""

import asyncio
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import select, text

from roost.base.errors import Conflict, RoostError
from roost.ledger.schema.tables import projects
from roost.ledger.sqlite.store import _not_opened
from roost.ledger.store import DatabaseUnavailable
from roost.ledger.writes.transaction import Tx
from tests.databases import opened

LATER = "UPDATE alembic_version SET version_num = '9001'"
_WANTS_TLS = struct.pack("!I", 80877103)
OTHERS_REVISION = "UPDATE alembic_version SET version_num = 'ae10c3f5b2d7'"


def test_a_fresh_database_has_the_default_project(database_url: str) -> None:
    async def run() -> list[str]:
        async with opened(database_url) as store:
            return await store.read(lambda c: list(c.execute(select(projects.c.name)).scalars()))

    assert asyncio.run(run()) == ["default"]


def change(url: str, *statements: str) -> None:
    """Run statements on a ledger, behind its back."""

    def run(tx: Tx) -> None:
        for statement in statements:
            tx.connection.execute(text(statement))

    async def whole() -> None:
        async with opened(url) as store:
            await store.write(run)

    asyncio.run(whole())


def refusal(url: str) -> RoostError:
    """Open a ledger that cannot be opened, and return why."""

    async def whole() -> None:
        async with opened(url):
            pass

    with pytest.raises(RoostError) as caught:
        asyncio.run(whole())
    return caught.value


def test_a_ledger_of_a_later_release_is_left_alone(database_url: str) -> None:
    change(database_url, LATER)
    error = refusal(database_url)
    assert isinstance(error, Conflict)
    assert "the ledger has schema 9001, and this roost knows none after 00" in error.message
    assert "start that release" in str(error.hint)


@pytest.mark.parametrize(
    "foreign", ["DROP TABLE alembic_version", OTHERS_REVISION], ids=["no revision", "another's"]
)
def test_a_database_of_another_program_is_left_alone(database_url: str, foreign: str) -> None:
    change(database_url, "CREATE TABLE aardvarks (legs INTEGER)", foreign)
    error = refusal(database_url)
    assert isinstance(error, Conflict)
    assert "is no ledger of roost: it has other tables (aardvarks, " in error.message
    assert "--database" in str(error.hint)


def test_a_file_of_another_program_keeps_every_byte(tmp_path: Path) -> None:
    """Its journal mode too, which a connection of roost would change for good."""
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE aardvarks (legs INTEGER)")
        connection.commit()
    before = file.read_bytes()
    assert isinstance(refusal(f"sqlite:///{file}"), Conflict)
    assert file.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "roost.db"
    file.write_text("dear diary, " * 1000)
    error = refusal(f"sqlite:///{file}")
    assert isinstance(error, Conflict)  # and is not waited for
    assert "cannot be opened as a ledger: file is not a database" in error.message
    assert "restore a backup" in str(error.hint)
    assert file.read_text() == "dear diary, " * 1000


def test_a_damaged_ledger_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "roost.db"
    change(f"sqlite:///{file}")
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    error = refusal(f"sqlite:///{file}")
    assert isinstance(error, Conflict)
    assert "cannot be opened as a ledger" in error.message


def test_a_file_that_another_program_locks_is_waited_for(tmp_path: Path) -> None:
    """A back-up that holds the file ends by itself."""
    error = _not_opened(tmp_path / "roost.db", locked(tmp_path / "other.db"))
    assert isinstance(error, DatabaseUnavailable)
    assert "database is locked" in error.message


def locked(file: Path) -> sqlite3.Error:
    """Return what SQLite says to the second of two that want to write at once."""
    with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(file, timeout=0)) as two:
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as told:
            two.execute("BEGIN EXCLUSIVE")
    return told.value


def test_a_database_that_is_not_there_is_said_plainly(postgres_url: str) -> None:
    error = refusal(postgres_url.rpartition("/")[0] + "/nowhere")
    assert isinstance(error, Conflict)  # and is not waited for
    assert "does not exist" in error.message
    assert "the name in the database's URL" in str(error.hint)


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        ("08006", True),
        ("53300", True),
        ("57P01", True),
        ("57P03", True),
        ("28P01", False),  # a wrong password
        ("28000", False),
        ("3D000", False),
        ("42501", False),
        ("57P04", False),
    ],
)
def test_only_what_may_pass_by_itself_is_waited_for(state: str, waits: bool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak as PostgreSQL does when it refuses a connection."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack("!I", await reader.readexactly(4))
                if (await reader.readexactly(size - 4))[:4] != _WANTS_TLS:
                    break
                writer.write(b"N")
            fields = b"SFATAL\0VFATAL\0C" + state.encode() + b"\0Mnot so\0\0"
            writer.write(b"E" + struct.pack("!I", 4 + len(fields)) + fields)
            await writer.drain()
        writer.close()

    async def whole() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with opened(f"postgresql://u:p@127.0.0.1:{port}/d"):
                pass

    with pytest.raises(DatabaseUnavailable if waits else Conflict, match="not so"):
        asyncio.run(whole())


def test_the_server_says_it_in_a_sentence(database_url: str, tmp_path: Path) -> None:
    change(database_url, LATER)
    words = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    done = subprocess.run(
        [sys.executable, "-m", "roost.cli.main", *words, "--database", database_url],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == Conflict.exit_code, done.stderr
    assert "a later release has migrated it" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
