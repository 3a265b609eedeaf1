"""Fresh databases: SQLite files beside the results, and a PostgreSQL started for the run.

Hosts, VMs and credentials are entered through the ledger, so everything that holds for a database
that grew by itself holds for these.
"""

import asyncio
import os
import pwd
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TypeVar

from msgspec import convert

from benchmarks.api.workload import create_body, hello, host_name, placed_rows
from roost.base.clock import RealClock
from roost.base.ids import IdSource
from roost.control.hosts.registering import register
from roost.ledger.claims.proposals import KEPT, Proposal
from roost.ledger.opening import open_store
from roost.ledger.schema.tables import tokens
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.access import public
from roost.wire.bodies import CreateVM
from roost.wire.specs import spec_of
from tests.databases import PostgresServer, programs, running_postgres

T = TypeVar("T")

_TOGETHER = 1_000
#: The tests' server saves itself the syncs and most of the memory; this one is as it comes.
_AS_IT_COMES = {"fsync": "on", "shared_buffers": "128MB"}


@dataclass(slots=True)
class Databases:
    """Makes databases of one kind, empty or as copies."""

    kind: str  # SQLite or PostgreSQL
    folder: Path  # on the disk that the database syncs to
    postgres: PostgresServer | None = None
    _names: Iterator[int] = field(default_factory=lambda: count(1))

    def new(self) -> str:
        """Return the URL of a database without anything."""
        if self.postgres is not None:
            return self.postgres.new_database()
        return f"sqlite:///{self.folder}/bench-{next(self._names)}.db"

    def copy(self, url: str) -> str:
        """Return the URL of a copy; nobody may have the original open."""
        if self.postgres is not None:
            return self.postgres.new_database(url.rpartition("/")[2])
        copied = self.new()
        shutil.copyfile(url.removeprefix("sqlite:///"), copied.removeprefix("sqlite:///"))
        return copied


def has_postgres() -> bool:
    """Say whether this machine has PostgreSQL's programs, and a user to run them as."""
    if programs() is None or shutil.which("setpriv") is None:
        return False
    return os.geteuid() != 0 or any(user.pw_name == "postgres" for user in pwd.getpwall())


@contextmanager
def sqlite_databases(folder: Path) -> Iterator[Databases]:
    """Keep SQLite files in a folder."""
    yield Databases("SQLite", folder)


@contextmanager
def postgres_databases(_folder: Path) -> Iterator[Databases]:
    """Run a PostgreSQL with the settings it comes with."""
    with running_postgres(**_AS_IT_COMES) as server:
        # Its folder is its own user's; the probe of the disk is ours.
        yield Databases("PostgreSQL", server.folder, server)


def with_store(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open a ledger, do something with it and close it."""

    async def run() -> T:
        clock = RealClock()
        store = await open_store(url, clock, IdSource(clock.wall_ms))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def seed_hosts(url: str, number_of_hosts: int) -> None:
    """Register hosts 1 to `number_of_hosts`."""

    async def work(store: Store) -> None:
        for start in range(1, number_of_hosts + 1, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, number_of_hosts + 1))
            await store.write(lambda tx: _register(tx, numbers))  # noqa: B023

    with_store(url, work)


def _register(tx: Tx, numbers: range) -> None:
    for number in numbers:
        row = register(tx, hello(number)).row
        assert row.number == number, (row.number, number)


def seed_vms(url: str, number_of_vms: int, number_of_hosts: int) -> None:
    """Create VMs on hosts that exist, each on the next host in turn."""

    async def work(store: Store) -> None:
        clock = RealClock()
        ids = IdSource(clock.wall_ms)
        for start in range(0, number_of_vms, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, number_of_vms))
            proposals = []
            for number, vm_id in zip(numbers, ids.many("vm", len(numbers)), strict=True):
                # One further each time round, so that no host gets all of the large ones.
                host = (number + number // number_of_hosts) % number_of_hosts + 1
                vm, claim = placed_rows(vm_id, number, host, clock.wall_ms())
                spec = spec_of(convert(create_body(number), CreateVM))
                answer = _answer(vm.name, host)
                proposals.append(Proposal(vm, spec, claim, host_generation=1, answer=answer))
            outcomes = await store.claim(proposals, ["bench"] * len(proposals), 0)
            lost = [outcome for outcome in outcomes if outcome is not KEPT]
            assert not lost, f"{len(lost)} VMs do not fit, the first: {lost[0]}"

    with_store(url, work)


def _answer(name: str, host: int) -> str:
    return (
        f'{{"answer":"placement","vm":"{name}","host":"{host_name(host)}","host_number":{host},'
        '"strategy":"least_loaded","score":0}'
    )


def seed_credentials(url: str, number_of_hosts: int) -> list[str]:
    """Give every host's agent a credential and return them in the order of the hosts."""
    clock = RealClock()
    ids = IdSource(clock.wall_ms)
    made = [(ids.new("tok"), ids.secret()) for _ in range(number_of_hosts)]

    def enter(tx: Tx) -> None:
        rows = {}
        for number, (token_id, secret) in enumerate(made, 1):
            host = host_name(number)
            rows[token_id] = {
                "id": token_id,
                "kind": "agent",
                "name": f"agent/{host}",
                "role": "agent",
                "project": None,
                "host": host,
                "hash": sha256(secret.encode()).hexdigest(),
                "created_ms": tx.at_ms,
                "expires_ms": None,
            }
            tx.insert(tokens, rows[token_id])
            tx.event("agent.joined", f"host/{host}", {"tokens": {token_id: public(rows[token_id])}})

    with_store(url, lambda store: store.write(enter))
    return [f"roost_{token_id}_{secret}" for token_id, secret in made]
