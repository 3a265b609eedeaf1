"""The warden of one attempt: starts its job, holds its limits, and ends every process of it.

    begin --> job runs --+-- exited ------------+--> end what is left --> clean up --> ended.json
                         +-- cancel, run limit, |
                             memory: TERM, grace, KILL

The warden is the reaper of everything that its job starts: a process that forks, leaves its group
and ignores signals stays a descendant of the warden, or in the control group, and ends with it.
It reads what the job writes, keeps the first part and counts the rest, so a gigabyte costs no disk.
It knows no worker: all it says is in files (`plan`). It runs in a process of its own, forked from
the forge, and must import nothing heavy.
"""

import ctypes
import errno
import fcntl
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from roost.hostkit.machine.limitgroups import LimitGroups, Limits
from roost.worker.run.plan import (
    CANCEL,
    ENDED,
    LOCK,
    STREAMS,
    WARDEN,
    WORK,
    Ended,
    Plan,
    Warden,
    read_plan,
    write,
)
from roost.worker.run.processes import began_at, descendants, end_wholly, send

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_READ = 256 * 1024
#: How often limits are looked at that no control group holds.
_LOOK_S = 0.2
#: How long what was written may take to be read once no process of the job is left.
_DRAIN_S = 5.0
_AFTER_S = 30.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Files that one process of a job may have open.
_FILES = 65_536


