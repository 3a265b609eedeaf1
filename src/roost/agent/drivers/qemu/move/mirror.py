"""Copying a disk to the target of a move, over NBD: at the target an export, here a mirror job.

When the target's disk begins over the same image only what the VM itself has written is copied. The
mirror writes synchronously: what the guest writes is on both disks before it is told so, and at the
switch-over nothing is left to copy. A mirror belongs to one target; one that is found
with another target, or at its end, is cleared away and begun anew.
"""

from collections.abc import Coroutine, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple

from roost.agent.drivers.qemu.command import DISK_NODE
from roost.agent.drivers.qemu.monitor import REFUSED, Event, Monitor
from roost.agent.drivers.qemu.move.endpoints import Address
from roost.hostkit.failures import DriverError

#: What the job, and the disk at the target, are called.
JOB, EXPORT = "move-disk", "disk"

_CLEAR_S = 20.0


class Copied(NamedTuple):
    """How far a mirror has come. `ready`: both disks are alike and stay so."""

    sent_bytes: int = 0
    left_bytes: int = 0
    ready: bool = False
    over: bool = False  # it copies no more
    error: str = ""


async def export_disk(monitor: Monitor, address: Address, credentials: str) -> None:
    """Export the disk of an incoming copy over NBD for its source to write."""
    server: dict[str, object] = {"addr": address.listener, "max-connections": 2}
    if credentials:
        server["tls-creds"] = credentials
    await monitor.execute("nbd-server-start", server)
    export = {"id": EXPORT, "name": EXPORT, "type": "nbd", "node-name": DISK_NODE}
    await monitor.execute("block-export-add", {**export, "writable": True})


async def end_export(monitor: Monitor) -> None:
    """End the NBD export of a copy's disk; done twice, it does nothing."""
    try:
        await monitor.execute("nbd-server-stop")
    except DriverError as error:
        if error.code != REFUSED:
            raise


class Mirror:
    """The mirror of one VM's disk to one target."""

    def __init__(self, monitor: Monitor, target: Address, *, alike: bool, speed: int = 0) -> None:
        self._monitor = monitor
        self._target = target
        self._alike = alike  # both disks began the same
        self._speed = speed  # bytes per second; 0: no limit
        self._node = f"move-{blake2b(target.uri.encode(), digest_size=6).hexdigest()}"

    async def begin(self, credentials: str) -> None:
        """Start copying, or go on with a copying that is under way to the same target."""
        if not (await self.look()).over and await self._is_ours():
            return
        await clear(self._monitor)
        node: dict[str, object] = {
            "driver": "nbd",
            "node-name": self._node,
            "server": self._target.socket,
            "export": EXPORT,
        }
        if credentials:
            node["tls-creds"] = credentials
            node["tls-hostname"] = self._target.host or "localhost"
        await self._monitor.execute("blockdev-add", node, within_s=_CLEAR_S)
        job = {
            "job-id": JOB,
            "device": DISK_NODE,
            "target": self._node,
            "sync": "top" if self._alike else "full",
            "copy-mode": "write-blocking",
            "speed": self._speed,
            "auto-dismiss": False,  # so that its end can still be read
        }
        try:
            await self._monitor.execute("blockdev-mirror", job)
        except DriverError:
            await clear(self._monitor)
            raise

    async def look(self) -> Copied:
        """Return the progress of the mirror job."""
        job = await _job(self._monitor)
        return _copied(job) if job else Copied(over=True, error="it is gone")

    async def finish(self, within_s: float) -> None:
        """Complete the mirror while the guest stands still; raises `mirror_failed`."""
        with self._monitor.expecting("JOB_STATUS_CHANGE", _concludes) as over:
            if not (await self.look()).over:
                await self._monitor.execute("block-job-cancel", {"device": JOB})
                await over.within(within_s)
        seen = await self.look()
        if seen.error:
            raise DriverError(
                "permanent", "mirror_failed", f"the disk could not be copied: {seen.error}"
            )

    async def cut(self) -> None:
        """Cut the NBD connection: QEMU may be stuck waiting for a silent target."""
        await _yank(self._monitor, self._node)

    def leaving(self) -> list[Coroutine[Any, Any, object]]:
        """Return the QMP commands that detach the target after `finish`."""
        return [
            self._monitor.execute("job-dismiss", {"id": JOB}),
            self._monitor.execute("blockdev-del", {"node-name": self._node}),
        ]

    async def _is_ours(self) -> bool:
        nodes = await self._monitor.execute("query-named-block-nodes", {"flat": True})
        return any(node["node-name"] == self._node for node in nodes)


async def clear(monitor: Monitor) -> None:
    """Cancel a mirror if there is one, and detach its target, however dead that is."""
    nodes = await monitor.execute("query-named-block-nodes", {"flat": True})
    ours = [node["node-name"] for node in nodes if node["node-name"].startswith("move-")]
    job = await _job(monitor)
    if job:
        if job["status"] != "concluded":
            with monitor.expecting("JOB_STATUS_CHANGE", _concludes) as over:
                # First, as requests to a target that is silent are waited for without an end.
                for name in ours:
                    await _yank(monitor, name)
                with suppress(DriverError):
                    await monitor.execute("block-job-cancel", {"device": JOB, "force": True})
                if (await _job(monitor)).get("status", "concluded") != "concluded":
                    await over.within(_CLEAR_S)
        with suppress(DriverError):
            await monitor.execute("job-dismiss", {"id": JOB})
    for name in ours:
        await monitor.execute("blockdev-del", {"node-name": name}, within_s=_CLEAR_S)


async def _yank(monitor: Monitor, node: str) -> None:
    instance = {"type": "block-node", "node-name": node}
    with suppress(DriverError):
        await monitor.execute("yank", {"instances": [instance]}, urgent=True)


async def _job(monitor: Monitor) -> Mapping[str, object]:
    jobs = await monitor.execute("query-jobs")
    return next((job for job in jobs if job["id"] == JOB), {})


def _concludes(event: Event) -> bool:
    return event.data.get("id") == JOB and event.data.get("status") == "concluded"


def _copied(job: Mapping[str, object]) -> Copied:
    sent, total = int(str(job["current-progress"])), int(str(job["total-progress"]))
    return Copied(
        sent_bytes=sent,
        left_bytes=max(0, total - sent),
        ready=job["status"] == "ready",
        over=job["status"] in ("concluded", "null"),
        error=str(job.get("error", "")),
    )
