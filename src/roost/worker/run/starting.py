"""How a job's process is made: in its control group from its first instruction on.

A fork copies the tables of the memory of the process that forks, here an interpreter, and costs a
hundred times what the program that is started does. So the warden goes into the job's group itself,
spawns the program from there, without a copy, and goes back. Limits of single processes that the
warden can bear for that moment are inherited as soft ones, and made hard on the new process at
once; the others are set then. Those hold a process, never a job with its children: where groups do
not hold the sum, the warden looks (`warden`).
"""

import os
import resource
import signal
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from roost.hostkit.machine.cgroups import Unreadable, own_groups
from roost.hostkit.machine.limitgroups import CONTROLLERS, LimitGroups, Limits
from roost.worker.run.jobuser import JobUser, real_ids_of
from roost.worker.run.plan import Plan

#: Files that one process of a job may have open.
_FILES = 65_536
#: Python ignores some of these, and a program inherits what is ignored.
_DEFAULT = (
    signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ, signal.SIGCHLD
)  # fmt: skip
#: A group with less than this might have no memory left for the warden that is in it to spawn.
_LEAST_TO_SPAWN = 16 * 2**20


class NotStarted(Exception):
    """A program could not be started: it is not there, or may not be run."""


class Home:
    """The control groups of this process, to which it comes back."""

    def __init__(self) -> None:
        try:
            own = own_groups(Path("/"))
        except Unreadable:
            own = {}
        ways: dict[Path, int] = {}
        self._ways: dict[str, int] = {}
        for controller in CONTROLLERS:
            if controller in own:
                folder = own[controller][0]
                with suppress(OSError):
                    if folder not in ways:
                        flags = os.O_WRONLY | os.O_CLOEXEC
                        ways[folder] = os.open(folder / "cgroup.procs", flags)
                    self._ways[controller] = ways[folder]

    def come_back(self, controllers: Iterable[str]) -> None:
        """Leave the groups of a job again."""
        for way in {self._ways[each] for each in controllers}:
            os.write(way, b"0")  # whoever writes

    def knows(self, controllers: Iterable[str]) -> bool:
        """Say whether this process would find back from such groups."""
        return all(each in self._ways for each in controllers)


def start_job(plan: Plan, work: Path, ends: tuple[int, int, int], groups: LimitGroups,
              home: Home) -> int:  # fmt: skip
    """Start the program of a plan and return its process; `ends` become its standard streams."""
    held = groups.bases()
    limits = Limits(plan.cpu_milli, plan.memory_bytes)
    os.chdir(work)
    kept = _bear(plan) if plan.within else {}
    try:
        if held and home.knows(held):
            first = Limits(plan.cpu_milli, max(plan.memory_bytes, _LEAST_TO_SPAWN))
            groups.put(plan.group, os.getpid(), first)
            try:
                job = _spawn(plan, ends)
            finally:
                home.come_back(held)
            if first != limits:
                groups.change(plan.group, limits)
        else:
            job = _spawn(plan, ends)
            groups.put(plan.group, job, limits)
    finally:
        for which, both in kept.items():
            resource.setrlimit(which, both)
        os.chdir("/")
    if plan.within:
        _limit(job, plan, held)
    return job


def _spawn(plan: Plan, ends: tuple[int, int, int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)]
    trouble: OSError | None = None
    user = JobUser(*plan.user) if plan.user else None
    for program in _candidates(plan):
        try:
            with real_ids_of(user):
                return os.posix_spawn(
                    program, plan.argv, plan.environment, file_actions=actions,
                    resetids=user is not None, setsid=True, setsigdef=_DEFAULT,
                )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError) as error:
            trouble = trouble or error
        except OSError as error:  # it is there: that is the better reason
            trouble = error
        except ValueError as error:  # a NUL in a word, a variable without a name
            raise NotStarted(f"{plan.argv[0][:200]}: {error}") from error
    said = trouble.strerror if trouble is not None else "there is no PATH"
    raise NotStarted(f"{plan.argv[0][:200]}: {said}")


def _candidates(plan: Plan) -> list[str]:
    """Return where the program may be, by the job's own PATH."""
    name = plan.argv[0]
    if "/" in name:
        return [name]
    return [f"{folder}/{name}" for folder in os.get_exec_path(plan.environment)]


def _bear(plan: Plan) -> dict[int, tuple[int, int]]:
    """Lower soft limits of this process, for the one that it starts; return what they were."""
    wanted = {resource.RLIMIT_NOFILE: _FILES}
    if plan.disk_bytes:
        wanted[resource.RLIMIT_FSIZE] = plan.disk_bytes
    kept = {which: resource.getrlimit(which) for which in wanted}
    for which, most in wanted.items():
        _, hard = kept[which]
        resource.setrlimit(which, (_lower_of(most, hard), hard))
    return kept


def _lower_of(most: int, hard: int) -> int:
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def _limit(job: int, plan: Plan, held: Container[str]) -> None:
    """Set what the kernel holds for single processes; it is never raised."""
    _lower(job, resource.RLIMIT_CORE, 0)
    _lower(job, resource.RLIMIT_NOFILE, _FILES)
    if plan.disk_bytes:
        _lower(job, resource.RLIMIT_FSIZE, plan.disk_bytes)
    if "memory" not in held:
        _lower(job, resource.RLIMIT_AS, plan.memory_bytes)
    if "cpu" not in held:
        cores = sorted(os.sched_getaffinity(0))
        wanted = min(len(cores), max(1, -(-plan.cpu_milli // 1000)))
        first = job % len(cores)
        with suppress(OSError):  # it has ended already
            os.sched_setaffinity(job, (cores + cores)[first : first + wanted])
        _lower(job, resource.RLIMIT_CPU, max(1, int(plan.run_limit_s * wanted) + 1))


def _lower(job: int, which: int, most: int) -> None:
    with suppress(ValueError, OSError):  # it has ended already
        _, hard = resource.prlimit(job, which)
        highest = _lower_of(most, hard)
        resource.prlimit(job, which, (highest, highest))
