"""While processes of the release before may run beside, a create leaves them what they read.

On PostgreSQL alone: a SQLite file has one process. The ledger was used at an earlier schema.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic import command
from sqlalchemy import Connection, make_url, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from roost.base.errors import Conflict
from roost.control.admin.upgrade import finish_upgrade
from roost.ledger.schema.tables import events, vms
from roost.ledger.upgrade.migrate import _revisions, configuration
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.parts.sealing import KeyFile, Seal, new_key
from roost.series.opening import memory_series
from roost.testing.clock import HandClock
from roost.wire.bodies import BootBody, CreateVM, DemandBody, SetHost, UpgradeBody
from roost.wire.flavors import CreateFlavor
from roost.wire.groups import CreateGroup, SetGroupRule
from roost.wire.specs import spec_of
from tests.databases import PostgresServer, opened
from tests.examining import doctor
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, body_of, digest_of
from tests.integration.control.test_hosts import stray
from tests.integration.control.test_restored import LONG_S, come_back, copy, kinds, put_back
from tests.integration.control.test_talkers import near, racks

SECRET = "#cloud-config\npassword: hunter2\n"
BODIES = [
    body_of("plain"),
    body_of("labelled", labels={"tier": "web"}),
    body_of("grouped", groups=[{"name": "together", "rule": "affinity"}]),
    msgspec.structs.replace(body_of("secret"), boot=BootBody(cmdline="quiet", user_data=SECRET)),
]


def use_schema(connection: Connection, revision: str) -> None:
    """Make the schema of an earlier release, with an event: a process has worked on it."""
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    connection.execute(
        text(
            "INSERT INTO events (seq, at_ms, actor, kind, subject, changes, note, tx) "
            "VALUES (1, 7, 't', 'project.changed', 'default', '{}', '', 'tx-1')"
        )
    )
    connection.execute(text("UPDATE counters SET value = 1 WHERE name = 'events'"))
    connection.commit()


@pytest.fixture
def used_url(postgres: PostgresServer) -> str:
    """Return the URL of a ledger that processes of the release before use."""
    return used_ledger(postgres, "0003")


def used_ledger(postgres: PostgresServer, revision: str) -> str:
    """Return the URL of a ledger that was used at an earlier schema."""
    url = postgres.new_database()

    async def make() -> None:
        engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
        async with engine.connect() as connection:
            await connection.run_sync(use_schema, revision)
        await engine.dispose()

    asyncio.run(make())
    return url


def test_an_upgrade_that_was_finished_before_is_to_be_finished_again(
    postgres: PostgresServer,
) -> None:
    url, unused = used_ledger(postgres, "0008"), postgres.new_database()

    async def test() -> None:
        clock = HandClock()
        async with opened(url, clock) as store:
            rig = Rig(store, memory_series(), clock)
            await rig.load()
            agent = await rig.host("h1")
            made = await rig.running("web")
            with pytest.raises(Conflict, match="older processes"):
                await rig.set_restart("web", "elsewhere")
            stray(agent, made.id, name="lost", restart="elsewhere")
            rig.excused.add(("vm-stray", "h1"))
            await rig.settle()
            with pytest.raises(Conflict, match="older processes"):
                await rig.plane.hosts.adopt_held("h1", "vm-stray", ADMIN)
            assert [note.check for note in (await doctor(store)).notes] == ["upgrade"]
            await finish_upgrade(store, Seal(), "test")
            assert (await doctor(store)).notes == []
            await rig.plane.hosts.adopt_held("h1", "vm-stray", ADMIN)
            await rig.set_restart("web", "elsewhere")
            assert await finish_upgrade(store, Seal(), "test") == UpgradeBody()
            await rig.plane.stop()
        async with opened(unused, HandClock()) as store:
            assert not await store.read(release_before_may_be_here)  # nobody has used it

    asyncio.run(test())


def test_the_newest_revision_says_that_processes_of_the_schema_before_may_be_there(
    postgres: PostgresServer,
) -> None:
    """Whatever a release adds, the one before does not follow it."""
    before = sorted(_revisions())[-2]
    used, unused = used_ledger(postgres, before), postgres.new_database()

    async def test() -> None:
        async with opened(used, HandClock()) as store:
            assert await store.read(release_before_may_be_here)
            await finish_upgrade(store, Seal(), "test")
            assert not await store.read(release_before_may_be_here)
        async with opened(unused, HandClock()) as store:
            assert not await store.read(release_before_may_be_here)

    asyncio.run(test())


async def refused(door: Callable[[], Awaitable[object]]) -> bool:
    """Try something; say whether it is refused because of older processes."""
    try:
        await door()
    except Conflict as error:
        if "while older processes may run beside" not in str(error):
            raise
        return True
    return False


def test_what_came_after_a_schema_is_refused_until_its_processes_are_gone(
    postgres: PostgresServer,
) -> None:
    """Those of schema 0026 know no bound of how near a VM must be, those before it know less."""
    url = used_ledger(postgres, "0026")

    async def test() -> None:
        clock = HandClock()
        async with opened(url, clock) as store:
            rig = Rig(store, memory_series(), clock)
            await rig.load()
            await racks(rig)
            await rig.running("db")
            flavor = CreateFlavor(name="m2", demand=DemandBody(cpu=2, memory="1GiB"))
            doors: dict[str, Callable[[], Awaitable[object]]] = {
                "settings": lambda: rig.plane.hosts.set(
                    "a", SetHost(reserve={"cpu": "1"}), OPERATOR
                ),
                "flavors": lambda: rig.plane.flavors.create(flavor, ADMIN),
                "near": lambda: rig.create("close", constraints=near("db", latency=1)),
            }
            assert [name for name, door in doors.items() if not await refused(door)] == []
            await finish_upgrade(store, Seal(), "test")
            assert [name for name, door in doors.items() if await refused(door)] == []
            await rig.settle()
            assert (await rig.get("close")).state == "running"
            await rig.plane.stop()

    asyncio.run(test())


def test_a_restored_vm_stays_with_its_host_while_older_processes_may_be_there(
    postgres: PostgresServer,
) -> None:
    url = used_ledger(postgres, "0008")

    async def test() -> None:
        clock = HandClock()
        async with opened(url, clock) as store:
            rig = Rig(store, memory_series(), clock)
            await rig.load()
            await rig.host("a", guard=5.0)
            await rig.host("b", guard=5.0)
            await rig.running("web", restart="elsewhere")
            home = (await rig.get("web")).host
            old = await copy(rig)
            await rig.move("web", "b" if home == "a" else "a")
            await put_back(rig, old)
            await come_back(rig, "a", "b")
            await rig.pass_by(LONG_S)
            assert "vm.adopted" in await kinds(rig)
            (row,) = await rig.rows(select(vms.c.restart))
            assert row["restart"] == "here"
            told = await rig.rows(select(events.c.changes))
            assert "elsewhere_asked" not in str(told)
            await rig.plane.stop()

    asyncio.run(test())


async def bodies_in_rows(rig: Rig) -> dict[str, str]:
    found = await rig.rows(text("SELECT name, asked FROM vms"))
    return {row["name"]: row["asked"] for row in found}


async def bodies_in_events(rig: Rig, since: int = 0) -> dict[str, set[str | None]]:
    """Return the bodies that events repeat of each VM; None where one has none."""
    found: dict[str, set[str | None]] = {}
    for row in await rig.rows(select(events.c.changes).where(events.c.seq > since)):
        changes: dict[str, Any] = msgspec.json.decode(row["changes"])
        for vm in changes.get("vms", {}).values():
            if vm is not None:
                found.setdefault(vm["name"], set()).add(vm.get("asked"))
    return found


async def last_event(rig: Rig) -> int:
    found = await rig.rows(select(events.c.seq).order_by(events.c.seq.desc()).limit(1))
    return int(found[0]["seq"])


def test_groups_change_only_once_no_older_process_can_be_there(
    used_url: str, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "key")
    file.put_first([new_key()])
    seal = Seal(file, file.load()[0].fingerprint)

    async def test() -> None:
        clock = HandClock()
        async with opened(used_url, clock) as store:
            rig = Rig(store, memory_series(), clock)
            await rig.load()
            groups = rig.plane.groups
            await groups.create(CreateGroup(name="g", rule="spread"), OPERATOR)
            for change in (
                groups.set_rule("g", None, SetGroupRule(rule="affinity"), OPERATOR),
                groups.delete("g", None, OPERATOR),
            ):
                with pytest.raises(Conflict, match="older processes"):
                    await change
            await rig.host("h1")
            await rig.running("web")
            with pytest.raises(Conflict, match="older processes"):
                await rig.set_restart("web", "elsewhere")
            await finish_upgrade(store, seal, "test")
            await rig.set_restart("web", "elsewhere")
            await groups.set_rule("g", None, SetGroupRule(rule="affinity"), OPERATOR)
            await groups.delete("g", None, OPERATOR)
            await rig.plane.stop()

    asyncio.run(test())


def test_a_create_writes_the_body_until_the_upgrade_is_finished(used_url: str) -> None:
    async def test() -> None:
        clock = HandClock()
        async with opened(used_url, clock) as store:
            rig = Rig(store, memory_series(), clock)
            await rig.load()
            await rig.host("one", cpu=16)
            for body in BODIES:
                await rig.plane.admit.create(body, OPERATOR, None, digest_of(body))
            await rig.settle()
            rows = await bodies_in_rows(rig)
            assert rows.keys() == {body.name for body in BODIES}
            told = await bodies_in_events(rig)
            for body in BODIES:
                asked = msgspec.json.decode(rows[body.name], type=CreateVM)
                assert spec_of(asked) == spec_of(body)
                assert (asked.name, asked.labels) == (body.name, body.labels)
                assert told[body.name] == {rows[body.name]}, "an event without the body"
            assert [note.check for note in (await doctor(store)).notes] == ["upgrade"]

            done = await finish_upgrade(store, Seal(), "test")
            assert done.bodies_emptied == len(BODIES)
            finished = await last_event(rig)
            await rig.create("late")
            await rig.settle()
            assert set((await bodies_in_rows(rig)).values()) == {""}
            assert await bodies_in_events(rig, finished) == {"late": {None}}
            assert "hunter2" not in str(await rig.rows(select(events.c.changes)))
            assert (await doctor(store)).notes == []
            await rig.plane.stop()

    asyncio.run(test())
