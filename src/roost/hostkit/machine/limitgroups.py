"""A control group for each VM or attempt, so that its limits hold: cpu and memory, version 1 or 2.

Groups lie below our process's own, in a group named `roost`. In version 2 our process moves itself
into a group beside them first, because a group that has processes may not divide its controllers.
Where groups cannot be made (a container, a user without rights, a unit without `Delegate=yes`) VMs
and attempts run without them; which limits do not hold is said, in the log and to the plane.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roost.hostkit.machine.cgroups import Unreadable, own_groups
from roost.hostkit.machine.sysfs import number

log = logging.getLogger("roost.agent")

_TOP, _AGENT = "roost", "roost-agent"
_PERIOD_US = 100_000
CONTROLLERS = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one VM's process may take."""

    cpu_milli: int
    memory_bytes: int


class LimitGroups:
    """The control groups of one agent's VMs; all of it blocks. `root` is / but in tests."""

    def __init__(
        self,
        name: str,
        *,
        root: Path = Path("/"),
        bases: Mapping[str, tuple[Path, int]] | None = None,
    ) -> None:
        self._name = name  # of the agent or worker, as several may share a machine
        self._root = root
        self._bases = None if bases is None else dict(bases)

    def bases(self) -> dict[str, tuple[Path, int]]:
        """Return the folder in which groups are made and its version, by controller."""
        return dict(self._usable())

    def held(self) -> list[str]:
        """Return which limits hold on this host, as capabilities: limit:cpu, limit:memory."""
        return [f"limit:{controller}" for controller in sorted(self._usable())]

    def put(self, vm: str, pid: int, limits: Limits) -> None:
        """Move a VM's process into its group, with its limits; what cannot be is left out."""
        for controller, (base, version) in self._usable().items():
            folder = f"{base}/{vm}"
            try:
                with suppress(FileExistsError):
                    os.mkdir(folder)  # noqa: PTH102 - for every job, see _put
                for name, value in _values(controller, version, limits):
                    _put(f"{folder}/{name}", value)
                _put(f"{folder}/cgroup.procs", str(pid))
            except OSError as error:
                log.warning("%s runs without a limit of %s: %s", vm, controller, error)

    def change(self, vm: str, limits: Limits) -> None:
        """Set the limits of a VM that runs."""
        for controller, (base, version) in self._usable().items():
            for name, value in _values(controller, version, limits):
                with suppress(OSError):  # it has no group: it was started without
                    (base / vm / name).write_text(value)

    def remove(self, vm: str) -> None:
        """Remove the groups of a VM whose process has ended."""
        for base, _ in self._usable().values():
            with suppress(OSError):  # it never had one
                os.rmdir(f"{base}/{vm}")  # noqa: PTH106 - for every job, see _put

    def members(self, vm: str) -> set[int]:
        """Return the processes that are in a group, by their numbers."""
        found: set[int] = set()
        for base, _ in self._usable().values():
            found.update(int(each) for each in _get(f"{base}/{vm}/cgroup.procs").split())
        return found

    def memory_peak(self, vm: str) -> int | None:
        """Return the most memory that a group has had, None where that is not known."""
        if (memory := self._usable().get("memory")) is None:
            return None
        name = "memory.peak" if memory[1] == 2 else "memory.max_usage_in_bytes"
        return number(_get(f"{memory[0]}/{vm}/{name}"))

    def memory_kills(self, vm: str) -> int:
        """Return how many processes of a group were killed because it had no memory left."""
        if (memory := self._usable().get("memory")) is None:
            return 0
        name = "memory.events" if memory[1] == 2 else "memory.oom_control"
        lines = _get(f"{memory[0]}/{vm}/{name}").splitlines()
        kills = [number(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
        return sum(each or 0 for each in kills)

    def close(self) -> None:
        """Remove the agent's groups if no VM is in them; those of VMs that run on stay."""
        for base, _ in (self._bases or {}).values():
            with suppress(OSError):
                base.rmdir()
        self._bases = None

    def _usable(self) -> dict[str, tuple[Path, int]]:
        if self._bases is None:
            self._bases = dict(self._find())
            for controller in CONTROLLERS:
                if controller not in self._bases:
                    log.warning("limits of %s do not hold: no control group", controller)
        return self._bases

    def _find(self) -> Iterator[tuple[str, tuple[Path, int]]]:
        try:
            own = own_groups(self._root)
        except Unreadable as error:
            log.warning("the agent's control groups cannot be read: %s", error)
            return
        for controller in CONTROLLERS:
            if controller not in own:
                continue
            folder, version = own[controller]
            try:
                if version == 2:
                    folder = _divided(folder)
                base = folder / _TOP / self._name
                base.mkdir(parents=True, exist_ok=True)
                if version == 2:
                    for each in (folder, folder / _TOP, base):
                        _enable(each)
            except OSError as error:
                log.info("no control groups of %s below %s: %s", controller, folder, error)
            else:
                yield controller, (base, version)


def _divided(folder: Path) -> Path:
    """Move the agent into a group of its own, so that the one above can have others."""
    if folder.name == _AGENT:
        return folder.parent
    (folder / _AGENT).mkdir(exist_ok=True)
    (folder / _AGENT / "cgroup.procs").write_text(str(os.getpid()))
    return folder


def _put(path: str, value: str) -> None:
    """Write a value to a file of a group, without a file object: jobs are short and many."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def _get(path: str) -> str:
    """Return the text of a file of a group, empty if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(file, 65536):
            pieces.append(piece)
        return b"".join(pieces).decode()
    except OSError:
        return ""
    finally:
        os.close(file)


def _enable(folder: Path) -> None:
    file = folder / "cgroup.subtree_control"
    enabled = file.read_text().split()
    if wanted := [f"+{each}" for each in CONTROLLERS if each not in enabled]:
        file.write_text(" ".join(wanted))


def _values(controller: str, version: int, limits: Limits) -> list[tuple[str, str]]:
    quota = max(1000, limits.cpu_milli * _PERIOD_US // 1000)
    if controller == "memory":
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        return [(name, str(limits.memory_bytes))]
    if version == 2:
        return [("cpu.max", f"{quota} {_PERIOD_US}")]
    return [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
