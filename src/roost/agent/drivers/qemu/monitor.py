"""The QMP connection to one QEMU, by PyPI's qemu.qmp: commands, answers and events.

QEMU talks to one client at a time, so the driver holds one Monitor per VM. A socket's path may
have 107 bytes only; the socket is therefore reached through an open descriptor of its folder.
A command that is not answered in time may still be carried out later: whoever sent it must look
before it believes anything. Limits here are in real time, as the process at the other end is.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from qemu.qmp import (
    ConnectError,
    EventListener,
    ExecuteError,
    Message,
    QMPClient,
    QMPError,
    Runstate,
)
from qemu.qmp.qmp_client import NegotiationError

from roost.hostkit.failures import DriverError

#: The name of the socket in a VM's folder.
SOCKET = "qmp.sock"

GONE, SILENT, REFUSED = "qmp_gone", "qmp_silent", "qemu_refused"

#: Times that a connection is begun whose first answer an event forestalls.
_TRIES = 3

_quiet = logging.getLogger(f"{__name__}.wire")
_quiet.setLevel(logging.CRITICAL + 1)  # every failure reaches the caller as DriverError


class Event(NamedTuple):
    """What QEMU says by itself, such as SHUTDOWN or MIGRATION."""

    name: str
    data: Mapping[str, Any]


Matches = Callable[[Event], bool]


class Expected:
    """An event that is waited for since before the command that brings it was sent."""

    def __init__(self, monitor: "Monitor", what: str) -> None:
        self._what = what
        self._monitor = monitor
        self.came: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    async def within(self, seconds: float) -> Event:
        """Return the event; raises DriverError `qmp_silent` or `qmp_gone` (both transient)."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self.came)
        except TimeoutError:
            raise DriverError(
                "transient", SILENT, f"no event {self._what} from QEMU within {seconds:g} s"
            ) from None


async def _greeted(folder: Path) -> QMPClient:
    """Return a client that QEMU has greeted."""
    for left in reversed(range(_TRIES)):
        client = QMPClient()
        client.logger = _quiet
        try:
            await client.connect(_socket(folder))
        except ConnectError as error:
            # An event of a migration may come before the answer to the first command, which the
            # library takes for a wrong answer. The next connection begins anew.
            if left and isinstance(error.exc, NegotiationError):
                continue
            raise
        return client
    raise AssertionError("the last try returns or raises")


class Monitor:
    """One open QMP connection. Make it by `connect`; `close` it when done."""

    def __init__(self, client: QMPClient, heard: Callable[[Event], None]) -> None:
        self._client = client
        self._heard = heard
        self._expected: list[tuple[str, Matches | None, Expected]] = []
        self._ended = asyncio.get_running_loop().create_future()
        client.events.event_filter = lambda _: False  # nobody reads that queue
        client.register_listener(_Ear(self._hear))
        self._watch = asyncio.get_running_loop().create_task(self._until_gone())

    @classmethod
    async def connect(
        cls,
        folder: Path,
        heard: Callable[[Event], None] = lambda _: None,
        *,
        within_s: float = 5.0,
    ) -> "Monitor":
        """Connect to the QEMU of a VM's folder. `heard` gets every event and must not raise.

        Raises DriverError: `qmp_gone` when there is no socket or nobody listens, `qmp_silent` when
        QEMU does not greet in time (it hangs, or talks to another client).
        """
        try:
            async with asyncio.timeout(within_s):
                client = await _greeted(folder)
        except TimeoutError:
            raise DriverError(
                "transient", SILENT, f"QEMU does not answer on its socket within {within_s:g} s"
            ) from None
        except (OSError, QMPError) as error:
            cause = error.exc if isinstance(error, ConnectError) else error
            busy = isinstance(cause, OSError) and cause.errno == errno.EAGAIN
            raise DriverError(
                "transient", SILENT if busy else GONE, f"QEMU's socket cannot be used: {cause!r}"
            ) from error
        return cls(client, heard)

    @property
    def is_open(self) -> bool:
        """Return whether the connection still stands."""
        return self._client.runstate == Runstate.RUNNING

    async def execute(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        within_s: float = 5.0,
        urgent: bool = False,
    ) -> Any:
        """Execute a QMP command and return its answer.

        `urgent`: also while QEMU is stuck in another command; only few commands can do that.
        Raises DriverError: `qmp_gone` and `qmp_silent` (transient: what became of the command is
        unknown), `qemu_refused` (permanent) with QEMU's own words.
        """
        try:
            async with asyncio.timeout(within_s):
                return await self._client.execute(command, dict(arguments or {}), oob=urgent)
        except TimeoutError:
            raise DriverError(
                "transient", SILENT, f"QEMU has not answered {command} within {within_s:g} s"
            ) from None
        except ExecuteError as error:
            raise DriverError("permanent", REFUSED, f"QEMU refuses {command}: {error}") from error
        except QMPError as error:
            raise DriverError(
                "transient", GONE, f"the connection to QEMU ended during {command}"
            ) from error

    @contextmanager
    def expecting(self, name: str, matches: Matches | None = None) -> Iterator[Expected]:
        """Listen for an event from now on: `with ... as done: execute; await done.within(5)`."""
        expected = Expected(self, name)
        entry = (name, matches, expected)
        self._expected.append(entry)
        if not self.is_open:
            self._fail(expected)
        try:
            yield expected
        finally:
            if entry in self._expected:
                self._expected.remove(entry)
            if not expected.came.done():
                expected.came.cancel()
            elif not expected.came.cancelled():
                expected.came.exception()  # seen, also when nobody waited

    async def wait_for(self, name: str, matches: Matches | None, within_s: float) -> Event:
        """Wait for the next event of a name that satisfies `matches`."""
        with self.expecting(name, matches) as expected:
            return await expected.within(within_s)

    async def until_gone(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End the connection; QEMU runs on."""
        if self._watch is asyncio.current_task():
            return
        if self.is_open:
            self._watch.cancel()  # else it is clearing up already, and must not be torn out of that
        with suppress(asyncio.CancelledError):
            await self._watch
        await self._disconnect()

    def _hear(self, event: Event) -> None:
        for entry in list(self._expected):
            name, matches, expected = entry
            if name == event.name and (matches is None or matches(event)):
                self._expected.remove(entry)
                if not expected.came.done():
                    expected.came.set_result(event)
        self._heard(event)

    async def _until_gone(self) -> None:
        """Watch for QEMU closing the connection, which the library reports only on disconnect."""
        while self._client.runstate == Runstate.RUNNING:
            await self._client.runstate_changed()
        await self._disconnect()

    async def _disconnect(self) -> None:
        # The library raises what ended the connection, whatever that was; here an end is an end.
        await asyncio.gather(self._client.disconnect(), return_exceptions=True)
        for _, _, expected in self._expected:
            self._fail(expected)
        self._expected.clear()
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, expected: Expected) -> None:
        if not expected.came.done():
            expected.came.set_exception(
                DriverError("transient", GONE, "the connection to QEMU ended")
            )


class _Ear(EventListener):
    """Hands events on at once, before the answers that follow them."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        super().__init__()
        self._hear = hear

    async def put(self, event: Message) -> None:
        name, data = event.get("event"), event.get("data")
        self._hear(Event(str(name), data if isinstance(data, dict) else {}))


def _socket(folder: Path) -> socket.socket:
    """Return a socket that is connected to the one in a folder, however long its path is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)  # a listener that hangs must not hang the caller
        made.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
    except OSError:
        made.close()
        raise
    finally:
        os.close(descriptor)
    return made
