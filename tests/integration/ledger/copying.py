"""Ledgers to copy and put back: filled, of an older schema, and with programs that misbehave."""

import asyncio
import shlex
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from alembic import command
from sqlalchemy import Connection, create_engine, make_url, select
from sqlalchemy.ext.asyncio import create_async_engine

from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.upgrade.migrate import configuration
from tests.databases import opened, programs
from tests.integration.ledger.records import add_host, proposal


def on(url: str, act: Callable[[Store], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with opened(url) as store:
            await act(store)

    asyncio.run(whole())


async def fill(store: Store, *names: str) -> None:
    """Add a host and VMs on it."""
    if not await rows(store, select(vms)):
        await store.write(lambda tx: add_host(tx, 1))
    await store.claim([proposal(name) for name in names], ["ann"] * len(names), 0)


async def rows(store: Store, query: object) -> list[object]:
    return await store.read(lambda c: list(c.execute(query).scalars()))  # type: ignore[call-overload]


def make_older(url: str, revision: str) -> None:
    """Bring an empty database to the schema of an earlier release."""

    def run(connection: Connection) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()

    async def run_there() -> None:
        engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
        async with engine.connect() as connection:
            await connection.run_sync(run)
        await engine.dispose()

    if url.startswith("sqlite"):
        engine = create_engine(url)
        with engine.connect() as connection:
            run(connection)
        engine.dispose()
    else:
        asyncio.run(run_there())


def wrapped(folder: Path, name: str, before: str = "", after: str = "") -> Path:
    """Write a program that does something before and after the real one; return its folder."""
    found = programs()
    real = found / name if found is not None else shutil.which(name)
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        f'#!/bin/sh\nset -e\n{before}\n{shlex.quote(str(real))} "$@"\n{after}\n', "utf-8"
    )
    program.chmod(0o755)
    return folder
