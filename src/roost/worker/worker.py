"""The worker: keeps what the control plane wants of its machine, and says what it has.

    poll --> orders --> attempts begin, end, are forgotten --> news --> poll ...

The poll is the heartbeat. One poll may be held by the control plane until it has something to say;
when something ends here another one goes at once, beside it. Orders are taken by the ids of
attempts: one that is known is not begun again, one that was reported is reported again. The worker
has the last word on its own capacity: what does not fit waits, what never can is refused.
"""

import asyncio
import errno
import logging
from collections import OrderedDict
from dataclasses import dataclass
from random import Random

from roost.base.backoff import BackOff
from roost.base.clock import Clock, first_of
from roost.base.errors import Forbidden, InvalidRequest, RoostError, Unauthorized, Unavailable
from roost.model.job import EndReason
from roost.wire.workerlink import (
    MOST_ATTEMPTS,
    MOST_CHUNKS,
    MOST_WAIT_S,
    Assignment,
    AttemptReport,
    AttemptSeen,
    LogChunk,
    WorkerCapacity,
    WorkerLogs,
    WorkerOrders,
    WorkerPoll,
)
from roost.worker.attempts import AttemptParts, AttemptRun, State
from roost.worker.files.logs import AttemptLogs
from roost.worker.notices import Notices
from roost.worker.plane import Plane
from roost.worker.run.plan import read_ended
from roost.worker.store import MOST_REPORTS, WorkerStore

log = logging.getLogger("roost.worker")

