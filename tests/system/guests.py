"""Watches which QEMUs of a VM let their guest execute, at every instant; never may two do so.

The agents' QEMUs are started through a wrapper that opens a second control socket in the VM's
folder. There QEMU says with its own clock when a guest begins and ceases to execute, and it is
asked every `SAMPLE_S` as well. What counts is proof: a guest executes from a RESUME to the STOP
that follows, and in a QEMU that was killed up to the last answer that said so.

Consoles are held open, so that what a guest wrote can be read after its folder is gone.
"""

import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roost.agent.drivers.qemu.manifest import folder_name
from tests.guest import ticks

SOCKET = "watch.sock"
SAMPLE_S = 0.025
_LOOK_S = 0.01

WRAPPER = f"""#!/bin/sh
exec qemu-system-x86_64 "$@" -qmp unix:{SOCKET},server=on,wait=off
"""


def write_wrapper(path: Path) -> Path:
    """Write the program that agents take for QEMU."""
    path.write_text(WRAPPER)
    path.chmod(0o755)
    return path


@dataclass
class Span:
    """From when to when a guest executed, in seconds since 1970; `end` grows while it does."""

    begin: float
    end: float
    is_open: bool = True


@dataclass
class Copy:
    """One QEMU of a VM."""

    host: str
    folder: Path
    link: socket.socket
    console: int  # a descriptor
    spans: list[Span] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    is_gone: bool = False
    unread: bytes = b""
    asked_at: float = 0.0
    is_asked: bool = False

    @property
    def executes(self) -> bool:
        """Say whether its guest executes, as far as is known."""
        return not self.is_gone and any(span.is_open for span in self.spans)

    def text(self) -> str:
        """Return all that was written to its console."""
        size = os.fstat(self.console).st_size
        return os.pread(self.console, size, 0).decode(errors="replace")


class Guests:
    """Use it as a context manager around all that the guests of a folder of hosts do."""

    def __init__(self, hosts: Path) -> None:
        #: Called on the watch's own thread with every event, so without a delay.
        self.hooks: list[Callable[[Copy, str], None]] = []
        self._hosts = hosts
        self._copies: list[Copy] = []
        self._known: set[tuple[str, int]] = set()
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="guests")
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        for copy in self._copies:
            copy.link.close()
            os.close(copy.console)
        self._selector.close()

    # What was seen

    def copies(self, vm_id: str) -> list[Copy]:
        """Return the QEMUs of a VM whose guest ever executed, in the order in which they began."""
        self.check()
        with self._lock:
            found = [c for c in self._copies if c.folder.name == folder_name(vm_id) and c.spans]
        return sorted(found, key=lambda copy: copy.spans[0].begin)

    def executing(self, vm_id: str) -> list[str]:
        """Return the hosts on which a VM executes now."""
        return [copy.host for copy in self.copies(vm_id) if copy.executes]

    def ticks(self, vm_id: str, host: str) -> list[int]:
        """Return what a VM has counted on a host since it came there last."""
        here = [copy for copy in self.copies(vm_id) if copy.host == host]
        return ticks(here[-1].text()) if here else []

    def counted(self, vm_id: str) -> list[int]:
        """Return what a VM has counted on all hosts together; a line may be split between two."""
        seen: dict[int, str] = {}
        for copy in self.copies(vm_id):
            seen[os.fstat(copy.console).st_ino] = copy.text()  # started anew, it appends
        return ticks("".join(seen.values()))

    def doubles(self) -> list[str]:
        """Return every instant at which two copies of a VM executed."""
        with self._lock:
            spans = [
                (copy.folder.name, span.begin, span.end, copy)
                for copy in self._copies
                for span in copy.spans
            ]
        spans.sort(key=lambda each: each[:2])
        found = []
        for at, (vm, begin, end, copy) in enumerate(spans):
            for other_vm, other_begin, other_end, other in spans[at + 1 :]:
                if other_vm != vm or other_begin >= end:
                    break
                if other is not copy:
                    both = min(end, other_end) - other_begin
                    found.append(f"{vm} on {copy.host} and {other.host} for {both:.3f} s: {begin}")
        return found

    def check(self) -> None:
        """Demand that the watch itself is well."""
        if self._failure is not None:
            raise AssertionError("the watch has failed") from self._failure

    # Watching

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                self._find()
                for key, _ in self._selector.select(_LOOK_S):
                    self._read(key.data)
                self._ask()
        except BaseException as error:
            self._failure = error
            raise

    def _find(self) -> None:
        for path in self._hosts.glob(f"*/vms/*.vm/{SOCKET}"):
            with suppress(OSError):
                made = (str(path), path.stat().st_ctime_ns)
                if made in self._known:
                    continue
                link = connect(path)
                try:
                    console = os.open(path.parent / "console.log", os.O_RDONLY)
                except OSError:
                    link.close()
                    raise
                self._known.add(made)
                copy = Copy(path.parts[-4], path.parent, link, console)
                with self._lock:
                    self._copies.append(copy)
                self._selector.register(link, selectors.EVENT_READ, copy)
                link.sendall(b'{"execute": "qmp_capabilities"}\n')

    def _ask(self) -> None:
        now = time.time()
        for copy in self._copies:
            if copy.is_gone or copy.is_asked or now - copy.asked_at < SAMPLE_S:
                continue
            copy.asked_at, copy.is_asked = now, True
            try:
                copy.link.sendall(b'{"execute": "query-status"}\n')
            except OSError:
                self._lose(copy)

    def _read(self, copy: Copy) -> None:
        try:
            data = copy.link.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(copy)
            return
        *lines, copy.unread = (copy.unread + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._hear(copy, json.loads(line))

    def _hear(self, copy: Copy, message: dict[str, Any]) -> None:
        with self._lock:
            if "event" in message:
                stamp = message["timestamp"]
                at = stamp["seconds"] + stamp["microseconds"] / 1e6
                copy.events.append(_name(message))
                if message["event"] == "RESUME":
                    _open(copy, at)
                elif message["event"] == "STOP":
                    _close(copy, at)
                for hook in self.hooks:
                    hook(copy, copy.events[-1])
            elif "status" in message.get("return", ()):
                copy.is_asked = False
                if message["return"]["status"] == "running":
                    # It was so at some moment since it was asked; the earliest is the safe one.
                    _open(copy, copy.asked_at)
                    copy.spans[-1].end = max(copy.spans[-1].end, copy.asked_at)

    def _lose(self, copy: Copy) -> None:
        self._selector.unregister(copy.link)
        with self._lock:
            copy.is_gone = True
            for span in copy.spans:
                span.is_open = False


def _name(message: dict[str, Any]) -> str:
    status = message.get("data", {}).get("status", "")
    return f"{message['event']} {status}".rstrip()


def _open(copy: Copy, at: float) -> None:
    if not copy.spans or not copy.spans[-1].is_open:
        copy.spans.append(Span(at, at))


def _close(copy: Copy, at: float) -> None:
    if copy.spans and copy.spans[-1].is_open:
        copy.spans[-1].end, copy.spans[-1].is_open = at, False


def connect(path: Path) -> socket.socket:
    """Connect through the folder's descriptor: a socket's own path may have 107 bytes only."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(f"/proc/self/fd/{folder}/{path.name}")
        link.setblocking(False)
    except OSError:
        link.close()
        raise
    finally:
        os.close(folder)
    return link
