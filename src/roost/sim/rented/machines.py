"""A rented machine of a world: the shipped worker on it, and jobs that only take virtual time.

A worker may be killed and started again; jobs go on without it, as wardens do. The command of a job
says what it does: `work SECONDS EXIT_CODE`. Requests to planes may be lost, and so may answers.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

from roost.base.errors import RoostError, Unavailable
from roost.control.plane import Plane
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.jobs.door import WorkerDoor
from roost.parts.access import Principal
from roost.sim.ground.clocks import Machine, NodeClock
from roost.sim.ground.lives import Life
from roost.sim.rented.cloud import Rented
from roost.wire.workerlink import (
    LogsTaken,
    WorkerCapacity,
    WorkerJoin,
    WorkerLogs,
    WorkerOrders,
    WorkerPoll,
)
from roost.worker.attempts import AttemptParts
from roost.worker.run.plan import ENDED, WARDEN, Ended, Plan, Warden, read_ended, write
from roost.worker.store import WorkerStore
from roost.worker.worker import Worker, WorkerSettings

T = TypeVar("T")


class PlaneLife(Protocol):
    """A plane that may be asked while it lives."""

    life: Life | None
    plane: Plane | None


class SimHearth:
    """Implements what a worker asks of its hearth; the machine's own, it outlives workers."""

    def __init__(self, began: Callable[[Path], None], ended: Callable[[Path, Ended], None]) -> None:
        self._began, self._ended = began, ended
        self._over: dict[Path, asyncio.Event] = {}
        self._timers: dict[Path, asyncio.TimerHandle] = {}
        self._since: dict[Path, float] = {}

    async def start(self, folder: Path, plan: Plan) -> int:
        """Start the job of a folder."""
        loop = asyncio.get_running_loop()
        write(folder / WARDEN, Warden(1, 1))
        self._began(folder)
        self._over[folder], self._since[folder] = asyncio.Event(), loop.time()
        seconds, code = float(plan.argv[1]), int(plan.argv[2])
        if seconds > plan.run_limit_s:
            ended = Ended("run_limit", signal=15, run_ms=round(1000 * plan.run_limit_s))
            seconds = plan.run_limit_s
        else:
            ended = Ended("exited", exit_code=code, run_ms=round(1000 * seconds))
        self._timers[folder] = loop.call_later(seconds, self._end, folder, ended)
        return 1

    def _end(self, folder: Path, ended: Ended) -> None:
        if read_ended(folder) is None and folder.is_dir():
            write(folder / ENDED, ended)
            self._ended(folder, ended)
        self._timers.pop(folder, None)
        self._over[folder].set()

    async def ended(self, folder: Path, pid: int | None) -> Ended | None:
        """Wait for the job of a folder; return how it ended."""
        if folder in self._over:
            await self._over[folder].wait()
        return read_ended(folder)

    def end(self, folder: Path, why: str) -> None:
        """End a job."""
        if (timer := self._timers.get(folder)) is not None:
            timer.cancel()
            ran = asyncio.get_running_loop().time() - self._since[folder]
            self._end(folder, Ended("cancelled", signal=15, run_ms=round(1000 * ran)))

    async def sweep(self, group: str) -> None:
        """Sweep nothing: no process is left behind."""

    def close(self) -> None:
        """Let go of nothing: jobs go on."""

    def cut(self) -> None:
        """End all jobs at once, as when a machine is switched off."""
        for timer in self._timers.values():
            timer.cancel()


