"""Two hosts with the QEMU driver and one VM that moves between them, for tests of migrations.

Both serial logs together tell whether two copies ever executed at once: they would have written the
same numbers twice, and a copy that stood for too short a time would have left numbers out.

A guest boots once for each kernel command line; what it is then is kept as a migration stream, and
every test receives that on its first host, which takes a tenth of the time. QEMU under software
emulation now and then breaks a guest that it copies while it runs (docs/limits.md), so a stream is
kept only once a guest was seen to count on from it.
"""

import asyncio
import atexit
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.qemu.driver import QemuDriver
from roost.agent.drivers.qemu.manifest import Shape
from roost.agent.drivers.qemu.move.attendance import Asking, Attendance, read_line
from roost.agent.drivers.qemu.move.endpoints import Address, parse
from roost.base.clock import RealClock
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import BootInfo, DesiredVM, MoveInfo, ProgressInfo
from tests.guest import boot_info, is_unbroken, ticks
from tests.integration.qemu.qemu_host import PATIENCE_S, QemuHost, becomes, order, says

VM = "vm-1"
#: How often a state is saved, and how long a guest may take to count on from it.
_TRIES, _COUNTS_WITHIN_S = 3, 20.0


class Pair:
    """Two hosts; `here` has the VM first. Drivers are opened by `hosts`."""

    def __init__(self, folder: Path, cmdline: str = "", **settings: object) -> None:
        self.cmdline = f"roost.tick_us=50000 {cmdline}"
        self.boot = boot_info(self.cmdline)
        self.here = QemuHost(folder / "here", boot=self.boot, **settings)
        self.there = QemuHost(folder / "there", boot=self.boot, **settings)
        self.generation = 1
        self.progress: list[ProgressInfo] = []
        self.moves = 0

    def end_all(self) -> None:
        """End what is left."""
        self.here.end_all()
        self.there.end_all()

    def order(self, **changes: object) -> DesiredVM:
        """Return the next order for the VM."""
        self.generation += 1
        return order(VM, self.generation, **changes)

    # Steps, each by the driver of the host that takes it

    async def boot_up(self, driver: QemuDriver, **changes: object) -> None:
        """Boot the VM and let it count."""
        await driver.start(self.order(**changes))
        await self.counts(self.here)

    async def start(self, **changes: object) -> None:
        """Let the VM count on the first host, which then has no driver again."""
        state = await asyncio.to_thread(saved, self.cmdline)
        plain = {"migrate_tls": None, "migrate_address": "127.0.0.1", "migrate_ports": (0, 0)}
        async with self.here.opened(**plain) as driver:
            outgoing = await self.prepare(driver, **changes)
            await tell_shape(
                outgoing.endpoint, msgspec.json.decode(_shape_file(state).read_bytes())
            )
            await asyncio.to_thread(_feed, outgoing.endpoint["uri"], state)
            await self.arrives(driver)
            await driver.land(self.order(**changes))
            await self.counts(self.here)

    async def prepare(
        self, driver: QemuDriver, move: MoveInfo | None = None, **changes: object
    ) -> DesiredVM:
        """Get a host ready and return the order to send it there."""
        self.moves += 1
        move = replace(move or MoveInfo(), begun=self.generation)
        await driver.prepare_incoming(self.order(part="incoming", move=move, **changes))
        ready = await driver.look(VM)
        assert ready is not None
        assert ready.state == "ready"
        return self.order(part="outgoing", move=move, endpoint=ready.endpoint, **changes)

    async def send(self, driver: QemuDriver, outgoing: DesiredVM) -> None:
        """Send it."""
        await driver.send(outgoing, self.progress.append)

    async def move(
        self,
        source: QemuDriver,
        target: QemuDriver,
        move: MoveInfo | None = None,
        **changes: object,
    ) -> None:
        """Do all of it."""
        await self.send(source, await self.prepare(target, move, **changes))
        await self.arrives(target)

    async def arrives(self, driver: QemuDriver, state: str = "running") -> LocalVM:
        """Wait until the VM is at its target, and that says so."""
        found = await becomes(driver, VM, state)
        assert found.arrived
        return found

    # What is seen

    def text(self, *hosts: QemuHost) -> str:
        """Return the serial logs one after the other: a line may begin here and end there."""
        logs = [host.vm_folder(VM) / "console.log" for host in hosts]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    async def counts(self, host: QemuHost, more: int = 3) -> None:
        """Wait until the guest on a host has counted on."""
        begun = len(ticks(self.text(host)))
        async with asyncio.timeout(PATIENCE_S):
            while len(ticks(self.text(host))) < begun + more:
                await asyncio.sleep(0.02)

    async def stands_still(self, host: QemuHost) -> None:
        """Wait until the guest on a host has counted nothing for a second."""
        async with asyncio.timeout(PATIENCE_S):
            before = ""
            while (now := self.text(host)) != before:
                before = now
                await asyncio.sleep(1.0)

    async def counts_on(self, *hosts: QemuHost, more: int = 3) -> None:
        """Wait until the guest has counted on at the last host, and see that none was lost."""
        await self.counts(hosts[-1], more)
        numbers = ticks(self.text(*hosts))
        assert is_unbroken(numbers), numbers


