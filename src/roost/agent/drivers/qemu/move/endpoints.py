"""Where a host receives copies: addresses that are free, and how both ends of a move write them.

A driver tells its endpoint as plain words, which the control plane carries to the other host
without reading them:

    mode     live, or cold when only the disk is sent
    uri      where the copy waits for memory and devices: tcp:HOST:PORT or unix:PATH
    nbd      where its disk can be written, in the same form; missing when nothing is to be copied
    image    the digest of the image that this disk begins over; missing when it begins empty
    storage  the shared storage that its disk is on; missing when it has its own
    agent    where the target's agent says that it attends to the copy, behind the word that it is
             to be asked with: WORD@ADDRESS; missing from older agents
    tls      x509 when both connections are encrypted
"""

import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.fencing import guard
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError

#: The file in a shared folder that tells it from every other.
STORAGE_MARK = ".roost-storage"

_BUSY = ("Address already in use", "Failed to find an available port")
_UNIX = "unix:"
_TRIES = 20


class Address(NamedTuple):
    """A TCP address, or a unix socket when `path` is given."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def uri(self) -> str:
        """Return the address as QEMU's `migrate` takes it."""
        if self.path:
            return f"{_UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"

    @property
    def socket(self) -> dict[str, str]:
        """Return the address as QEMU's block layer takes it."""
        if self.path:
            return {"type": "unix", "path": self.path}
        return {"type": "inet", "host": self.host, "port": str(self.port)}

    @property
    def listener(self) -> dict[str, object]:
        """Return the address as QEMU's NBD server takes it."""
        data = self.socket
        return {"type": data.pop("type"), "data": data}


def parse(uri: str) -> Address:
    """Read an address; raises `endpoint_refused` for anything else."""
    if uri.startswith(_UNIX + "/"):
        return Address(path=uri.removeprefix(_UNIX))
    kind, _, rest = uri.partition(":")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not port.isdigit():
        raise DriverError("permanent", "endpoint_refused", f"{uri!r} is no address to send to")
    return Address(host.strip("[]"), int(port))


async def listen(
    settings: QemuSettings, name: str, attempt: Callable[[Address], Awaitable[object]]
) -> Address:
    """Let `attempt` try one address after the other until one is free, and return that.

    Raises `no_port` (transient) naming the range when all are taken.
    """
    for address in _candidates(settings, name):
        try:
            await attempt(address)
        except DriverError as error:
            if not any(words in error.message for words in _BUSY):
                raise
        else:
            return address
    first, last = settings.migrate_ports
    text = f"no free port among {first} to {last} of {settings.migrate_address} to receive a VM at"
    raise DriverError("transient", "no_port", text)


def _candidates(settings: QemuSettings, name: str) -> Iterator[Address]:
    host = settings.migrate_address
    if host.startswith(_UNIX):
        yield Address(path=f"{host.removeprefix(_UNIX)}/{_short(name)}.sock")
        return
    first, last = settings.migrate_ports
    if first or last:
        yield from (Address(host, port) for port in range(first, last + 1))
        return
    for _ in range(_TRIES):
        yield Address(host, _free_port(host))


def _free_port(host: str) -> int:
    """Return a port that is free now; somebody may be quicker, so it is only a candidate."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            text = f"{host} is no address of this host to receive VMs at: {error}"
            raise DriverError("permanent", "no_address", text) from error
        port: int = probe.getsockname()[1]
        return port


def _short(name: str) -> str:
    """Return a short name for a unix socket, whose path may have 107 bytes only."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


def storage_id(folder: Path, clock: Clock) -> str:
    """Return what tells a shared folder from every other, made at first use; blocks."""
    mark = folder / STORAGE_MARK
    if not mark.exists():
        made = blake2b(f"{guard.boot_id()}:{folder}:{clock.wall_ms()}".encode(), digest_size=12)
        beside = folder / f"{STORAGE_MARK}.{guard.boot_id()}.{os.getpid()}"
        beside.write_text(made.hexdigest())
        try:
            os.link(beside, mark)  # two hosts may do this at once: the first one holds
        except FileExistsError:
            pass
        finally:
            beside.unlink(missing_ok=True)
    return mark.read_text().strip()
