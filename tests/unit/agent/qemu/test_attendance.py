"""A source asks its target's agent whether it is there, and when the guest executes."""

import asyncio
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.manifest import Shape
from roost.agent.drivers.qemu.move import attendance
from roost.agent.drivers.qemu.move.attendance import Asking, Attendance, line_of
from roost.agent.drivers.qemu.move.endpoints import Address
from roost.agent.drivers.qemu.move.receiving import check_shape
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.base.clock import RealClock
from roost.base.units import MIB
from roost.hostkit.failures import DriverError
from roost.testing.orders import vm


async def agree(shape: Shape) -> None:
    """Take any machine of two vCPUs."""
    if shape.vcpus != 2:
        raise DriverError("permanent", "shape_differs", "two\nonly")


WORD = "0123456789abcdef" * 2
KEPT: list[tuple[int, bytes]] = []


async def keep(end: int, data: bytes) -> None:
    """Keep the end of a log."""
    KEPT.append((end, data))


def test_the_end_of_a_log_goes_along_until_the_guest_executes(tmp_path: Path) -> None:
    async def story() -> None:
        address, executes = Address(path=str(tmp_path / "line")), asyncio.Event()
        target = Attendance(WORD, executes, agree, keep)
        asking = Asking(line_of(WORD, address.uri), RealClock())
        await target.listen(address)
        KEPT.clear()
        assert await asking.hand_console(70, b"two\nlines", 5.0)
        assert await asking.hand_console(70, b"", 5.0)
        executes.set()
        assert await asking.hand_console(71, b"late", 5.0)
        assert KEPT == [(70, b"two\nlines"), (70, b"")]
        assert not await asking.hand_console(1 << 20, bytes(65 << 10), 0.2)  # too much
        target.close()

    asyncio.run(story())


def test_a_copy_becomes_what_its_source_says_or_it_is_told_why_not(tmp_path: Path) -> None:
    async def story() -> None:
        address = Address(path=str(tmp_path / "line"))
        target = Attendance(WORD, asyncio.Event(), agree, keep)
        asking = Asking(line_of(WORD, address.uri), RealClock())
        assert "does not answer" in await asking.tell_shape(Shape(2, 4, 1), 0.3)
        await target.listen(address)
        assert await asking.tell_shape(Shape(2, 4, 1, "pc-i440fx-7.2", 1), 5.0) == ""
        assert await asking.tell_shape(Shape(1, 4, 1), 5.0) == "no: two only"
        target.close()

    asyncio.run(story())


def test_a_target_whose_agent_starts_again_is_told_once_it_answers(tmp_path: Path) -> None:
    async def story() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        address = Address(path=str(tmp_path / "line"))
        dying = await asyncio.start_unix_server(hang_up, address.path)
        asking = Asking(line_of(WORD, address.uri), RealClock())
        telling = asyncio.ensure_future(asking.tell_shape(Shape(2, 4, 1), 20.0))
        await asyncio.sleep(0.2)
        assert not telling.done()
        dying.close()
        Path(address.path).unlink(missing_ok=True)
        target = Attendance(WORD, asyncio.Event(), agree, keep)
        await target.listen(address)
        assert await telling == ""
        target.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "shape",
    [
        Shape(0, 4, 128 * MIB),
        Shape(5, 4, 128 * MIB),
        Shape(1, 256, 128 * MIB),
        Shape(1, 4, 0),
        Shape(1, 4, 1 << 50),
        Shape(1, 4, 128 * MIB, "pc,accel=kvm"),
        Shape(1, 4, 128 * MIB, "q35"),
        Shape(1, 4, 128 * MIB, "", 3),
    ],
)
def test_no_source_can_ask_for_a_machine_that_makes_no_sense(shape: Shape) -> None:
    settings = QemuSettings(Path("/data"))
    check_shape(settings, vm(memory_bytes=128 * MIB), Shape(1, 4, 128 * MIB, "pc-i440fx-7.2", 1))
    with pytest.raises(DriverError):
        check_shape(settings, vm(memory_bytes=128 * MIB), shape)


