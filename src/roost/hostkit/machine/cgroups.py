"""What the agent's own control group allows: VMs live in it too, so it lowers what the host has.

Every group from the agent's own up to the top may set a limit, and the smallest holds; version 1,
version 2 and both at once are read. A limit that should be there and cannot be read makes the
amount unknown: it might be any.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from roost.hostkit.machine.sysfs import number, read_text


class Unreadable(Exception):
    """A limit that may exist could not be read."""


class _Mount(NamedTuple):
    kind: str  # cgroup or cgroup2
    top: str  # the group that is mounted
    at: Path
    controllers: frozenset[str]


def memory_limit(root: Path) -> int | None:
    """Return the bytes that the agent and its VMs may take, None for no limit."""
    return _smallest(root, "memory", _memory_v1, _memory_v2)


def cpu_limit_milli(root: Path) -> int | None:
    """Return the millicores that the agent and its VMs may use, None for no limit."""
    return _smallest(root, "cpu", _cpu_v1, _cpu_v2)


def _smallest(
    root: Path,
    controller: str,
    read_v1: Callable[[Path], int | None],
    read_v2: Callable[[Path], int | None],
) -> int | None:
    mounts = [mount for mount in _mounts(root) if _serves(mount, controller)]
    if not mounts:
        return None
    groups = _groups(root)
    limits = []
    for mount in mounts:
        own = groups.get("" if mount.kind == "cgroup2" else controller)
        if own is None:
            raise Unreadable(f"the agent's group of {controller} is not known")
        read = read_v2 if mount.kind == "cgroup2" else read_v1
        limits += [limit for folder in _upwards(mount, own) if (limit := read(folder)) is not None]
    return min(limits, default=None)


def own_groups(root: Path) -> dict[str, tuple[Path, int]]:
    """Return the folder of the agent's group and its version, by controller.

    Version 1 wins where both are mounted: it has the controllers that version 2 has not.
    """
    groups = _groups(root)
    found: dict[str, tuple[Path, int]] = {}
    for mount in sorted(_mounts(root), key=lambda each: each.kind, reverse=True):
        if mount.kind == "cgroup2":
            folder = next(_upwards(mount, groups.get("", "/")))
            controllers = (read_text(folder / "cgroup.controllers") or "").split()
            found.update(dict.fromkeys(controllers, (folder, 2)))
        else:
            for controller in mount.controllers & groups.keys():
                found[controller] = next(_upwards(mount, groups[controller])), 1
    return found


def _serves(mount: _Mount, controller: str) -> bool:
    return mount.kind == "cgroup2" or controller in mount.controllers


def _mounts(root: Path) -> Iterator[_Mount]:
    text = read_text(root / "proc/self/mountinfo")
    if not text:
        raise Unreadable("/proc/self/mountinfo")
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        ahead, behind = before.split(), after.split()
        if not dash or len(ahead) < 6 or len(behind) < 2:
            raise Unreadable("/proc/self/mountinfo")
        if behind[0] in ("cgroup", "cgroup2"):
            options = frozenset(behind[-1].split(","))
            yield _Mount(behind[0], ahead[3], root / ahead[4].lstrip("/"), options)


def _groups(root: Path) -> dict[str, str]:
    """Return the agent's group by controller; that of version 2 has an empty name."""
    text = read_text(root / "proc/self/cgroup")
    if not text:
        raise Unreadable("/proc/self/cgroup")
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[0].isdigit() or not parts[2].startswith("/"):
            raise Unreadable("/proc/self/cgroup")
        found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found


def _upwards(mount: _Mount, own: str) -> Iterator[Path]:
    """Yield the folders of a group and of those above it, as far as the mount shows them."""
    top = mount.top.rstrip("/")
    if (own != top and not own.startswith(f"{top}/")) or "/.." in own:
        yield mount.at  # it lies outside what is mounted here, as in some containers
        return
    folder = mount.at / own[len(top) :].strip("/")
    if not folder.is_dir():
        raise Unreadable(str(folder))
    while folder != mount.at:
        yield folder
        folder = folder.parent
    yield mount.at


def _memory_v2(folder: Path) -> int | None:
    text = _text_v2(folder, "memory")
    if text is None or text.strip() == "max":
        return None
    return _known(number(text), folder)


def _cpu_v2(folder: Path) -> int | None:
    text = _text_v2(folder, "cpu")
    if text is None:
        return None
    words = text.split()
    if len(words) != 2:
        raise Unreadable(str(folder))
    period = _known(number(words[1]), folder)
    if words[0] == "max":
        return None
    return _milli(_known(number(words[0]), folder), period, folder)


def _text_v2(folder: Path, controller: str) -> str | None:
    """Return the text of a limit, or None where the group can have none.

    Only the real top group is without a type. Elsewhere the file is missing because its controller
    is not turned on, or because something is wrong.
    """
    if (path := folder / f"{controller}.max").exists():
        text = read_text(path)
        if text is None:
            raise Unreadable(str(path))
        return text
    controllers = read_text(folder / "cgroup.controllers")
    is_top = not (folder / "cgroup.type").exists()
    if not is_top and (controllers is None or controller in controllers.split()):
        raise Unreadable(str(path))
    return None


def _memory_v1(folder: Path) -> int | None:
    return _known(number(read_text(folder / "memory.limit_in_bytes")), folder)


def _cpu_v1(folder: Path) -> int | None:
    quota, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if not quota.exists() and not period.exists():
        return None  # a kernel that cannot limit
    text = read_text(quota)
    if text is not None and text.strip() == "-1":
        return None
    return _milli(_known(number(text), folder), _known(number(read_text(period)), folder), folder)


def _milli(quota: int, period: int, folder: Path) -> int:
    if period == 0:
        raise Unreadable(str(folder))
    return quota * 1000 // period


def _known(value: int | None, folder: Path) -> int:
    if value is None:
        raise Unreadable(str(folder))
    return value