def run(folder: Path) -> None:
    """Run the attempt of a folder to its end, unless another warden has it or has done it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    if (folder / ENDED).exists():
        return
    if (folder / CANCEL).exists():  # before it began
        write(folder / ENDED, Ended("cancelled"))
        return
    one = _Run(folder, read_plan(folder))
    signal.signal(signal.SIGTERM, one.tell)  # before its process is known: it is told by a signal
    write(folder / WARDEN, Warden(os.getpid(), began_at(os.getpid())))
    write(folder / ENDED, one.to_its_end())


class _Log:
    """What the job writes to one stream: kept up to a limit, read to the end."""

    def __init__(self, path: Path, limit: int) -> None:
        self.reads, self.writes = os.pipe2(os.O_CLOEXEC)
        with suppress(OSError):
            fcntl.fcntl(self.reads, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer wakes for much output
        os.set_blocking(self.reads, False)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._room = max(0, limit - os.fstat(self._file).st_size)
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
            written = os.write(self._file, kept) if kept else 0
        except OSError:  # the disk of the worker is full: the job goes on, its log does not
            written = 0
        self._room -= len(kept)
        self.dropped += len(data) - written
        return True


class _Run:
    """One run of a job."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._logs = {each: _Log(folder / each, plan.log_limit_bytes) for each in STREAMS}
        bases = {name: (Path(at), version) for name, (at, version) in plan.groups.items()}
        self._groups = LimitGroups(plan.group, bases=bases if plan.within else {})
        self._told = False  # a signal asks for the end
        self._job = 0
        self._status: tuple[int | None, int | None] = (None, None)
        self._most_pages = 0

    def to_its_end(self) -> Ended:
        """Start the job, watch it, end what is left of it and say how it went."""
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        began = time.monotonic()
        if trouble := self._start():
            return Ended("not_started", message=trouble)
        why = self._watch(began + self._plan.run_limit_s)
        run_ms = int(1000 * (time.monotonic() - began))
        end_wholly(self._mine, self._reap_and_pause)
        self._read_the_rest()
        code, number = self._status
        ended = self._ended(why, code, number, run_ms)
        self._clean_up()
        return ended

    # Starting

    def _start(self) -> str:
        """Fork the job; it runs only once it is in its group. Return why it cannot be started."""
        gate_reads, gate_writes = os.pipe2(os.O_CLOEXEC)
        trouble_reads, trouble_writes = os.pipe2(os.O_CLOEXEC)
        self._job = os.fork()
        if self._job == 0:
            self._become_job(gate_reads, trouble_writes)
        for each in (gate_reads, trouble_writes, *(log.writes for log in self._logs.values())):
            os.close(each)
        limits = Limits(self._plan.cpu_milli, self._plan.memory_bytes)
        self._groups.put(self._plan.group, self._job, limits)
        os.write(gate_writes, b"g")
        os.close(gate_writes)
        trouble = os.read(trouble_reads, 4096).decode(errors="replace")
        os.close(trouble_reads)
        if trouble:
            os.waitpid(self._job, 0)
            self._clean_up()
        return trouble

    def _become_job(self, gate: int, trouble: int) -> NoReturn:
        try:
            os.setsid()
            os.read(gate, 1)
            # Python ignores two of them, and a program inherits what is ignored.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(self._logs["stdout"].writes, 1)
            os.dup2(self._logs["stderr"].writes, 2)
            os.chdir(self._folder / WORK)
            os.umask(0o077)
            if self._plan.within:
                self._set_limits()
            os.execvpe(self._plan.argv[0], self._plan.argv, self._plan.environment)
        except OSError as error:
            what = f"{self._plan.argv[0][:200]}: {error.strerror}"
            os.write(trouble, what.encode())
        except BaseException as error:  # noqa: BLE001 - a forked child must never go on as its parent
            os.write(trouble, repr(error).encode()[:4096])
        os._exit(127)

    def _set_limits(self) -> None:
        """Set what the kernel holds for single processes."""
        plan, held = self._plan, self._groups.bases()
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_NOFILE, _FILES)
        if plan.disk_bytes:
            _lower(resource.RLIMIT_FSIZE, plan.disk_bytes)
        if "memory" not in held:
            _lower(resource.RLIMIT_AS, plan.memory_bytes)
        if "cpu" not in held:
            cores = sorted(os.sched_getaffinity(0))
            wanted = min(len(cores), max(1, -(-plan.cpu_milli // 1000)))
            first = os.getpid() % len(cores)
            os.sched_setaffinity(0, (cores + cores)[first : first + wanted])
            _lower(resource.RLIMIT_CPU, max(1, int(plan.run_limit_s * wanted) + 1))

    # Watching

    def tell(self, number: int, frame: object) -> None:
        """Note that the job is to end now."""
        self._told = True

    def _watch(self, deadline: float) -> str:
        """Read and look until the job has ended; return why it did."""
        waker_reads, waker_writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(waker_writes, warn_on_full_buffer=False)
        handle = os.pidfd_open(self._job)
        with selectors.DefaultSelector() as ready:
            ready.register(handle, selectors.EVENT_READ)
            ready.register(waker_reads, selectors.EVENT_READ)
            for log in self._logs.values():
                ready.register(log.reads, selectors.EVENT_READ, log)
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
                    if key.fileobj == waker_reads:
                        with suppress(OSError):
                            os.read(waker_reads, 64)
                    elif not key.data.read():
                        ready.unregister(key.fileobj)

    def _is_held(self) -> bool:
        """Say whether control groups hold what would have to be looked at else."""
        return not self._plan.within or "memory" in self._groups.bases()

    def _over(self, now: float, deadline: float, looks: bool) -> str:
        """Return why the job must end, empty if it need not."""
        if self._told or (self._folder / CANCEL).exists():
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
        """Reap who has ended; return whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
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

    def _ended(self, why: str, code: int | None, number: int | None, run_ms: int) -> Ended:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = self._groups.memory_peak(self._plan.group)
        most = max(peak or 0, self._most_pages * _PAGE) or used.ru_maxrss * 1024
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
            cpu_ms=int(1000 * (used.ru_utime + used.ru_stime)),
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


def _lower(which: int, most: int) -> None:
    """Lower a limit of this process; it is never raised."""
    _, hard = resource.getrlimit(which)
    highest = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(which, (highest, highest))


def fork(folder: Path, close: Callable[[], None]) -> int:
    """Fork a warden for a folder and return its process; `close` lets go of the forge's own."""
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        os.setsid()
        close()
        run(folder)
    except OSError as error:
        # Nothing of the worker may look like the job's own doing: without `ended.json` the worker
        # sees a warden that died, and says so.
        code = errno.ENOSPC if error.errno == errno.ENOSPC else 1
    except BaseException:  # noqa: BLE001 - a forked child must never go on as its parent
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)