@contextmanager
def pair(folder: Path, cmdline: str = "", **settings: object) -> Iterator[Pair]:
    """Give two hosts, and end every QEMU of theirs."""
    made = Pair(folder, cmdline, **settings)
    try:
        yield made
    finally:
        made.end_all()


@asynccontextmanager
async def both(pair: Pair) -> AsyncIterator[tuple[QemuDriver, QemuDriver]]:
    """Give a driver of each host."""
    async with pair.here.opened() as here, pair.there.opened() as there:
        yield here, there


@cache
def saved(cmdline: str) -> Path:
    """Return the stream of a guest that has counted a little, and counts on from it."""
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix="roost-state-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        boot, state = boot_info(cmdline), folder / "state"
        host, tried = QemuHost(folder / "host", boot=boot), QemuHost(folder / "tried", boot=boot)
        try:
            asyncio.run(_save(host, state, cmdline))
            if asyncio.run(_counts_from(state, tried)):
                return state
        finally:
            host.end_all()
            tried.end_all()
    raise AssertionError(f"QEMU broke a guest {_TRIES} times while its state was saved")


async def _counts_from(state: Path, host: QemuHost) -> bool:
    """Say whether a guest goes on from a stream; nothing is asked of it but to count."""
    async with host.opened() as driver:
        await driver.prepare_incoming(order(VM, 2, part="incoming", move=MoveInfo(begun=1)))
        ready = await driver.look(VM)
        assert ready is not None
        await tell_shape(ready.endpoint, msgspec.json.decode(_shape_file(state).read_bytes()))
        await asyncio.to_thread(_feed, ready.endpoint["uri"], state)
        await becomes(driver, VM, "running")
        console = host.vm_folder(VM) / "console.log"
        with suppress(TimeoutError):
            async with asyncio.timeout(_COUNTS_WITHIN_S):
                while len(ticks(console.read_text(errors="replace"))) < 3:
                    await asyncio.sleep(0.02)
                return True
    return False


async def _save(host: QemuHost, state: Path, cmdline: str) -> None:
    whole = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with state.open("wb") as file:
            while data := await reader.read(1 << 20):
                file.write(data)
        writer.close()
        whole.set()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with host.opened() as driver, server:
        await driver.start(order(VM))
        shape = host.manifest(VM).shape
        _shape_file(state).write_bytes(msgspec.json.encode(shape))
        await says(driver, VM, "DIRTY" if "dirty" in cmdline else "TICK 5")
        uri = f"tcp:127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with answering(state.parent) as agent:
            endpoint = {"mode": "live", "uri": uri, "agent": agent}
            outgoing = order(VM, 2, part="outgoing", endpoint=endpoint)
            await driver.send(outgoing, lambda _: None)
        async with asyncio.timeout(PATIENCE_S):
            await whole.wait()


