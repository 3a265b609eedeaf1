"""The source's half of a move: disk, then memory, then the switch-over, driven through QMP.

    disk copied --> memory copied, again and again --> pre-switchover: the guest stands still
        --> disks part --> migrate-continue --> completed: moved | failed: it goes on here

Up to pre-switchover everything can be cancelled, and the guest goes on here. Once QEMU was told to
go on from there nothing is ever cancelled: whether the target has the guest is for QEMU to say, and
if it cannot, for the target. A call that is cancelled leaves all of this as it is, and the next one
goes on with whatever QEMU is doing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from roost.agent.drivers.base import DriverError
from roost.agent.drivers.qemu import migrationtls, mirror
from roost.agent.drivers.qemu.command import shape_of
from roost.agent.drivers.qemu.endpoints import Address, parse, storage_id
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts
from roost.agent.drivers.qemu.manifest import Manifest
from roost.agent.drivers.qemu.mirror import Copied, Mirror
from roost.agent.drivers.qemu.monitor import SILENT, Event, Monitor
from roost.agent.drivers.qemu.receiving import POST_COPY, set_capabilities
from roost.wire.agentlink import DesiredVM, MoveInfo, ProgressInfo

#: QEMU's words for a migration that can still be cancelled, and for one that has ended.
CANCELLABLE = frozenset({"setup", "active", "wait-unplug", "pre-switchover"})
UNDER_WAY = CANCELLABLE | {"device", "cancelling"} | POST_COPY
_ENDED = frozenset({"completed", "failed", "cancelled", "none", ""})

_REPORT_S = 2.0
_POLL_S = 0.25
_QUICK_POLL_S = 0.02
_SETTLE_S = 10.0
#: How long the last step may take before it is called stuck.
_SWITCH_S = 30.0
#: A migrate-continue that was sent by a life of this agent before has been acted upon by then.
_CONTINUED_S = 0.5
_UNLIMITED = 1 << 40  # bytes per second
#: How the stand-still to aim for grows: from this share of what is allowed, with every pass.
_FIRST_DOWNTIME = 10


class Sending:
    """One VM on its way out. Made for one call of `send`."""

    def __init__(
        self,
        parts: Parts,
        handle: VMHandle,
        vm: DesiredVM,
        progress: Callable[[ProgressInfo], None],
    ) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._settings = parts.settings
        self._handle = handle
        self._vm = vm
        self._move = vm.move or MoveInfo()
        self._progress = progress
        self._news = asyncio.Event()
        self._status = ""  # as QEMU said it last by itself
        self._begun_at = self._clock.monotonic()
        self._moved_bytes = -1
        self._moved_at = self._begun_at
        self._reported_at = float("-inf")
        self._passes = 0
        self._switched = False  # migrate-continue was sent
        self._post_copy = False  # it was told to start
        self._aim_ms = 0
        self._mirror: Mirror | None = None

    async def run(self) -> None:
        """Send it; returns when it is moved."""
        handle = self._handle
        handle.listeners.append(self._hear)
        try:
            monitor = await handle.reach()
            moving = await monitor.execute("query-migrate")
            status = str(moving.get("status", ""))
            if status in UNDER_WAY and not self._is_for_us():
                await cancel(self._parts, handle, monitor)
                status = ""
            credentials = await self._credentials(monitor)
            self._mirror = await self._plan_mirror(monitor, credentials)
            if status in UNDER_WAY:
                self._begun_at -= int(moving.get("total-time", 0)) / 1000
                await self._persist(monitor, self._watch(monitor))
            elif not await self._is_over(monitor, status):
                await self._persist(monitor, self._begin(monitor, credentials))
            await self._leave(monitor)
        finally:
            handle.listeners.remove(self._hear)

    async def _persist(self, monitor: Monitor, work: Coroutine[Any, Any, None]) -> None:
        """Do it; a QEMU that hangs because the disk's target says nothing is freed."""
        try:
            await work
        except DriverError as error:
            if error.code != SILENT or self._mirror is None or self._switched:
                raise
            await self._mirror.cut()
            text = f"the target of {self._vm.name}'s disk does not answer; the VM runs on here"
            await self._give_up(monitor, "migration_stalled", text)

    def _hear(self, event: Event) -> None:
        if event.name == "MIGRATION":
            self._status = str(event.data.get("status", ""))
            self._news.set()
        elif event.name == "MIGRATION_PASS":
            self._passes = int(event.data.get("pass", 0))
            self._news.set()

    def _is_for_us(self) -> bool:
        """Return whether what is under way goes where the order says."""
        manifest = self._handle.manifest
        return manifest is not None and manifest.endpoint == self._vm.endpoint

    async def _is_over(self, monitor: Monitor, status: str) -> bool:
        """Return whether it was sent before, and stands still since then."""
        if status != "completed":
            return False
        runstate = (await monitor.execute("query-status"))["status"]
        return runstate in ("postmigrate", "finish-migrate")

    # Getting ready

    async def _credentials(self, monitor: Monitor) -> str:
        migrationtls.check(self._vm.endpoint, self._settings.migrate_tls)
        if (await monitor.execute("query-migrate")).get("status") in UNDER_WAY:
            return ""  # it has them
        return await migrationtls.add_credentials(monitor, self._settings.migrate_tls, "client")

    async def _plan_mirror(self, monitor: Monitor, credentials: str) -> Mirror | None:
        target = await disk_target(self._parts, self._handle, self._vm)
        if target is None or self._handle.manifest is None:
            return None
        alike = same_image(self._handle.manifest, self._vm.endpoint)
        return Mirror(monitor, target, credentials, alike)

    async def _begin(self, monitor: Monitor, credentials: str) -> None:
        vm, manifest = self._vm, self._handle.manifest
        if manifest is not None and manifest.shape not in (None, shape_of(vm)):
            text = f"{vm.name} was resized while it ran, and runs on as it was started"
            raise DriverError("permanent", "shape_differs", f"{text}. Maybe restart it first")
        target = parse(vm.endpoint.get("uri", ""))
        await self._handle.note(endpoint=vm.endpoint)
        try:
            await mirror.clear(monitor) if self._mirror is None else await self._copy_disk()
            await self._set_up(monitor, target, credentials)
            await monitor.execute("migrate", {"uri": target.uri})
        except DriverError:
            await mirror.clear(monitor)
            raise
        self._moved_at = self._clock.monotonic()
        await self._watch(monitor)

    async def _set_up(self, monitor: Monitor, target: Address, credentials: str) -> None:
        move = self._move
        capabilities = {
            "events": True,
            "pause-before-switchover": True,
            "auto-converge": move.auto_converge,
            "postcopy-ram": move.post_copy,
        }
        await set_capabilities(monitor, capabilities)
        bandwidth = move.bandwidth_bytes or self._settings.migrate_bandwidth_bytes
        parameters: dict[str, object] = {
            "max-bandwidth": bandwidth or _UNLIMITED,
            "max-postcopy-bandwidth": bandwidth,
            "cpu-throttle-initial": 40,
            "cpu-throttle-increment": 20,
            "tls-creds": credentials,
            "tls-hostname": (target.host or "localhost") if credentials else "",
        }
        await monitor.execute("migrate-set-parameters", parameters)
        await self._allow(monitor)

    def _downtime_ms(self) -> int:
        """Return the stand-still to aim for: short at first, longer with every pass."""
        most = self._move.downtime_ms or self._settings.migrate_downtime_ms
        if self._move.post_copy:
            return 0  # post-copy starts while much is left, not when little is
        share = (1 << min(self._passes, 10)) / _FIRST_DOWNTIME
        return max(1, min(most, int(most * share)))

    async def _copy_disk(self) -> None:
        assert self._mirror is not None
        await self._mirror.begin()
        while True:
            seen = await self._mirror.look()
            if seen.over:
                raise DriverError(
                    "permanent", "mirror_failed", f"the disk could not be copied: {seen.error}"
                )
            self._report({}, seen)
            if seen.ready:
                return
            self._check_pace()
            await self._clock.sleep(_POLL_S if self._moved_bytes else _QUICK_POLL_S)

    # Following QEMU

    async def _watch(self, monitor: Monitor) -> None:
        """Follow the migration to its end; raises when the guest has not left."""
        while True:
            told = self._status
            self._status = ""
            self._news.clear()
            status = told or await self._ask(monitor)
            if status == "pre-switchover" and not self._switched:
                await self._switch_over(monitor)
            elif status == "completed":
                return
            elif status in ("failed", "cancelled"):
                await self._stay(monitor, status)
            elif status in CANCELLABLE and not self._switched:
                await self._keep_pace(monitor)
            elif self._clock.monotonic() - self._moved_at > _SWITCH_S and status not in POST_COPY:
                text = f"{self._vm.name} stands still: the last step of its move does not end"
                raise DriverError("permanent", "switchover_stuck", text)
            await self._rest()

    async def _rest(self) -> None:
        """Wait for news, for a moment."""
        quick = self._move.post_copy and not self._post_copy
        timer = asyncio.create_task(self._clock.sleep(_QUICK_POLL_S if quick else _POLL_S))
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((timer, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            news.cancel()

    async def _ask(self, monitor: Monitor) -> str:
        """Ask QEMU how far it is, and tell whoever wants to know."""
        moving = await monitor.execute("query-migrate")
        status = str(moving.get("status", ""))
        copied = await self._mirror.look() if self._mirror and status == "active" else Copied()
        if copied.over and copied.error:
            await self._give_up(monitor, "mirror_failed", f"copying the disk: {copied.error}")
        if status == "active":
            ram = moving.get("ram", {})
            self._passes = max(self._passes, int(ram.get("dirty-sync-count", 0)))
            if self._move.post_copy and not self._post_copy and self._first_pass_ends(ram):
                self._post_copy = True
                await monitor.execute("migrate-start-postcopy")
        if status in UNDER_WAY:
            self._report(moving, copied)
        return status

    def _first_pass_ends(self, ram: Mapping[str, Any]) -> bool:
        """Return whether most of the memory was sent once.

        QEMU must be told before it finds nothing left: a migration that could turn into post-copy
        and ends without, ends by an answer of the target, and a source that waits for that answer
        in vain would go on beside it.
        """
        total, left = int(ram.get("total", 0)), int(ram.get("remaining", 0))
        return self._passes > 1 or (total > 0 and left * 8 < total)

    async def _keep_pace(self, monitor: Monitor) -> None:
        """Give up what does not move or takes too long; allow more stand-still with each pass."""
        try:
            self._check_pace()
        except DriverError as error:
            await self._give_up(monitor, error.code, error.message)
        await self._allow(monitor)

    async def _allow(self, monitor: Monitor) -> None:
        aim_ms = self._downtime_ms()
        if aim_ms != self._aim_ms:
            self._aim_ms = aim_ms
            await monitor.execute("migrate-set-parameters", {"downtime-limit": aim_ms})

    def _check_pace(self) -> None:
        now, name = self._clock.monotonic(), self._vm.name
        stalled_s = self._settings.migrate_progress_s
        if now - self._moved_at > stalled_s:
            text = f"nothing of {name} was sent for {stalled_s:g} s; it runs on here"
            raise DriverError("permanent", "migration_stalled", text)
        limit_s = self._move.limit_s or self._settings.migrate_limit_s
        if now - self._begun_at > limit_s:
            text = f"{name} was not sent within {limit_s:g} s; it runs on here"
            if self._passes > 1:
                text += f". It changes its memory too fast ({self._passes} passes)"
            raise DriverError("permanent", "migration_too_slow", text)

    def _report(self, moving: Mapping[str, Any], copied: Copied) -> None:
        ram = moving.get("ram", {})
        sent = int(ram.get("transferred", 0)) + copied.sent_bytes
        now = self._clock.monotonic()
        if sent != self._moved_bytes:
            self._moved_bytes, self._moved_at = sent, now
        if now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        self._progress(
            ProgressInfo(
                sent_bytes=sent,
                left_bytes=int(ram.get("remaining", 0)) + copied.left_bytes,
                dirty_bytes_per_s=ram.get("dirty-pages-rate", 0) * ram.get("page-size", 0),
                passes=int(ram.get("dirty-sync-count", 0)),
                throttle_percent=int(moving.get("cpu-throttle-percentage", 0)),
            )
        )

    # The switch-over and its ends

    async def _switch_over(self, monitor: Monitor) -> None:
        """Let the disks part, then let QEMU hand the guest over. From here there is no way back."""
        if self._mirror is not None:
            try:
                await self._mirror.finish(min(_SETTLE_S, self._settings.migrate_progress_s))
            except DriverError as error:
                await self._give_up(monitor, "mirror_failed", error.message)
        self._switched = True
        self._moved_at = self._clock.monotonic()
        # All in one go: the guest stands still, and each question would wait for its answer.
        leaving = self._mirror.leaving() if self._mirror is not None else []
        onward = monitor.execute("migrate-continue", {"state": "pre-switchover"})
        *_, outcome = await asyncio.gather(*leaving, onward, return_exceptions=True)
        if isinstance(outcome, BaseException):
            raise outcome

    async def _give_up(self, monitor: Monitor, code: str, message: str) -> None:
        await cancel(self._parts, self._handle, monitor)
        raise DriverError("permanent", code, message)

    async def _stay(self, monitor: Monitor, status: str) -> None:
        """It has not left, or nobody here can tell: clear up and say so."""
        moving = await monitor.execute("query-migrate")
        words = str(moving.get("error-desc", "")) or f"QEMU says that it has {status}"
        runstate = await settled(self._parts, monitor)
        if runstate == "postmigrate" and status == "failed" and await has_post_copy(monitor):
            text = f"{self._vm.name} stands still: its move failed at the last step: {words}"
            raise DriverError("permanent", "switchover_stuck", text)
        await mirror.clear(monitor)
        text = f"{self._vm.name} could not be sent and stays here: {words}"
        raise DriverError("permanent", f"migration_{status}", text)

    async def _leave(self, monitor: Monitor) -> None:
        """Write down that it is gone."""
        handle, vm = self._handle, self._vm
        await leave(self._parts, handle, vm)
        await settled(self._parts, monitor)
        moving = await monitor.execute("query-migrate")
        copied = await self._mirror.look() if self._mirror is not None else Copied()
        self._progress(
            ProgressInfo(
                sent_bytes=moving.get("ram", {}).get("transferred", 0) + copied.sent_bytes,
                passes=moving.get("ram", {}).get("dirty-sync-count", 0),
                downtime_ms=moving.get("downtime"),
            )
        )


async def leave(parts: Parts, handle: VMHandle, vm: DesiredVM) -> None:
    """Write down that a VM has left, durably; then it needs no fence any more."""
    manifest = handle.manifest
    assert manifest is not None
    order = replace(manifest.order, generation=vm.generation)
    await handle.note(order=order, role="moved", arrived=False, endpoint={})
    parts.fences.drop(handle.id)


async def cancel(parts: Parts, handle: VMHandle, monitor: Monitor) -> bool:
    """Cancel a migration unless the switch-over has begun; return whether the guest is here.

    A guest that should run runs again afterwards.
    """
    status = str((await monitor.execute("query-migrate")).get("status", ""))
    if status == "pre-switchover":
        # It may have been told to go on a moment ago, by a life of this agent that is over: to
        # cancel then could leave two running.
        await parts.clock.sleep(_CONTINUED_S)
        status = str((await monitor.execute("query-migrate")).get("status", ""))
    if status not in CANCELLABLE | {"cancelling"}:
        return status not in UNDER_WAY and status != "completed"
    await mirror.clear(monitor)  # first, as QEMU may wait for the target in it
    await monitor.execute("migrate_cancel")
    give_up_at = parts.clock.monotonic() + _SETTLE_S
    while (status := str((await monitor.execute("query-migrate")).get("status"))) in UNDER_WAY:
        if parts.clock.monotonic() > give_up_at:
            raise DriverError(
                "transient", "not_cancelled", f"the migration of {handle.id} does not end"
            )
        await parts.clock.sleep(_QUICK_POLL_S)
    runstate = await settled(parts, monitor)
    manifest = handle.manifest
    wanted = manifest is not None and manifest.order.power == "running"
    if wanted and runstate == "postmigrate" and status == "cancelled":
        # QEMU only resumes by itself what it stopped in its plain way, not on the way to post-copy.
        await monitor.execute("cont")
    return status != "completed"


async def settled(parts: Parts, monitor: Monitor) -> str:
    """Return the run state once it is no longer on its way: it follows the migration's end."""
    give_up_at = parts.clock.monotonic() + _SETTLE_S
    while True:
        runstate = str((await monitor.execute("query-status"))["status"])
        if runstate != "finish-migrate" or parts.clock.monotonic() > give_up_at:
            return runstate
        await parts.clock.sleep(_QUICK_POLL_S)


async def has_post_copy(monitor: Monitor) -> bool:
    """Return whether the last migration could turn into post-copy."""
    told = await monitor.execute("query-migrate-capabilities")
    return any(each["capability"] == "postcopy-ram" and each["state"] for each in told)


async def disk_target(parts: Parts, handle: VMHandle, vm: DesiredVM) -> Address | None:
    """Return where the disk is to be copied to, None when there is nothing to copy."""
    manifest, settings = handle.manifest, parts.settings
    storage = manifest.storage if manifest is not None else "none"
    if storage == "none":
        return None
    if storage == "shared" and settings.shared_disks is not None:
        ours = await asyncio.to_thread(storage_id, settings.shared_disks, parts.clock)
        if vm.endpoint.get("storage") == ours:
            return None
    if "nbd" not in vm.endpoint:
        text = f"the target keeps {vm.name}'s disk on a shared storage that this host does not use"
        raise DriverError("permanent", "storage_differs", text)
    return parse(vm.endpoint["nbd"])


def same_image(manifest: Manifest, endpoint: dict[str, str]) -> bool:
    """Return whether the target's disk begins as this one did, so that the rest can be left out."""
    ours = manifest.image.digest if manifest.image is not None else ""
    return endpoint.get("image", "") == ours
