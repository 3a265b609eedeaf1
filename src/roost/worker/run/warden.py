"""The warden of an attempt: starts its job, holds its limits, and ends every process of it.

    order --> job runs --+-- exited ------------+--> end what is left --> clean up --> ended.json
                         +-- cancel, run limit, |                                      and answer
                             memory: TERM, grace, KILL

The warden is the reaper of everything that its job starts: a process that forks, leaves its group
and ignores signals stays a descendant of the warden, or in the control group, and ends with it. It
has one attempt at a time, so whatever descends from it is of that one; when nothing is left it can
have another, because a new process for each would cost more than a short job does. It reads what
the job writes, keeps the first part and counts the rest, so a gigabyte costs no disk. It outlives
the worker that asked: then it finishes what it has and goes. It must import nothing heavy.
"""

import ctypes
import fcntl
import os
import select
import selectors
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from roost.hostkit.machine.limitgroups import LimitGroups
from roost.worker.run.plan import (
    CANCEL,
    ENDED,
    STREAMS,
    WARDEN,
    WORK,
    Ended,
    Plan,
    Warden,
    answer_line,
    read_order,
    write,
)
from roost.worker.run.processes import began_at, descendants, end_wholly, send
from roost.worker.run.starting import Home, NotStarted, start_job

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_READ = 256 * 1024
#: How often limits are looked at that no control group holds.
_LOOK_S = 0.2
#: How long what was written may take to be read once no process of the job is left.
_DRAIN_S = 5.0
_AFTER_S = 30.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


def serve(worker: socket.socket) -> None:
    """Run one attempt after the other as the worker asks, until it closes its end."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    post = _Post()
    text = b""
    while data := worker.recv(65536):
        text += data
        if not text.endswith(b"\n"):  # one order at a time
            continue
        folder, plan = read_order(text)
        text = b""
        ended = _run(folder, plan, post)
        if post.is_spoilt:  # without an answer, so that it is given nothing more: the file says it
            return
        with suppress(OSError):  # there is no worker any more: what it must know is in the file
            worker.sendall(answer_line(ended))


class _Post:
    """What a warden has for all its attempts."""

    def __init__(self) -> None:
        self.me = Warden(os.getpid(), began_at(os.getpid()))
        self.home = Home()
        self.nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.is_told = False  # a signal says that there is something to look at
        self.is_spoilt = False  # a process that the kernel does not let go is left of an attempt
        self.waker, waker_writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(waker_writes, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: object) -> None:
        self.is_told = True


def _run(folder: Path, plan: Plan, post: _Post) -> Ended | None:
    """Run the attempt of a folder to its end, unless another warden has it or has done it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / ENDED).exists():
            return None
        write(folder / WARDEN, post.me)
        post.is_told = True  # it may have been told before its process was known
        ended = _Run(folder, plan, post).to_its_end()
        write(folder / ENDED, ended)
        return ended
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


