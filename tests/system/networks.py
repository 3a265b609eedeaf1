"""Two networks of hosts on one machine, joined by a cable, that nobody else sees.

VMs on bridges cannot move between two agents in one network: a tap is named for its VM. So each
host has a network namespace: the first is this thread's own (and that of every process it starts)
until the end, the second is entered by `nsenter`. A bridge of each is joined with the other's,
dnsmasq gives out addresses on both, and `pass_on` lets the second reach what listens on loopback in
the first.
"""

import ctypes
import os
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_CLONE_NEWNET = 0x40000000
BRIDGE = "br0"
ADDRESSES = ("10.98.7.1", "10.98.7.2")
_GIVEN = "10.98.7.100,10.98.7.200,1h"
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Say why networks cannot be made here; nothing when they can."""
    missing = [name for name in ("ip", "nsenter", "dnsmasq") if _program(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        return "a network of its own takes the right to make one"
    return ""


class Networks:
    """The two, while they are there."""

    def __init__(self, folder: Path, second: int) -> None:
        self.leases = folder / "leases"
        self._second = second
        self._listening: list[socket.socket] = []

    @property
    def in_second(self) -> list[str]:
        """Return the words before a command that make it run in the second network."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._second}", "--"]

    def address_of(self, hostname: str) -> str | None:
        """Return the address that was given to a guest of this host name."""
        with suppress(FileNotFoundError):
            for line in self.leases.read_text().splitlines():
                _, _, address, name, _ = line.split()
                if name == hostname:
                    return address
        return None

    def pass_on(self, port: int) -> None:
        """Let the second network's loopback reach a port of the first one's."""
        first = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(self._second)
            listening = socket.create_server(("127.0.0.1", port))
        finally:
            _enter(first)
            os.close(first)
        self._listening.append(listening)
        threading.Thread(target=_serve, args=(listening, port), daemon=True).start()

    def close(self) -> None:
        """Pass nothing on any more."""
        for listening in self._listening:
            listening.shutdown(socket.SHUT_RDWR)  # else the thread that accepts would go on
            listening.close()


@contextmanager
def two_networks(folder: Path) -> Iterator[Networks]:
    """Be in the first of two networks, with the second beside it."""
    with ExitStack() as undo:
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        undo.callback(os.close, before)
        undo.callback(_enter, before)
        _make()
        second = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        undo.callback(os.close, second)
        made = Networks(folder, second)
        undo.callback(made.close)
        _make()
        _ip("link", "add", "cable", "type", "veth", "peer", "name", "cable2")
        _ip("link", "set", "cable2", "netns", f"/proc/{os.getpid()}/fd/{second}")
        for words, cable, address in zip(
            ([], made.in_second), ("cable", "cable2"), ADDRESSES, strict=True
        ):
            _ip("link", "set", "lo", "up", inside=words)
            _ip("link", "add", BRIDGE, "type", "bridge", inside=words)
            _ip("addr", "add", f"{address}/24", "dev", BRIDGE, inside=words)
            _ip("link", "set", cable, "master", BRIDGE, inside=words)
            _ip("link", "set", cable, "up", inside=words)
            _ip("link", "set", BRIDGE, "up", inside=words)
        server = _dnsmasq(made.leases)
        undo.callback(server.wait)
        undo.callback(server.kill)
        yield made


def _dnsmasq(leases: Path) -> "subprocess.Popen[bytes]":
    words = [str(_program("dnsmasq")), "--keep-in-foreground", "--conf-file=/dev/null", "--port=0"]
    words += [f"--interface={BRIDGE}", "--bind-interfaces", f"--dhcp-range={_GIVEN}"]
    words += [f"--dhcp-leasefile={leases}", "--user=root", "--pid-file="]
    with leases.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _ip(*words: str, inside: list[str] | None = None) -> None:
    done = subprocess.run([*(inside or []), "ip", *words], capture_output=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


def _make() -> None:
    """Leave this thread's network for a new one."""
    if _libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network of its own")


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network cannot be entered")


def _serve(listening: socket.socket, port: int) -> None:
    while True:
        try:
            taken, _ = listening.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_carry, args=(taken, port), daemon=True).start()


def _carry(taken: socket.socket, port: int) -> None:
    with taken, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as there:
        ends = {taken: there, there: taken}
        while True:
            for end in select.select(list(ends), [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                ends[end].sendall(data)