def test_an_agent_that_is_there_answers_and_tells_when_the_guest_executes(tmp_path: Path) -> None:
    async def story() -> None:
        executes = asyncio.Event()
        address = Address(path=str(tmp_path / "line"))
        asking = Asking(line_of(WORD, address.uri), RealClock())
        assert not await asking.hand_console(0, b"", 0.1)  # nobody listens
        target = Attendance(WORD, executes, agree, keep)
        await target.listen(address)
        assert await asking.hand_console(0, b"", 5.0)
        assert not await asking.runs(0.1)
        running = asyncio.create_task(asking.runs(5.0))
        await asyncio.sleep(0)
        executes.set()
        assert await running
        target.close()
        assert not await asking.hand_console(0, b"", 0.1)
        asking.close()

    asyncio.run(story())


def test_an_older_agent_cannot_be_asked_and_is_sent_to_all_the_same() -> None:
    async def story() -> None:
        asking = Asking("", RealClock())
        assert not asking.is_possible
        assert await asking.hand_console(0, b"", 0.1)
        assert not await asking.runs(0.1)

    asyncio.run(story())


def test_a_line_that_nobody_understands_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        target = Attendance(WORD, asyncio.Event(), agree, keep)
        await target.listen(Address(path=str(tmp_path / "line")))
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "line"))
        writer.write(b"x" * 10_000)
        assert await reader.read() == b""
        writer.close()
        target.close()

    asyncio.run(story())


async def talk(path: Path, said: bytes) -> bytes:
    """Say something to a target's agent; return all that it answers until it hangs up."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(said)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("first", [b"", b"0" * 32 + b"\n", b"\n", WORD[:-1].encode() + b"\n"])
def test_who_does_not_know_the_word_of_a_copy_is_not_heard(tmp_path: Path, first: bytes) -> None:
    async def story() -> None:
        target = Attendance(WORD, asyncio.Event(), agree, keep)
        await target.listen(Address(path=str(tmp_path / "line")))
        KEPT.clear()
        assert await talk(tmp_path / "line", first + b"console 3 3\nbad\n\n") == b""
        assert KEPT == []
        known = WORD.encode() + b"\nconsole 4 4\ngood\n"
        assert await talk(tmp_path / "line", known) == b"here\n"
        assert KEPT == [(4, b"good")]
        target.close()

    asyncio.run(story())


def test_the_silent_are_hung_up_on_and_keep_no_source_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "_WORD_S", 0.5)

    async def story() -> None:
        address = Address(path=str(tmp_path / "line"))
        target = Attendance(WORD, asyncio.Event(), agree, keep)
        await target.listen(address)
        lines = [await asyncio.open_unix_connection(address.path) for _ in range(40)]
        asking = Asking(line_of(WORD, address.uri), RealClock())
        assert await asking.hand_console(0, b"", 0.4)
        async with asyncio.timeout(10):
            for reader, writer in lines:
                assert await reader.read() == b""
                writer.close()
        assert await asking.hand_console(0, b"", 0.4)  # on the same line, long since
        asking.close()
        target.close()

    asyncio.run(story())


def test_a_line_that_an_older_agent_has_named_has_no_word(tmp_path: Path) -> None:
    async def story() -> None:
        address = Address(path=str(tmp_path / "at@home"))
        target = Attendance("", asyncio.Event(), agree, keep)
        await target.listen(address)
        asking = Asking(address.uri, RealClock())
        assert await asking.hand_console(0, b"", 5.0)
        asking.close()
        target.close()

    asyncio.run(story())


def test_a_target_that_answers_without_end_is_taken_for_silent(tmp_path: Path) -> None:
    async def story() -> None:
        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"x" * 10_000)
            writer.close()

        address = Address(path=str(tmp_path / "line"))
        server = await asyncio.start_unix_server(babble, address.path)
        asking = Asking(line_of(WORD, address.uri), RealClock())
        assert not await asking.hand_console(0, b"", 0.2)
        assert "does not answer" in await asking.tell_shape(Shape(2, 4, 1), 0.3)
        server.close()

    asyncio.run(story())