class _Log:
    """What the job writes to one stream: kept up to a limit, read to the end."""

    def __init__(self, path: Path, limit: int) -> None:
        self.reads, self.writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reads, False)
        self._path, self._room = path, limit
        self._file = -1
        self.dropped = 0

    def read(self) -> bool:
        """Read what is there; return whether more may come."""
        try:
            data = os.read(self.reads, _READ)
        except BlockingIOError:
            return True
        if not data:
            return False
        kept = data[: self._room]
        try:
            written = self._keep(kept) if kept else 0
        except OSError:  # the disk of the worker is full: the job goes on, its log does not
            written = 0
        self._room -= len(kept)
        self.dropped += len(data) - written
        return True

    def _keep(self, data: bytes) -> int:
        if self._file < 0:  # most jobs say nothing
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            with suppress(OSError):
                fcntl.fcntl(self.reads, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer wakes for much output
        return os.write(self._file, data)

    def close_writes(self) -> None:
        """Leave the end that is written to the job alone."""
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> None:
        """Close pipe and file."""
        self.close_writes()
        os.close(self.reads)
        if self._file >= 0:
            os.close(self._file)


class _Run:
    """One run of a job."""

    def __init__(self, folder: Path, plan: Plan, post: _Post) -> None:
        self._folder, self._plan, self._post = folder, plan, post
        self._logs = {each: _Log(folder / each, plan.log_limit_bytes) for each in STREAMS}
        bases = {name: (Path(at), version) for name, (at, version) in plan.groups.items()}
        self._groups = LimitGroups(plan.group, bases=bases if plan.within else {})
        self._job = 0
        self._status: tuple[int | None, int | None] = (None, None)
        self._most_pages = self._most_resident = 0
        self._cpu_s = 0.0

    def to_its_end(self) -> Ended:
        """Start the job, watch it, end what is left of it and say how it went."""
        try:
            if self._is_cancelled():  # before it began
                return Ended("cancelled")
            return self._watched()
        except NotStarted as trouble:
            return Ended("not_started", message=str(trouble))
        finally:
            for log in self._logs.values():
                log.close()
            self._clean_up()

    def _watched(self) -> Ended:
        began = time.monotonic()
        out, err = (log.writes for log in self._logs.values())
        self._job = start_job(
            self._plan, self._folder / WORK, (self._post.nothing, out, err), self._groups,
            self._post.home,
        )  # fmt: skip
        for log in self._logs.values():
            log.close_writes()
        why = self._watch(began + self._plan.run_limit_s)
        run_ms = int(1000 * (time.monotonic() - began))
        self._post.is_spoilt = not end_wholly(self._mine, self._reap_and_pause)
        self._read_the_rest()
        return self._ended(why, run_ms)

    def _is_cancelled(self) -> bool:
        """Look for the word of the worker if a signal says that there may be one."""
        told, self._post.is_told = self._post.is_told, False
        return told and (self._folder / CANCEL).exists()

    # Watching

    def _watch(self, deadline: float) -> str:
        """Read and look until the job has ended; return why it did."""
        handle, waker = os.pidfd_open(self._job), self._post.waker
        try:
            with selectors.EpollSelector() as ready:
                ready.register(handle, selectors.EVENT_READ)
                ready.register(waker, selectors.EVENT_READ)
                for log in self._logs.values():
                    ready.register(log.reads, selectors.EVENT_READ, log)
                return self._watch_until(ready, handle, deadline)
        finally:
            os.close(handle)

    def _watch_until(self, ready: selectors.BaseSelector, handle: int, deadline: float) -> str:
        next_look = time.monotonic() + _LOOK_S  # it looks at every process of the machine
        while True:
            now = time.monotonic()
            if why := self._over(now, deadline, now >= next_look):
                self._ask_to_end(ready)
                return why
            if now >= next_look:
                next_look = now + _LOOK_S
            wait = deadline - now if self._is_held() else min(deadline, next_look) - now
            for key, _ in ready.select(max(0.0, min(wait, 3600.0))):
                if key.fileobj == handle:
                    self._reap()
                    return "exited"
                if key.fileobj == self._post.waker:
                    with suppress(OSError):
                        os.read(self._post.waker, 64)
                elif not key.data.read():
                    ready.unregister(key.fileobj)

    def _is_held(self) -> bool:
        """Say whether control groups hold what would have to be looked at else."""
        return not self._plan.within or "memory" in self._groups.bases()

    def _over(self, now: float, deadline: float, looks: bool) -> str:
        """Return why the job must end, empty if it need not."""
        if self._is_cancelled():
            return "cancelled"
        if now >= deadline:
            return "run_limit"
        if looks and not self._is_held():
            pages = sum(each.pages for each in descendants(os.getpid()))
            self._most_pages = max(self._most_pages, pages)
            if pages * _PAGE > self._plan.memory_bytes:
                return "memory_limit"
        return ""

    def _ask_to_end(self, ready: selectors.BaseSelector) -> None:
        """Ask every process of the job to end, and read what it says meanwhile."""
        send(self._mine(), signal.SIGTERM)
        until = time.monotonic() + self._plan.grace_s
        while (left := until - time.monotonic()) > 0 and self._reap():
            for key, _ in ready.select(min(left, 0.05)):
                if key.data is not None and not key.data.read():
                    ready.unregister(key.fileobj)
            if self._status != (None, None):
                select.select([], [], [], min(left, 0.02))

    # Ending

    def _mine(self) -> set[int]:
        """Return every process of the job that lives.

        Whoever loses its parent becomes a child of the warden, so without a child it has nobody.
        """
        found = self._groups.members(self._plan.group) - {os.getpid()}
        if self._reap():
            found |= {each.pid for each in descendants(os.getpid()) if each.state not in "ZX"}
        return found

    def _reap(self) -> bool:
        """Reap who has ended, and add up what they took; return whether anybody is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._cpu_s += used.ru_utime + used.ru_stime
            self._most_resident = max(self._most_resident, used.ru_maxrss * 1024)
            if pid == self._job:
                code = os.waitstatus_to_exitcode(status)
                self._status = (None, -code) if code < 0 else (code, None)

    def _reap_and_pause(self) -> None:
        self._reap()
        select.select([], [], [], 0.01)

    def _read_the_rest(self) -> None:
        """Read what is still in the pipes; nobody is left to write more."""
        self._reap()
        until = time.monotonic() + _DRAIN_S
        for log in self._logs.values():
            while time.monotonic() < until:
                if not select.select([log.reads], [], [], 0)[0] or not log.read():
                    break

    def _ended(self, why: str, run_ms: int) -> Ended:
        code, number = self._status
        peak = self._groups.memory_peak(self._plan.group)
        most = max(peak or 0, self._most_pages * _PAGE) or self._most_resident
        if why == "exited" and self._groups.memory_kills(self._plan.group):
            why = "memory_limit"
        if why == "exited" and number == signal.SIGXFSZ:
            why = "disk_full"
        if why == "exited" and number == signal.SIGXCPU:
            why = "run_limit"
        return Ended(
            why,
            exit_code=code,
            signal=number,
            run_ms=run_ms,
            cpu_ms=int(1000 * self._cpu_s),
            memory_bytes=most,
            dropped={name: log.dropped for name, log in self._logs.items()},
        )

    def _clean_up(self) -> None:
        """Remove the group, and run what cleans up behind a container."""
        self._groups.remove(self._plan.group)
        for command in self._plan.after:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=self._plan.environment,
                    timeout=_AFTER_S,
                    check=False,
                )
