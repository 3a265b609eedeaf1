"""The databases that tests run on: SQLite in a folder, and a PostgreSQL that is started for them.

`database_url` runs a test on both. There is one server per pytest process, begun by the first test
that needs it and ended with the session; each test gets a fresh database, copied from a template
that has the schema already, and dropped when the test ends. The files of that server are in memory
where there is room: copying a template takes a fifth of the CPU that it takes on a disk. A server
dies with the process that started it, however that ends.
"""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from roost.base.clock import Clock, RealClock
from roost.base.ids import IdSource
from roost.ledger.opening import open_store
from roost.ledger.store import Store

INSTALL = "apt-get install postgresql"
_TEMPLATE = "roost_template"
#: Where a server's data may be: anybody may pass the parents of both, while pytest's own folders
#: are root's. The first is in memory, and is taken when it has so much room.
_MEMORY, _DISK, _ROOM_BYTES = Path("/dev/shm"), Path("/tmp"), 2 * 2**30
_LEFT_S = 3600.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "fsync": "off",
}


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: where Debian puts them, or on the path."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if folders:
        return max(folders, key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found is not None else None


def _as_whom() -> list[str]:
    """Return the words before a command: the server refuses to be root, and must die with us."""
    words = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() == 0:
        words += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
    return words


class PostgresServer:
    """One PostgreSQL server on loopback, with its data in a folder of its own."""

    def __init__(self, parent: Path = _DISK, **settings: str) -> None:
        found = programs()
        if found is None or shutil.which("setpriv") is None:
            pytest.skip(f"PostgreSQL is not installed: {INSTALL}")
        if os.geteuid() == 0 and not _user_exists("postgres"):
            pytest.skip(f"there is no user postgres to run PostgreSQL as: {INSTALL}")
        self._programs = found
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="roost-postgres-", dir=parent))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.data, self.log = self.folder / "data", self.folder / "log"
        self.port = 0
        self._names = count(1)
        try:
            self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync")
            self._start_on_free_port()
        except BaseException:
            self.end()
            raise

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*_as_whom(), str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd="/")

    def _start_on_free_port(self) -> None:
        for _ in range(5):  # somebody may take the port before the server does
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            if self.start():
                return
        raise RuntimeError(f"PostgreSQL does not start: {self.log.read_text(errors='replace')}")

    def start(self) -> bool:
        """Start the server and wait until it answers; False when it ended at once."""
        settings = {
            **self._settings,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*_as_whom(), str(self._programs / "postgres"), "-D", str(self.data), *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        for _ in range(600):
            if self._process.poll() is not None:
                return False
            try:
                self.execute("SELECT 1")
            except (OSError, asyncpg.PostgresError):
                threading.Event().wait(0.05)
            else:
                return True
        raise RuntimeError(f"PostgreSQL is not ready: {self.log.read_text(errors='replace')}")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT is a crash, SIGINT ends in order but cuts off its clients."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def end(self) -> None:
        """Stop the server and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self, template: str | None = None) -> str:
        """Make a database, empty or as a copy, and return its URL."""
        name = f"roost_{next(self._names)}"
        copied = f" TEMPLATE {template} STRATEGY file_copy" if template else ""
        self.execute(f"CREATE DATABASE {name}{copied}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database that was made here, and cut off whoever still uses it."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement outside of any transaction."""

        async def run() -> None:
            connection = await asyncpg.connect(self.url())
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())


def _roomy() -> Path:
    """Return the folder in memory if it has room for a server and some databases, else on disk."""
    try:
        free_bytes = shutil.disk_usage(_MEMORY).free
    except OSError:
        return _DISK
    return _MEMORY if free_bytes >= _ROOM_BYTES else _DISK


def _user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _forget_the_dead(parent: Path) -> None:
    """Remove what servers have left in memory whose processes were killed, after an hour."""
    for folder in parent.glob("roost-postgres-*"):
        noted = folder / "data" / "postmaster.pid"
        with suppress(OSError, ValueError):
            old = time.time() - folder.stat().st_mtime > _LEFT_S
            if old and not (noted.exists() and _lives(int(noted.read_text().split()[0]))):
                shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@contextmanager
def running_postgres(parent: Path = _DISK, **settings: str) -> Iterator[PostgresServer]:
    """Run a server of one's own, to stop it or with other settings than the shared one."""
    server = PostgresServer(parent, **settings)
    try:
        yield server
    finally:
        server.end()


@asynccontextmanager
async def opened(
    url: str, clock: Clock | None = None, ids: IdSource | None = None
) -> AsyncIterator[Store]:
    """Open a store and close it."""
    clock = clock or RealClock()
    store = await open_store(url, clock, ids or IdSource(clock.wall_ms))
    try:
        yield store
    finally:
        await store.close()


async def _prepare(url: str) -> None:
    async with opened(url):
        pass


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run the server that all tests of this process share."""
    _forget_the_dead(_MEMORY)
    with running_postgres(_roomy()) as server:
        server.execute(f"CREATE DATABASE {_TEMPLATE}")
        asyncio.run(_prepare(server.url(_TEMPLATE)))
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Yield the URL of a fresh PostgreSQL database with the schema."""
    url = postgres.new_database(_TEMPLATE)
    yield url
    postgres.drop_database(url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return the URL of an SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path}/roost.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a fresh database, once of each kind."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    url: str = request.getfixturevalue(name)
    return url
