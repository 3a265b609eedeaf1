"""The QMP connection to a real QEMU: however long its path is, and whatever ends it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.monitor import Event, Monitor
from roost.agent.drivers.qemu.process import Process, spawn
from roost.hostkit.failures import DriverError
from tests.guest import need

ARGV = ["qemu-system-x86_64", "-accel", "tcg", "-nodefaults", "-display", "none", "-S", "-m", "16"]
ARGV += ["-qmp", "unix:qmp.sock,server=on,wait=off"]


@asynccontextmanager
async def qemu(folder: Path) -> AsyncIterator[Process]:
    need("qemu-system-x86_64")
    process = await spawn(ARGV, folder)
    assert process is not None
    try:
        yield process
    finally:
        await process.kill()


async def connected(folder: Path, heard: list[Event] | None = None) -> Monitor:
    async with asyncio.timeout(30):
        while True:
            try:
                return await Monitor.connect(
                    folder, (heard if heard is not None else []).append, within_s=20.0
                )
            except DriverError as error:
                if error.code != "qmp_gone":
                    raise
            await asyncio.sleep(0.01)


def test_a_socket_is_reached_however_long_its_path_is(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 40) / "vm"
    folder.mkdir(parents=True)

    async def scenario() -> None:
        async with qemu(folder):
            monitor = await connected(folder)
            assert (await monitor.execute("query-status"))["status"] == "prelaunch"
            await monitor.close()
            assert not monitor.is_open
            again = await connected(folder)
            assert again.is_open
            await again.close()

    asyncio.run(scenario())


def test_events_come_before_the_answer_that_follows_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard: list[Event] = []
        async with qemu(tmp_path):
            monitor = await connected(tmp_path, heard)
            with monitor.expecting("RESUME") as resumed, monitor.expecting("STOP") as stopped:
                await monitor.execute("cont")
                await resumed.within(5.0)
                await monitor.execute("stop")
                assert (await stopped.within(5.0)).name == "STOP"
            assert [event.name for event in heard] == ["RESUME", "STOP"]
            with pytest.raises(DriverError) as raised:
                await monitor.wait_for("RESUME", lambda event: False, 0.05)
            assert raised.value.code == "qmp_silent"
            await monitor.close()

    asyncio.run(scenario())


def test_a_refusal_has_the_words_of_qemu(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with qemu(tmp_path):
            monitor = await connected(tmp_path)
            with pytest.raises(DriverError, match="no-such-thing") as raised:
                await monitor.execute("device_del", {"id": "no-such-thing"})
            assert (raised.value.failure, raised.value.code) == ("permanent", "qemu_refused")
            await monitor.close()

    asyncio.run(scenario())


def test_a_qemu_that_hangs_is_silent_and_one_that_dies_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with qemu(tmp_path) as process:
            monitor = await connected(tmp_path)
            os.kill(process.identity.pid, signal.SIGSTOP)
            with pytest.raises(DriverError) as raised:
                await monitor.execute("query-status", within_s=0.1)
            assert (raised.value.failure, raised.value.code) == ("transient", "qmp_silent")
            for _ in range(3):  # its queue of callers is short; nobody may wait for a place in it
                with pytest.raises(DriverError) as raised:
                    await Monitor.connect(tmp_path, within_s=0.1)
                assert (raised.value.failure, raised.value.code) == ("transient", "qmp_silent")
            waiting = asyncio.create_task(monitor.wait_for("STOP", None, 30.0))
            asked = asyncio.create_task(monitor.execute("query-status", within_s=30.0))
            await asyncio.sleep(0)
            await process.kill()
            for task in (waiting, asked):
                with pytest.raises(DriverError) as raised:
                    await task
                assert (raised.value.failure, raised.value.code) == ("transient", "qmp_gone")
            await asyncio.wait_for(monitor.until_gone(), 5.0)
            with pytest.raises(DriverError) as raised:
                await monitor.execute("query-status")
            assert raised.value.code == "qmp_gone"
            with pytest.raises(DriverError) as raised, monitor.expecting("STOP") as expected:
                await expected.within(5.0)
            assert raised.value.code == "qmp_gone"
            await monitor.close()
            with pytest.raises(DriverError) as raised:
                await Monitor.connect(tmp_path)
            assert raised.value.code == "qmp_gone"

    asyncio.run(scenario())
