"""A source asks its target's agent whether it is there, and when the guest executes."""

import asyncio
from pathlib import Path

from roost.agent.drivers.qemu.move.attendance import Asking, Attendance
from roost.agent.drivers.qemu.move.endpoints import Address
from roost.base.clock import RealClock


def test_an_agent_that_is_there_answers_and_tells_when_the_guest_executes(tmp_path: Path) -> None:
    async def story() -> None:
        executes = asyncio.Event()
        address = Address(path=str(tmp_path / "line"))
        asking = Asking(address.uri, RealClock())
        assert not await asking.is_here(0.1)  # nobody listens
        target = Attendance(executes)
        await target.listen(address)
        assert await asking.is_here(5.0)
        assert not await asking.runs(0.1)
        running = asyncio.create_task(asking.runs(5.0))
        await asyncio.sleep(0)
        executes.set()
        assert await running
        target.close()
        assert not await asking.is_here(0.1)
        asking.close()

    asyncio.run(story())


def test_an_older_agent_cannot_be_asked_and_is_sent_to_all_the_same() -> None:
    async def story() -> None:
        asking = Asking("", RealClock())
        assert not asking.is_possible
        assert await asking.is_here(0.1)
        assert not await asking.runs(0.1)

    asyncio.run(story())


def test_a_line_that_nobody_understands_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        target = Attendance(asyncio.Event())
        await target.listen(Address(path=str(tmp_path / "line")))
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "line"))
        writer.write(b"x" * 10_000)
        assert await reader.read() == b""
        writer.close()
        target.close()

    asyncio.run(story())
