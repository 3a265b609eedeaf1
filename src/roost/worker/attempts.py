"""One attempt, from its inputs to its report.

    waiting --room--> fetching --> running --> ending --> report
                         |            |           |
                         +-- cancel --+-----------+--> report: cancelled, or why it was ended

What was done is in the files of the attempt's folder, so a worker that starts anew goes on where
the last one stood: a job that runs is waited for, one that has ended is reported, none runs twice.
Whose fault a failure is: the job's (its exit code, its limits, its image, its inputs), or ours.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.model.job import EndReason
from roost.wire.workerlink import Assignment, AttemptReport, OutputKept
from roost.worker.containers import Engine
from roost.worker.files.inputs import FilesFailed, fetch_inputs
from roost.worker.files.outputs import keep_outputs
from roost.worker.run.hearth import Hearth
from roost.worker.run.jobuser import JobUser, give_folder, renew_folder, take_folder
from roost.worker.run.plan import CANCEL, WORK, Ended, Plan, read_ended, read_warden

log = logging.getLogger("roost.worker")

State = Literal["waiting", "fetching", "running", "ending"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Below so much free disk a job that failed may have failed for want of it.
_FULL_BYTES = 16 * 2**20
_MOST_MESSAGE = 2000
#: Exit codes of a container engine: itself failed; the command cannot be run, or is not there.
_ENGINE_FAILED, _NOT_FOUND = 125, 127


@dataclass(frozen=True, slots=True)
class AttemptParts:
    """What attempts of one worker share."""

    hearth: Hearth
    groups: LimitGroups
    engine: Engine | None
    clock: Clock
    random: Random
    grace_s: float = 5.0
    back_off: BackOff = BackOff(first_s=0.5, most_s=30.0)  # noqa: RUF009 - it is frozen
    tries: int = 6  # of a store that does not answer
    user: JobUser | None = None  # of jobs that are no containers; None: the worker's own


class AttemptRun:
    """One attempt that has not ended."""

    def __init__(self, assignment: Assignment, folder: Path, parts: AttemptParts) -> None:
        self.assignment, self.folder = assignment, folder
        self.state: State = "waiting"
        self.ended: Ended | None = None  # how its process ended, if it had one
        self._parts = parts
        self._ending = asyncio.Event()
        self._why = self._kept_why()
        if self._why:
            self._ending.set()

    @property
    def has_begun(self) -> bool:
        """Say whether its job was started by this worker or an earlier one."""
        return read_warden(self.folder) is not None or read_ended(self.folder) is not None

    def end(self, why: EndReason) -> None:
        """End the attempt where it stands; it is reported all the same."""
        if not self._ending.is_set():
            self._why = why
            self._parts.hearth.end(self.folder, why)
            self._ending.set()

    async def run(self) -> AttemptReport:
        """Carry the attempt to its end and return the report."""
        try:
            return await self._run()
        except FilesFailed as failed:
            return self._failed(failed.reason, failed.message)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return self._failed("worker_disk_full" if full else "worker_failed", str(error))

    # The way

    async def _run(self) -> AttemptReport:
        pid = None
        if not self.has_begun:
            self.state = "fetching"
            self._check_store()
            if self._user is not None:
                await asyncio.to_thread(renew_folder, self.folder, self.folder / WORK)
            if self._needs_files and not await self._unless_ended(self._prepare()):
                return self._ended_early()
            if self._ending.is_set():  # while it waited
                return self._ended_early()
            if (user := self._user) is not None:
                await asyncio.to_thread(give_folder, self.folder, self.folder / WORK, user)
            pid = await self._parts.hearth.start(self.folder, self._plan())
        self.state = "running"
        self.ended = ended = await self._parts.hearth.ended(self.folder, pid)
        self.state = "ending"
        if self._user is not None:
            take_folder(self.folder, self.folder / WORK)
        if ended is None:
            await self._parts.hearth.sweep(self._group)
            if self._is_full():  # there was no room to write down how it ended
                return self._failed("worker_disk_full", "the machine's disk is full")
            return self._failed("worker_failed", "the process that watched over the job has died")
        short = await self._leave_container()
        return await self._report(ended, short_of_memory=short)

    @property
    def _user(self) -> JobUser | None:
        """Return the user of the job; what is in a container is kept apart by that."""
        return None if self.assignment.image else self._parts.user

    def _check_store(self) -> None:
        """Refuse a folder that a job names for its outputs: the worker would write there as root.

        Before it runs: what cannot be kept need not be made.
        """
        asked = self.assignment
        named = asked.outputs and not asked.own_store and asked.outputs_to.startswith("file:")
        if named and self._parts.user is not None:
            raise FilesFailed(
                "output_failed",
                "this worker has a --job-user, and then writes no outputs to a folder that a job "
                "names; without one they go to the server's own, or to an s3: address",
            )

    @property
    def _needs_files(self) -> bool:
        """Say whether anything has to be there before the job, or the job cannot be run."""
        asked = self.assignment
        return bool(asked.image or asked.inputs or asked.parameters or not asked.command)

    async def _prepare(self) -> None:
        """Fetch inputs and image."""
        asked, work = self.assignment, self.folder / WORK
        if asked.image:
            if self._parts.engine is None:
                raise FilesFailed("worker_refused", "this machine has no podman or docker")
            await self._parts.engine.pull(asked, self.folder)
        elif not asked.command:
            raise FilesFailed("worker_refused", "the job has neither a command nor an image")
        if asked.inputs:
            # In a container too: what is fetched is mounted there.
            await self._try_again(
                fetch_inputs, work, asked.inputs, asked.disk_bytes, self._parts.user
            )
        if asked.parameters:
            (work / "parameters.json").write_bytes(msgspec.json.encode(asked.parameters))

    def _plan(self) -> Plan:
        asked, parts = self.assignment, self._parts
        engine = parts.engine if asked.image else None
        variables = self._environment(contained=engine is not None)
        return Plan(
            argv=asked.command if engine is None else engine.run(asked, self.folder, variables),
            environment=variables if engine is None else engine.variables(variables),
            run_limit_s=asked.run_limit_s,
            cpu_milli=asked.cpu_milli,
            memory_bytes=asked.memory_bytes,
            disk_bytes=asked.disk_bytes,
            log_limit_bytes=asked.log_limit_bytes,
            grace_s=parts.grace_s,
            group=self._group,
            groups={name: [str(at), number] for name, (at, number) in parts.groups.bases().items()},
            user=list(self._user or ()),
            within=engine is None,
            after=[] if engine is None else [engine.kill(asked.attempt)],
        )

    def _environment(self, *, contained: bool) -> dict[str, str]:
        """Return the variables of the job: nothing of the worker's own gets there."""
        asked = self.assignment
        home = "/work" if contained else str(self.folder / WORK)
        return {
            **({} if contained else {"PATH": _PATH, "LANG": "C.UTF-8"}),
            "HOME": home,
            "ROOST_JOB": asked.job,
            "ROOST_ATTEMPT": asked.attempt,
            "ROOST_INDEX": str(asked.index),
            **asked.environment,
        }

    async def _leave_container(self) -> bool:
        """Remove the container, if there is one; return whether it was short of memory."""
        engine = self._parts.engine
        if not self.assignment.image or engine is None:
            return False
        short = await engine.was_short_of_memory(self.assignment.attempt)
        await engine.remove(self.assignment.attempt)
        return short

    # The report

    async def _report(self, ended: Ended, *, short_of_memory: bool) -> AttemptReport:
        reason = self._reason(ended, short_of_memory=short_of_memory)
        kept: list[OutputKept] = []
        message = ended.message
        asked = self.assignment
        if asked.outputs and not self._ending.is_set():
            try:
                found: list[OutputKept] = []

                def keep() -> None:
                    found[:] = keep_outputs(
                        self.folder / WORK,
                        asked.outputs,
                        asked.outputs_to,
                        ended_well=not reason,
                        owner=None if self._user is None else self._user.uid,
                    )

                await self._unless_ended(self._try_again(keep))
                kept = found
            except FilesFailed as failed:
                if not reason:
                    reason, message = failed.reason, failed.message
        if self._ending.is_set() and not reason:
            reason = self._why or "cancelled"
        outcome: Literal["completed", "failed", "cancelled"] = "failed" if reason else "completed"
        if reason == "cancelled":
            outcome = "cancelled"
        return AttemptReport(
            attempt=self.assignment.attempt,
            outcome=outcome,
            reason=reason,
            message=(message or _words(reason, ended))[:_MOST_MESSAGE],
            exit_code=_NOT_FOUND if ended.why == "not_started" else ended.exit_code,
            signal=ended.signal,
            run_ms=ended.run_ms,
            cpu_ms=ended.cpu_ms,
            memory_bytes=ended.memory_bytes,
            outputs=kept,
        )

    def _reason(self, ended: Ended, *, short_of_memory: bool) -> EndReason:
        match ended.why:
            case "cancelled":
                return self._why or "cancelled"
            case "run_limit":
                return "run_limit"
            case "memory_limit":
                return "memory_limit"
            case "disk_full":
                return "disk_full"
            case "not_started":
                return "exit_code"
        if short_of_memory:
            return "memory_limit"
        if ended.exit_code == 0:
            return ""
        if self.assignment.image and ended.exit_code == _ENGINE_FAILED:
            return "worker_failed"
        if self._is_full():
            return "worker_disk_full"
        return "signal" if ended.signal is not None else "exit_code"

    def _is_full(self) -> bool:
        room = os.statvfs(self.folder)
        return room.f_bavail * room.f_frsize < _FULL_BYTES

    def _failed(self, reason: EndReason, message: str) -> AttemptReport:
        if self._ending.is_set():
            return self._ended_early()
        return AttemptReport(
            attempt=self.assignment.attempt,
            outcome="failed",
            reason=reason,
            message=message[:_MOST_MESSAGE],
        )

    def _ended_early(self) -> AttemptReport:
        """Return the report of an attempt that was ended before its job began, or unheard."""
        why = self._why or "cancelled"
        return AttemptReport(
            attempt=self.assignment.attempt,
            outcome="cancelled" if why == "cancelled" else "failed",
            reason=why,
        )

    # Waiting

    async def _unless_ended(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do something unless the attempt is ended meanwhile; return whether it was done."""
        doing = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait((doing, ending), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
                return False
            doing.result()
            return True
        finally:
            for each in (doing, ending):
                each.cancel()

    async def _try_again(self, what: Callable[..., None], *arguments: object) -> None:
        """Call something in a thread, again after a while as long as a store does not answer."""
        for tried in range(self._parts.tries):
            try:
                await asyncio.to_thread(what, *arguments)
                return
            except FilesFailed as failed:
                if not failed.again or tried == self._parts.tries - 1:
                    raise
                wait_s = self._parts.back_off.jittered_s(tried, self._parts.random)
                log.info("%s; again in %.1f s", failed.message, wait_s)
                await self._parts.clock.sleep(wait_s)

    @property
    def _group(self) -> str:
        return self.folder.name

    def _kept_why(self) -> EndReason | None:
        try:
            found: EndReason = msgspec.convert(
                (self.folder / CANCEL).read_text().strip(), EndReason
            )
        except FileNotFoundError:
            return None
        except msgspec.ValidationError:
            return "cancelled"
        return found or "cancelled"


def _words(reason: EndReason, ended: Ended) -> str:
    if reason == "exit_code":
        return f"the job ended with exit code {ended.exit_code}"
    if reason == "signal":
        return f"the job was ended by signal {ended.signal}"
    if reason == "run_limit":
        return f"the job ran for {ended.run_ms / 1000:.1f} s, longer than it may"
    if reason == "memory_limit":
        return f"the job took all of its memory; the most was {ended.memory_bytes} bytes"
    if reason == "disk_full":
        return "the job wrote a file larger than its disk"
    if reason == "worker_disk_full":
        return "the machine's disk is full"
    return ""