#: Cores, memory and disk of an attempt.
Amounts = tuple[int, int, int]
#: Bytes of logs that a poll carries; more goes apart from it.
_LOGS_IN_POLL = 192 * 1024
_LOGS_APART = 4 * 2**20


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker behaves."""

    instance: str  # new with every start
    #: How long the control plane may refuse this machine before it counts as given back.
    forsaken_s: float = 180.0
    #: How long a worker with nothing to do waits for a control plane that does not answer.
    alone_s: float = 3600.0
    notice_s: float = 5.0  # between looks for notices
    #: How long ends are gathered for one poll while attempts wait here: no slot is idle meanwhile.
    gather_s: float = 0.1
    look_s: float = 0.5  # between looks for logs that grew and attempts that went on
    back_off: BackOff = BackOff(first_s=0.2, most_s=10.0)  # noqa: RUF009 - it is frozen


class Worker:
    """The worker of one machine."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        plane: Plane,
        store: WorkerStore,
        parts: AttemptParts,
        capacity: WorkerCapacity,
        notices: list[Notices],
        clock: Clock,
        random: Random,
    ) -> None:
        self._settings, self._plane, self._store, self._parts = settings, plane, store, parts
        self._capacity, self._notices, self._clock = capacity, notices, clock
        self._random = random
        self._runs: dict[str, AttemptRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reports: dict[str, AttemptReport] = {}  # not acknowledged yet
        self._known: OrderedDict[str, AttemptReport] = OrderedDict()  # acknowledged
        self._waiting: dict[str, Amounts] = {}  # attempts that were not started, as they came
        self._free = [capacity.cpu_milli, capacity.memory_bytes, capacity.disk_bytes]
        self._logs: dict[str, AttemptLogs] = {}
        self._gone: list[str] = []  # attempts whose folders are to be removed
        self._news = asyncio.Event()
        self._sequence = 0
        self._poll_s = 5.0
        self._draining = self._leaving = self._reclaimed = False
        self._capacity_said = self._changed = False
        self._said: dict[str, State] = {}  # what the last poll said of attempts
        self._trouble: RoostError | None = None  # of the poll that was held
        self._held: asyncio.Task[None] | None = None
        self._refused_since: float | None = None
        self._said_of_plane: type[Exception] | None = None  # why it is not there, as logged
        self._heard = clock.monotonic()

    async def run(self) -> None:
        """Poll and run attempts until told to leave; cancelled, it lets jobs run on."""
        self._resume()
        background = [
            asyncio.create_task(self._look_for_notices()),
            asyncio.create_task(self._look_for_changes()),
        ]
        try:
            await self._poll_until_left()
        finally:
            for task in (*background, *self._tasks.values(), *filter(None, [self._held])):
                task.cancel()
            everything = [*background, *self._tasks.values(), *filter(None, [self._held])]
            await asyncio.gather(*everything, return_exceptions=True)

    # Polling

    async def _poll_until_left(self) -> None:
        failures = 0
        while True:
            self._news.clear()
            try:
                await self._say()
            except (Unavailable, Unauthorized, Forbidden, InvalidRequest) as error:
                if self._is_over(error):
                    return
                # Not woken by news: they cannot be told before somebody answers.
                await self._clock.sleep(self._settings.back_off.jittered_s(failures, self._random))
                failures += 1
                continue
            failures = 0
            if self._leaving and not self._runs and not self._reports:
                log.info("this machine is given back; the worker ends")
                return
            await self._wait(self._poll_s)
            if self._waiting and not (self._leaving or self._reclaimed or self._draining):
                await self._clock.sleep(self._settings.gather_s)

    async def _say(self) -> None:
        """Poll at once if there is something to say, and keep one poll held by the server."""
        if (trouble := self._trouble) is not None:
            self._trouble = None
            raise trouble
        await self._send_long_logs()
        poll = self._build()
        if poll.finished or poll.logs or self._changed or not self._capacity_said:
            self._changed = False
            await self._ask(poll)
        if self._held is None and not self._reports and not self._leaving:
            poll = self._build()
            poll.wait_s = min(self._poll_s, MOST_WAIT_S)
            self._held = asyncio.create_task(self._hold(poll))

    async def _hold(self, poll: WorkerPoll) -> None:
        began = self._clock.monotonic()
        try:
            await self._ask(poll)
            rest = poll.wait_s - (self._clock.monotonic() - began)
            if rest > 0 and not self._news.is_set():  # a server that holds nothing is not pressed
                await self._wait(rest)
        except (Unavailable, Unauthorized, Forbidden, InvalidRequest) as error:
            self._trouble = error
        finally:
            self._held = None
            self._news.set()

    def _build(self) -> WorkerPoll:
        self._sequence += 1
        self._said = {name: run.state for name, run in self._runs.items()}
        return WorkerPoll(
            instance=self._settings.instance,
            sequence=self._sequence,
            attempts=[AttemptSeen(attempt=name, state=state) for name, state in self._said.items()][
                :MOST_ATTEMPTS
            ],
            finished=list(self._reports.values())[:MOST_ATTEMPTS],
            logs=self._pieces(_LOGS_IN_POLL),
            capacity=None if self._capacity_said else self._capacity,
            notice="reclaim" if self._reclaimed else "leaving" if self._leaving else "",
        )

    async def _ask(self, poll: WorkerPoll) -> None:
        orders = await self._plane.poll(poll)
        if self._said_of_plane is not None:
            log.info("the control plane answers again")
            self._said_of_plane = None
        self._heard, self._refused_since = self._clock.monotonic(), None
        self._capacity_said = self._capacity_said or poll.capacity is not None
        for logs in list(self._logs.values()):
            logs.taken(poll.logs)
        self._poll_s = min(max(orders.poll_s, 0.05), MOST_WAIT_S)
        self._take(orders)

    def _is_over(self, error: Exception) -> bool:
        """Say whether this machine is no longer ours, or nobody is there and nothing to do."""
        now = self._clock.monotonic()
        if isinstance(error, (Unauthorized, Forbidden)):
            self._refused_since = self._refused_since or now
            if now - self._refused_since > self._settings.forsaken_s:
                log.error("%s; this machine counts as given back", error)
                for run in self._runs.values():
                    run.end("machine_lost")
                return True
        if type(error) is not self._said_of_plane:  # once for each way in which it is not there
            log.warning("%s; trying again", error)
            self._said_of_plane = type(error)
        return not self._runs and now - self._heard > self._settings.alone_s

    async def _wait(self, seconds: float) -> None:
        await first_of(self._clock, seconds, self._news)

    # Orders

    def _take(self, orders: WorkerOrders) -> None:
        """Do what the control plane says; saying it again changes nothing."""
        for name in orders.acknowledged:
            self._acknowledge(name)
        self._draining = orders.drain
        if orders.leave and not self._leaving:
            log.info("this machine is to be given back; %d attempts are ended", len(self._runs))
            self._leaving = True
            for name in list(self._runs):
                self._end(name, "machine_reclaimed" if self._reclaimed else "machine_lost")
        for assignment in orders.assignments:
            self._assign(assignment)
        for name in orders.cancel:
            self._end(name, "cancelled")
        self._start_waiting()

    def _assign(self, assignment: Assignment) -> None:
        name = assignment.attempt
        if name in self._runs or name in self._reports:
            return
        if (report := self._known.pop(name, None)) is not None:
            self._finished(report)  # it was run before; the answer is the same
            return
        capacity = self._capacity
        if (
            assignment.cpu_milli > capacity.cpu_milli
            or assignment.memory_bytes > capacity.memory_bytes
            or assignment.disk_bytes > capacity.disk_bytes
            or self._leaving
        ):
            said = f"the machine has {capacity.cpu_milli} millicores, {capacity.memory_bytes} bytes"
            self._refuse(name, "worker_refused", said)
            return
        try:
            folder = self._store.begin(assignment)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._refuse(name, "worker_disk_full" if full else "worker_failed", str(error))
            return
        self._add(AttemptRun(assignment, folder, self._parts))

    def _add(self, run: AttemptRun) -> None:
        name = run.assignment.attempt
        self._runs[name] = run
        self._waiting[name] = _amounts(run)

    def _refuse(self, name: str, reason: EndReason, message: str) -> None:
        self._finished(
            AttemptReport(attempt=name, outcome="failed", reason=reason, message=message[:2000])
        )

    def _end(self, name: str, why: EndReason) -> None:
        if (run := self._runs.get(name)) is not None:
            run.end(why)
            if name not in self._tasks:
                self._start(name)  # it waited: it is only reported
        elif (report := self._known.pop(name, None)) is not None:
            self._finished(report)
        elif name not in self._reports:
            self._finished(AttemptReport(attempt=name, outcome="cancelled", reason=why))

    def _acknowledge(self, name: str) -> None:
        if (report := self._reports.pop(name, None)) is None:
            return
        self._known[name] = report
        while len(self._known) > MOST_REPORTS:
            self._known.popitem(last=False)
        self._clear(name)

    def _clear(self, name: str) -> None:
        """Drop the files of an attempt once its report and its logs are with the control plane."""
        logs = self._logs.get(name)
        if name in self._known and (logs is None or logs.is_done):
            self._logs.pop(name, None)
            self._gone.append(name)

    async def _drop_files(self) -> None:
        """Remove the folders of attempts that are done with, beside everything else."""
        while self._gone:
            names, self._gone = self._gone, []
            await asyncio.to_thread(self._store.clear, names)

    # Attempts

    def _resume(self) -> None:
        """Go on with what an earlier worker of this machine had."""
        for report in self._store.reports():
            self._reports[report.attempt] = report
        for assignment in self._store.assignments():
            name = assignment.attempt
            folder = self._store.folder_of(name)
            if name in self._reports:
                self._logs[name] = logs = AttemptLogs(name, folder)
                logs.end(read_ended(folder))
                continue
            run = AttemptRun(assignment, folder, self._parts)
            self._add(run)
            if run.has_begun:
                self._start(name)
        if self._runs:
            log.info("%d attempts go on", len(self._runs))

    def _start_waiting(self) -> None:
        """Start the attempts that wait and have room, in the order in which they came.

        On a machine that is to go none is started any more: each is reported, for another machine.
        """
        if self._draining or self._leaving or self._reclaimed:
            for name in list(self._waiting):
                self._end(name, "machine_reclaimed")
            return
        has_no_room: set[Amounts] = set()  # most that wait are alike, and one answer does for all
        for name, amounts in list(self._waiting.items()):
            if amounts in has_no_room:
                continue
            if all(part <= left for part, left in zip(amounts, self._free, strict=True)):
                self._start(name)
            else:
                has_no_room.add(amounts)

    def _start(self, name: str) -> None:
        run = self._runs[name]
        del self._waiting[name]
        self._free = [left - part for left, part in zip(self._free, _amounts(run), strict=True)]
        self._logs[name] = AttemptLogs(name, run.folder)
        self._tasks[name] = asyncio.create_task(self._carry(name, run))

    async def _carry(self, name: str, run: AttemptRun) -> None:
        report = await run.run()
        log.info("%s: %s %s %s", name, report.outcome, report.reason, report.message)
        del self._runs[name]
        del self._tasks[name]
        self._free = [left + part for left, part in zip(self._free, _amounts(run), strict=True)]
        self._logs[name].end(run.ended)
        self._finished(report)
        self._start_waiting()

    def _finished(self, report: AttemptReport) -> None:
        """Keep a report until the control plane has it."""
        self._reports[report.attempt] = report
        try:
            self._store.finish(report)
        except OSError as error:  # it is still in memory, and sent from there
            log.error("the report of %s is not on disk: %s", report.attempt, error)
        self._news.set()

    # Logs and notices

    def _pieces(self, most: int) -> list[LogChunk]:
        found: list[LogChunk] = []
        for name, logs in list(self._logs.items()):
            if most <= 0 or len(found) >= MOST_CHUNKS - 2:
                break
            pieces = logs.pieces(most)
            most -= sum(len(piece.data) for piece in pieces)
            found += pieces
            if logs.is_done:
                self._clear(name)
        return found

    async def _send_long_logs(self) -> None:
        """Send logs apart from polls while there are more than a poll carries."""
        while True:
            pieces = self._pieces(_LOGS_APART)
            if sum(len(piece.data) for piece in pieces) <= _LOGS_IN_POLL:
                return
            taken = await self._plane.send_logs(WorkerLogs(chunks=pieces))
            for logs in self._logs.values():
                logs.taken(pieces)
                for kept in taken.logs:
                    logs.moved(kept)

    async def _look_for_changes(self) -> None:
        while True:
            await self._clock.sleep(self._settings.look_s)
            await self._drop_files()
            now = {name: run.state for name, run in self._runs.items()}
            if now != self._said:
                self._changed = True
            if self._changed or any(logs.pieces(1) for logs in self._logs.values()):
                self._news.set()

    async def _look_for_notices(self) -> None:
        """Look whether the machine is taken away; what waits is given back from then on."""
        while not self._reclaimed:
            for each in self._notices:
                if await each.reclaimed():
                    log.warning("this machine will be taken away: nothing is started from now on")
                    self._reclaimed = self._changed = True
                    self._start_waiting()
                    self._news.set()
            await self._clock.sleep(self._settings.notice_s)


def _amounts(run: AttemptRun) -> Amounts:
    asked = run.assignment
    return asked.cpu_milli, asked.memory_bytes, asked.disk_bytes