class Link:
    """The worker's way to some plane: late, and now and then there is none."""

    def __init__(self, planes: Sequence[PlaneLife], rented: Rented, random: Random) -> None:
        self._planes, self._rented, self._random = planes, rented, random
        self.credential: str | None = None
        self.lost = 0.0  # how likely a request or an answer is lost

    async def join(self) -> None:
        """Trade the join token for a credential."""
        told = self._rented.launch.bootstrap

        async def ask(plane: Plane, door: WorkerDoor) -> str:
            return (await door.join(WorkerJoin(machine=told.machine), told.join_token)).credential

        self.credential = await self._ask(ask)

    async def poll(self, poll: WorkerPoll) -> WorkerOrders:
        """Say what the worker has; return what it should have."""

        async def ask(plane: Plane, door: WorkerDoor) -> WorkerOrders:
            return await door.poll(poll, await self._who(plane))

        return await self._ask(ask)

    async def send_logs(self, logs: WorkerLogs) -> LogsTaken:
        """Send pieces of logs."""

        async def ask(plane: Plane, door: WorkerDoor) -> LogsTaken:
            return await door.logs(logs, await self._who(plane))

        return await self._ask(ask)

    async def close(self) -> None:
        """Close no connection: there is none."""

    async def _who(self, plane: Plane) -> Principal:
        return await plane.access.check(self.credential or "")

    async def _ask(self, work: Callable[[Plane, WorkerDoor], Coroutine[Any, Any, T]]) -> T:
        await asyncio.sleep(0.002 + self._random.random() * 0.05)
        up = [each for each in self._planes if each.life is not None and each.life.frozen is None]
        if not up or self._random.random() < self.lost:
            raise Unavailable("no plane answers")
        chosen = self._random.choice(up)
        life, plane = chosen.life, chosen.plane
        assert life is not None
        assert plane is not None
        door = next(part for part in plane.parts if isinstance(part, WorkerDoor))
        task = life.spawn(_answered(work(plane, door)))
        try:
            async with asyncio.timeout(30):
                found, error = await asyncio.shield(task)
        except (asyncio.CancelledError, TimeoutError) as gone:
            if life.alive and isinstance(gone, asyncio.CancelledError):
                raise  # this worker is ended, not the plane
            raise Unavailable("the plane has died") from None
        if self._random.random() < self.lost:
            raise Unavailable("the answer was lost")
        if error is not None:
            raise error
        return found  # type: ignore[no-any-return]


async def _answered(work: Coroutine[Any, Any, T]) -> tuple[T | None, RoostError | None]:
    try:
        return await work, None
    except RoostError as error:
        return None, error


class NoticeOf:
    """Implements `Notices`: the cloud tells when it takes a machine back."""

    def __init__(self) -> None:
        self.given = False

    async def reclaimed(self) -> bool:
        """Say whether the machine will be taken away."""
        return self.given


class SimMachine:
    """One rented machine, its worker and its jobs."""

    def __init__(
        self,
        rented: Rented,
        folder: Path,
        planes: Sequence[PlaneLife],
        random: Random,
        began: Callable[[str, Path], None],
        ended: Callable[[str, Path, Ended], None],
    ) -> None:
        self.rented, self._folder, self._random = rented, folder, random
        name = rented.launch.token
        self._hearth = SimHearth(lambda at: began(name, at), lambda at, how: ended(name, at, how))
        self.link = Link(planes, rented, random)
        self.notice = NoticeOf()
        self._machine = Machine()
        self.life: Life | None = None
        self._lives = 0

    def start(self) -> None:
        """Start the worker."""
        if self.life is None and self.rented.gone_at is None:
            self._lives += 1
            self.life = Life(f"{self.rented.cloud_id}.{self._lives}")
            self.life.spawn(self._work(self.life))

    async def _work(self, life: Life) -> None:
        clock = NodeClock(self._machine, life)
        while self.link.credential is None:
            with suppress(RoostError):
                await self.link.join()
            await clock.sleep(2.0)
        kind = self.rented.launch.type
        groups = LimitGroups("sim", bases={})
        store = WorkerStore(self._folder)
        store.open()
        try:
            await Worker(
                WorkerSettings(f"w{self._lives}", forsaken_s=60.0),
                plane=self.link,
                store=store,
                parts=AttemptParts(self._hearth, groups, None, clock, self._random),  # type: ignore[arg-type]
                capacity=WorkerCapacity(
                    cpu_milli=kind.cpu_milli,
                    memory_bytes=kind.memory_bytes,
                    disk_bytes=kind.disk_bytes,
                ),
                notices=[self.notice],
                clock=clock,
                random=self._random,
            ).run()
        finally:
            store.close()

    def kill_worker(self) -> None:
        """Kill the worker alone; its jobs go on."""
        if self.life is not None:
            life, self.life = self.life, None
            life.end()

    def switch_off(self) -> None:
        """End the worker and all jobs."""
        self.kill_worker()
        self._hearth.cut()
