"""A control plane that a worker can poll: it assigns, cancels, acknowledges, and loses answers."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from roost.base.backoff import BackOff
from roost.base.clock import RealClock
from roost.base.errors import Unavailable
from roost.base.units import GIB
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.wire.workerlink import (
    Assignment,
    AttemptReport,
    LogOffset,
    LogsTaken,
    WorkerCapacity,
    WorkerLogs,
    WorkerOrders,
    WorkerPoll,
)
from roost.worker.attempts import AttemptParts
from roost.worker.containers import Engine
from roost.worker.notices import FileNotice
from roost.worker.run.hearth import Hearth
from roost.worker.run.jobuser import JobUser
from roost.worker.store import WorkerStore
from roost.worker.worker import Worker, WorkerSettings

CAPACITY = WorkerCapacity(cpu_milli=4000, memory_bytes=4 * GIB, disk_bytes=8 * GIB)


class StandInPlane:
    """What the control plane does with a worker, in memory."""

    def __init__(self) -> None:
        self.assigned: dict[str, Assignment] = {}
        self.cancelled: set[str] = set()
        self.reports: dict[str, list[AttemptReport]] = defaultdict(list)
        self.logs: dict[tuple[str, str], bytes] = defaultdict(bytes)
        self.dropped: dict[tuple[str, str], int] = {}
        self.polls: list[WorkerPoll] = []
        self.drain = self.leave = False
        self.acknowledges = True
        self.lose_answers = 0  # so many polls are heard and not answered
        self.again: list[Assignment] = []  # sent once more, though they are known
        self._changed = asyncio.Event()

    async def poll(self, poll: WorkerPoll) -> WorkerOrders:
        """Take what a worker says and answer what it should have."""
        self.polls.append(poll)
        for report in poll.finished:
            self.reports[report.attempt].append(report)
        self._take(poll.logs)
        self._changed.set()
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("the answer was lost")
        said = {each.attempt for each in poll.attempts} | {each.attempt for each in poll.finished}
        again, self.again = self.again, []
        return WorkerOrders(
            assignments=[
                one
                for name, one in self.assigned.items()
                if name not in said and name not in self.reports
            ]
            + again,
            cancel=[name for name in self.cancelled if name not in self.reports],
            acknowledged=[each.attempt for each in poll.finished] if self.acknowledges else [],
            drain=self.drain,
            leave=self.leave,
            poll_s=0.1,
        )

    async def send_logs(self, logs: WorkerLogs) -> LogsTaken:
        """Take pieces of logs."""
        self._take(logs.chunks)
        return LogsTaken(
            logs=[
                LogOffset(attempt=attempt, stream=stream, offset=len(data))
                for (attempt, stream), data in self.logs.items()
            ]
        )

    async def close(self) -> None:
        """Close nothing at all."""

    def _take(self, pieces: list[Any]) -> None:
        for piece in pieces:
            key = piece.attempt, piece.stream
            if piece.offset <= len(self.logs[key]):
                self.logs[key] = self.logs[key][: piece.offset] + piece.data
            if piece.end:
                self.dropped[key] = piece.dropped

    async def report(self, attempt: str, *, count: int = 1) -> AttemptReport:
        """Wait for the report of an attempt."""
        await self.until(lambda: len(self.reports.get(attempt, ())) >= count)
        return self.reports[attempt][-1]

    async def until(self, holds: Any, *, seconds: float = 30.0) -> None:
        """Wait until something holds after a poll."""
        async with asyncio.timeout(seconds):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def state(self, attempt: str) -> str:
        """Return what the last poll said of an attempt."""
        found = [
            each.state
            for poll in self.polls[-1:]
            for each in poll.attempts
            if each.attempt == attempt
        ]
        return found[0] if found else ""


def assignment(attempt: str = "job-1:1", *command: str, **fields: Any) -> Assignment:
    """Return an assignment of a small job."""
    given: dict[str, Any] = {
        "cpu_milli": 1000,
        "memory_bytes": GIB,
        "disk_bytes": 0,
        "run_limit_s": 60,
        **fields,
    }
    return Assignment(
        attempt=attempt, job=attempt.partition(":")[0], index=0, command=list(command), **given
    )


def make_worker(
    plane: Any,
    folder: Path,
    *,
    groups: bool = True,
    engine: Engine | None = None,
    capacity: WorkerCapacity = CAPACITY,
    back_off: BackOff | None = None,
    user: JobUser | None = None,
) -> tuple[Worker, Hearth, WorkerStore, LimitGroups]:
    """Return a worker on real processes, with little patience."""
    clock, random = RealClock(), Random(1)
    limits = LimitGroups(f"test-{folder.parent.name[-24:]}", bases=None if groups else {})
    store = WorkerStore(folder)
    hearth = Hearth(folder, limits)
    quick = BackOff(first_s=0.02, most_s=0.1)
    parts = AttemptParts(hearth, limits, engine, clock, random, 0.3, quick, 4, user)
    worker = Worker(
        WorkerSettings("w1", look_s=0.05, notice_s=0.05, back_off=back_off or quick),
        plane=plane,
        store=store,
        parts=parts,
        capacity=capacity,
        notices=[FileNotice(folder / "notice")],
        clock=clock,
        random=random,
    )
    return worker, hearth, store, limits


@asynccontextmanager
async def working(plane: Any, folder: Path, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker; at the end it stops as if it were killed, and its jobs go on."""
    worker, hearth, store, limits = make_worker(plane, folder, **options)
    store.open()
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        hearth.close()
        store.close()
        limits.close()
