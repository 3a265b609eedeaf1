"""The source's half of a move: disk, then memory, then the switch-over, driven through QMP.

    disk copied --> memory copied, again and again --> pre-switchover: the guest stands still
        --> the target's agent answers --> disks part
        --> migrate-continue --> completed: moved | failed: it goes on here

Up to pre-switchover everything can be cancelled, and the guest goes on here. Once QEMU was told to
go on from there nothing is ever cancelled: whether the target has the guest is for QEMU to say, and
if it cannot, for the target. A call that is cancelled leaves all of this as it is, and the next one
goes on with whatever QEMU is doing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from roost.agent.drivers.qemu.command import shape_of
from roost.agent.drivers.qemu.consoles import end_of_console
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts, boot_of, has_seed
from roost.agent.drivers.qemu.manifest import SEED_NODE, Shape
from roost.agent.drivers.qemu.monitor import SILENT, Event, Monitor
from roost.agent.drivers.qemu.move import migrationtls, mirror
from roost.agent.drivers.qemu.move.attendance import Asking
from roost.agent.drivers.qemu.move.endpoints import Address, parse
from roost.agent.drivers.qemu.move.leaving import (
    CANCELLABLE,
    UNDER_WAY,
    cancel,
    disk_target,
    leave,
    same_image,
    settled,
)
from roost.agent.drivers.qemu.move.mirror import Copied, Mirror
from roost.agent.drivers.qemu.move.pace import Pace
from roost.agent.drivers.qemu.move.receiving import set_capabilities
from roost.agent.drivers.qemu.sight import BROKEN
from roost.base.clock import first_of
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM, MoveInfo, ProgressInfo

_POLL_S = 0.25
_QUICK_POLL_S = 0.02
#: How long the disks may take to part, and the last step may take before it is called stuck.
_PART_S = 10.0
_SWITCH_S = 30.0
#: How long the target's agent may take to start a copy of another shape.
_AGREE_S = 60.0
#: How long a guest stands still for a target's agent that does not answer; it then goes on here.
_ATTEND_S = 1.0
#: How long after the switch-over it is asked whether the guest executes at the target.
_RUNS_S = 10.0


class Sending:
    """The sending of one VM to its target; made for one call of `send`."""

    def __init__(
        self,
        parts: Parts,
        handle: VMHandle,
        vm: DesiredVM,
        progress: Callable[[ProgressInfo], None],
    ) -> None:
        self._parts = parts
        self._handle = handle
        self._vm = vm
        self._move = vm.move or MoveInfo()
        self._pace = Pace(parts.clock, parts.settings, vm, progress)
        self._news = asyncio.Event()
        self._heard = ""  # the phase, as QEMU said it last by itself
        self._switched = False  # migrate-continue was sent
        self._post_copy = False  # QEMU may turn this into post-copy,
        self._post_copy_begun = False  # and was told to
        self._aim_ms = -1
        self._mirror: Mirror | None = None
        self._asking = Asking(vm.endpoint.get("agent", ""), parts.clock)
        self._stopped_at: float | None = None  # when the guest stood still,
        self._runs: asyncio.Task[float | None] | None = None  # and since when it executes there

    async def run(self) -> None:
        """Send the VM to its target; returns when it has moved."""
        self._handle.listeners.append(self._hear)
        try:
            monitor = await self._handle.reach()
            moving = await monitor.execute("query-migrate")
            status = str(moving.get("status", ""))
            if status in UNDER_WAY and not self._is_for_us():
                await cancel(self._parts, self._handle, monitor)
                status = str((await monitor.execute("query-migrate")).get("status", ""))
            migrationtls.check(self._vm.endpoint, self._parts.settings.migrate_tls)
            self._mirror = await self._plan_mirror(monitor)
            if status in UNDER_WAY:
                self._pace.began_before(moving.get("total-time", 0) / 1000)
                self._post_copy = await has_post_copy(monitor)
                await self._persist(monitor, self._watch(monitor))
            elif not await self._is_over(monitor, status):
                await self._persist(monitor, self._begin(monitor))
            await self._leave(monitor)
        finally:
            self._handle.listeners.remove(self._hear)
            if self._runs is not None:
                self._runs.cancel()
            self._asking.close()

    def _hear(self, event: Event) -> None:
        if event.name == "MIGRATION":
            self._heard = str(event.data.get("status", ""))
            self._news.set()
        elif event.name == "STOP":
            self._stopped_at = self._parts.clock.monotonic()
        elif event.name == "MIGRATION_PASS":
            self._pace.passes = int(event.data.get("pass", 0))
            self._news.set()

    def _is_for_us(self) -> bool:
        """Return whether the migration under way goes to the order's target."""
        manifest = self._handle.manifest
        return manifest is not None and manifest.endpoint == self._vm.endpoint

    async def _is_over(self, monitor: Monitor, status: str) -> bool:
        """Return whether the VM was sent before, and stands still since then."""
        if status != "completed":
            return False
        runstate = (await monitor.execute("query-status"))["status"]
        return runstate in ("postmigrate", "finish-migrate")

    async def _persist(self, monitor: Monitor, work: Coroutine[Any, Any, None]) -> None:
        """Run the migration; free a QEMU that hangs on a silent disk target."""
        try:
            await work
        except DriverError as error:
            if error.code != SILENT or self._mirror is None or self._switched:
                raise
            await self._mirror.cut()
            text = f"the target of {self._vm.name}'s disk does not answer; the VM runs on here"
            await self._give_up(monitor, "migration_stalled", text)

    # Getting ready

    async def _plan_mirror(self, monitor: Monitor) -> Mirror | None:
        target = await disk_target(self._parts, self._handle, self._vm)
        if target is None or self._handle.manifest is None:
            return None
        alike = same_image(self._handle.manifest, self._vm.endpoint)
        return Mirror(monitor, target, alike=alike, speed=self._pace.bandwidth)

    async def _begin(self, monitor: Monitor) -> None:
        vm, manifest = self._vm, self._handle.manifest
        if manifest is not None and manifest.shape is not None:
            await self._agree_on(await self._shape_now(monitor, manifest.shape))
        target = parse(vm.endpoint.get("uri", ""))
        tls = self._parts.settings.migrate_tls
        credentials = await migrationtls.add_credentials(monitor, tls, "client")
        await self._handle.note(endpoint=vm.endpoint)
        try:
            await self._copy_disk(monitor, credentials)
            await self._set_up(monitor, target, credentials)
            await monitor.execute("migrate", {"uri": target.uri})
        except DriverError:
            await mirror.clear(monitor)
            raise
        self._pace.tick()
        await self._watch(monitor)

    async def _shape_now(self, monitor: Monitor, shape: Shape) -> Shape:
        """Return the shape of a VM with the seed that it was booted with.

        One that was held and adopted has lost its user data, but its machine has the device.
        """
        if has_seed(boot_of(self._parts.settings, self._vm), shape):
            return shape
        nodes = await monitor.execute("query-named-block-nodes", {"flat": True})
        return replace(shape, seed=any(node["node-name"] == SEED_NODE for node in nodes))

    async def _agree_on(self, shape: Shape) -> None:
        """Let the copy at the target be the machine that this VM was booted with."""
        why = ""
        if self._asking.is_possible:
            why = await self._asking.tell_shape(shape, _AGREE_S)
        elif replace(shape, machine="") != shape_of(self._vm):
            why = "its target's agent is an older one. Maybe restart it first"
        if why:
            text = f"{self._vm.name} runs as it was booted, and cannot be the same there: {why}"
            raise DriverError("permanent", "shape_differs", text)

    async def _set_up(self, monitor: Monitor, target: Address, credentials: str) -> None:
        runstate = (await monitor.execute("query-status"))["status"]
        self._post_copy = self._move.post_copy and runstate == "running"
        capabilities = {
            "events": True,
            "pause-before-switchover": True,
            "auto-converge": self._move.auto_converge,
            "postcopy-ram": self._post_copy,
        }
        await set_capabilities(monitor, capabilities)
        parameters: dict[str, object] = {
            "max-bandwidth": self._pace.most_bandwidth(self._post_copy),
            "max-postcopy-bandwidth": self._pace.bandwidth,
            "cpu-throttle-initial": 40,
            "cpu-throttle-increment": 20,
            "tls-creds": credentials,
            "tls-hostname": (target.host or "localhost") if credentials else "",
        }
        await monitor.execute("migrate-set-parameters", parameters)
        await self._allow(monitor)

    async def _allow(self, monitor: Monitor) -> None:
        """Tell QEMU how long the guest may stand still."""
        # 0 for post-copy: then QEMU ends in its plain way only when nothing at all is left.
        aim_ms = 0 if self._post_copy else self._pace.downtime_ms()
        if aim_ms != self._aim_ms:
            self._aim_ms = aim_ms
            await monitor.execute("migrate-set-parameters", {"downtime-limit": aim_ms})

    async def _copy_disk(self, monitor: Monitor, credentials: str) -> None:
        if self._mirror is None:
            await mirror.clear(monitor)
            return
        await self._mirror.begin(credentials)
        while not (seen := await self._mirror.look()).ready:
            if seen.over:
                text = f"the disk could not be copied: {seen.error}"
                raise DriverError("permanent", "mirror_failed", text)
            self._pace.note({}, seen)
            self._pace.check()
            await self._parts.clock.sleep(_QUICK_POLL_S)

    # Following QEMU

    async def _watch(self, monitor: Monitor) -> None:
        """Follow the migration to its end; raises when the guest has not left."""
        while True:
            status, self._heard = self._heard, ""
            self._news.clear()
            status = status or await self._ask(monitor)
            if status == "pre-switchover" and not self._switched:
                await self._switch_over(monitor)
            elif status == "completed":
                return
            elif status in ("failed", "cancelled"):
                await self._stay(monitor, status)
            elif status in CANCELLABLE and not self._switched:
                await self._keep_pace(monitor)
            elif status == BROKEN or self._pace.still_s() > _SWITCH_S:
                text = f"{self._vm.name} stands still: the last step of its move does not end"
                raise DriverError("permanent", "switchover_stuck", text)
            await self._rest()

    async def _rest(self) -> None:
        """Wait a moment for an event of the migration."""
        quick = self._post_copy and not self._post_copy_begun
        await first_of(self._parts.clock, _QUICK_POLL_S if quick else _POLL_S, self._news)

    async def _ask(self, monitor: Monitor) -> str:
        """Query the migration's progress, and report it."""
        moving = await monitor.execute("query-migrate")
        status = str(moving.get("status", ""))
        copied = Copied()
        if self._mirror is not None and status == "active":
            copied = await self._mirror.look()
            if copied.over:
                text = f"the disk could not be copied: {copied.error}"
                await self._give_up(monitor, "mirror_failed", text)
        if status in ("setup", "active", "postcopy-active"):
            self._pace.note(moving, copied)
        if status == "active" and self._post_copy and not self._post_copy_begun:
            ram = moving.get("ram", {})
            if self._pace.passes > 1 or ram.get("remaining", 0) * 2 < ram.get("total", 0):
                self._post_copy_begun = True
                await monitor.execute("migrate-start-postcopy")
        return status

    async def _keep_pace(self, monitor: Monitor) -> None:
        """Give up a migration that stalls or is late; allow more downtime with each pass."""
        try:
            self._pace.check()
        except DriverError as error:
            await self._give_up(monitor, error.code, error.message)
        await self._allow(monitor)

    # The switch-over and its ends

    async def _switch_over(self, monitor: Monitor) -> None:
        """Switch over: finish the mirror, then hand the guest over. There is no way back."""
        if self._post_copy and await self._ends_early(monitor):
            text = f"all memory of {self._vm.name} was sent before post-copy could begin"
            text += "; it runs on here. Maybe move it without post-copy"
            await self._give_up(monitor, "post_copy_missed", text)
        if not await self._hand_console():
            text = f"the agent of its target has not answered for {_ATTEND_S:g} s, and nobody else"
            text += f" would let {self._vm.name} go on there; it runs on here"
            await self._give_up(monitor, "target_silent", text)
        leaving: list[Coroutine[Any, Any, object]] = []
        if self._mirror is not None:
            try:
                await self._mirror.finish(_PART_S)
            except DriverError as error:
                if error.code == SILENT:
                    await self._mirror.cut()
                await self._give_up(monitor, "mirror_failed", error.message)
            leaving = self._mirror.leaving()
        self._switched = True
        self._pace.tick()
        if self._asking.is_possible:
            self._runs = asyncio.create_task(self._await_execution())
        # All in one go: the guest stands still, and each question would wait for its answer.
        onward = monitor.execute("migrate-continue", {"state": "pre-switchover"})
        *_, outcome = await asyncio.gather(*leaving, onward, return_exceptions=True)
        if isinstance(outcome, BaseException):
            raise outcome

    async def _hand_console(self) -> bool:
        """Hand the end of the log to the target's agent; return whether it answers in time."""
        end, text = await asyncio.to_thread(end_of_console, self._handle.folder)
        return await self._asking.hand_console(end, text, _ATTEND_S)

    async def _await_execution(self) -> float | None:
        """Return since when the guest executes at the target; None when nobody tells in time."""
        return self._parts.clock.monotonic() if await self._asking.runs(_RUNS_S) else None

    async def _ends_early(self, monitor: Monitor) -> bool:
        """Return whether a migration that could turn into post-copy ends in the plain way.

        It then waits for a word of the target, and if that word is lost the source goes on although
        the target may have the guest: two would run. In the plain way nothing is left by now.
        """
        moving = await monitor.execute("query-migrate")
        return not moving.get("ram", {}).get("remaining", 0)

    async def _give_up(self, monitor: Monitor, code: str, message: str) -> None:
        await cancel(self._parts, self._handle, monitor)
        raise DriverError("permanent", code, message)

    async def _stay(self, monitor: Monitor, status: str) -> None:
        """Clean up after a failed migration, and raise why the VM has not left."""
        moving = await monitor.execute("query-migrate")
        words = str(moving.get("error-desc", "")) or f"QEMU only says {status}"
        runstate = await settled(self._parts, monitor)
        if runstate == "postmigrate" and status == "failed" and await has_post_copy(monitor):
            # QEMU cannot tell whether the target has what it needs, and waits.
            text = f"{self._vm.name} stands still: its move failed at the last step: {words}"
            raise DriverError("permanent", "switchover_stuck", text)
        await mirror.clear(monitor)
        text = f"{self._vm.name} could not be sent and stays here: {words}"
        raise DriverError("permanent", f"migration_{status}", text)

    async def _leave(self, monitor: Monitor) -> None:
        """Record that the VM has left this host."""
        await leave(self._parts, self._handle, self._vm)
        await settled(self._parts, monitor)
        moving = dict(await monitor.execute("query-migrate"))
        if self._asking.is_possible:
            # QEMU counts until all was sent; the guest stands still until the target's agent
            # has written down that it takes over. Who cannot tell that says nothing.
            runs_at = await self._runs if self._runs is not None else None
            if self._stopped_at is not None and runs_at is not None:
                still_ms = round((runs_at - self._stopped_at) * 1000)
                moving["downtime"] = max(moving.get("downtime", 0), still_ms)
            elif self._stopped_at is not None:
                del moving["downtime"]
        self._pace.tell(moving, Copied())


async def has_post_copy(monitor: Monitor) -> bool:
    """Return whether the last migration could turn into post-copy."""
    told = await monitor.execute("query-migrate-capabilities")
    return any(each["capability"] == "postcopy-ram" and each["state"] for each in told)
