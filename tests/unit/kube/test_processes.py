"""A process is ended by its id, and only when it is still the same."""

import asyncio
import sys
from pathlib import Path

import msgspec

from roost.base.clock import RealClock
from roost.kube.cluster import processes

SLEEPER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable, "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "while True: signal.pause()",
]  # fmt: skip


async def started(name: str, command: list[str], folder: Path) -> processes.Process:
    """Start a process and wait until it is up."""
    process = processes.start(name, command, folder / f"{name}.log", attached=True)
    async with asyncio.timeout(30):
        while "up" not in processes.tail(process):
            await asyncio.sleep(0.01)
    return process


def test_a_process_runs_until_it_is_ended(tmp_path: Path) -> None:
    async def body() -> None:
        process = await started("sleeper", SLEEPER, tmp_path)
        assert process.is_alive
        await processes.end([process], RealClock())
        assert not process.is_alive

    asyncio.run(body())


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    async def body() -> None:
        process = await started("stubborn", STUBBORN, tmp_path)
        await processes.end([process], RealClock(), grace_s=0.2)
        assert not process.is_alive

    asyncio.run(body())


def test_an_id_that_belongs_to_another_by_now_is_left_alone(tmp_path: Path) -> None:
    async def body() -> None:
        process = await started("other", SLEEPER, tmp_path)
        stale = msgspec.structs.replace(process, began=process.began - 1)
        assert not stale.is_alive
        await processes.end([stale], RealClock())
        await processes.kill(stale, RealClock())
        assert process.is_alive
        await processes.end([process], RealClock())

    asyncio.run(body())