def _shape_file(state: Path) -> Path:
    return state.with_suffix(".shape")


async def tell_shape(endpoint: dict[str, str], shape: object) -> None:
    """Let a copy be a machine of some shape, as its source does."""
    asking = Asking(endpoint["agent"], RealClock())
    assert await asking.tell_shape(msgspec.convert(shape, Shape), PATIENCE_S) == ""


@asynccontextmanager
async def answering(folder: Path, at: str = "") -> AsyncIterator[str]:
    """Answer a source as a target's agent does, and do nothing else; give the address."""

    async def agree(shape: Shape) -> None:
        """Take any shape."""

    async def keep(end: int, data: bytes) -> None:
        """Keep nothing of a log."""

    executes = asyncio.Event()
    executes.set()
    word, uri = read_line(at)
    line = Attendance(word, executes, agree, keep)
    address = parse(uri) if uri else Address(path=str(folder / "line"))
    await line.listen(address)
    try:
        yield at or address.uri
    finally:
        line.close()


def _feed(uri: str, state: Path) -> None:
    _, host, port = uri.split(":")
    with socket.create_connection((host, int(port))) as made, state.open("rb") as file:
        made.sendfile(file)


async def refusal(call: Awaitable[object]) -> DriverError:
    """Return the error that a call ends with."""
    try:
        await call
    except DriverError as error:
        return error
    raise AssertionError("it was not refused")


async def under_way(driver: QemuDriver, outgoing: DesiredVM, pair: Pair) -> "asyncio.Task[None]":
    """Begin to send, and return when memory is on its way."""
    task = asyncio.create_task(pair.send(driver, outgoing))
    async with asyncio.timeout(PATIENCE_S):
        while not any(each.left_bytes and each.sent_bytes for each in pair.progress):
            if task.done():
                await task  # what it says of itself, if anything
                raise AssertionError("all was sent before any of it was seen")
            await asyncio.sleep(0.02)
    return task


async def abandon(task: "asyncio.Task[None]") -> None:
    """Cancel a call, as an agent that ends does."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Wire:
    """A TCP connection that can be made to say nothing any more, as a partition does."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._carried: list[asyncio.Task[None] | None] = []

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        """Give the address to connect to."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        try:
            yield f"tcp:127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        finally:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            self._open.set()
            await asyncio.gather(*filter(None, self._carried), return_exceptions=True)

    def cut(self) -> None:
        """Carry nothing from now on; nobody is told."""
        self._open.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._carried.append(asyncio.current_task())
        _, host, port = self._target.split(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._writers += [writer, back]
        with suppress(OSError):
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


def certificates(folder: Path) -> Path:
    """Make an authority and certificates for this machine."""
    folder.mkdir()
    common = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    run(folder, *common, "-subj", "/CN=roost-test", "-keyout", "ca-key.pem", "-out", "ca-cert.pem")
    for end in ("server", "client"):
        names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        usage = ["-addext", f"extendedKeyUsage={end}Auth", "-addext", "basicConstraints=CA:false"]
        signed = ["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-subj", f"/CN={end}"]
        files = ["-keyout", f"{end}-key.pem", "-out", f"{end}-cert.pem"]
        run(folder, *common, *signed, *names, *usage, *files)
    return folder


def run(folder: Path, *argv: str) -> str:
    """Run a program that must succeed."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def taken(count: int) -> Iterator[int]:
    """Listen on some ports in a row, and give the first."""
    for first in range(45_000, 60_000, 7):
        made: list[socket.socket] = []
        with suppress(OSError):
            made.extend(
                socket.create_server(("127.0.0.1", port)) for port in range(first, first + count)
            )
        if len(made) == count:
            try:
                yield first
            finally:
                for each in made:
                    each.close()
            return
        for each in made:
            each.close()
    raise AssertionError("no ports")


def boots(pair: Pair, **changes: object) -> BootInfo:
    """Return what the VM boots, changed."""
    return replace(pair.boot, **changes)
