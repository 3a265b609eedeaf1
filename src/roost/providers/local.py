"""Machines that are processes of this machine: a worker each, with a share of its cores and memory.

    FOLDER/TOKEN/machine.json   the launch, its process and when it began; kept after its end
    FOLDER/TOKEN/data           the worker's own folder
    FOLDER/TOKEN/log            what the worker says

A worker is started away from this process and outlives it; another process finds it again by its
file. Whether it lives is asked of the kernel: a process is its number and the moment it began. A
machine ends like one whose plug is pulled: its worker, the jobs and all their processes at once.
They are found by the machine's folder on their command lines, and by their parents.
"""

import asyncio
import errno
import json
import os
import select
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roost.base import private
from roost.base.clock import Clock
from roost.model.job import CloudMachine, CloudState, Launch, MachineType, Market
from roost.providers.base import OWNER_TAG, tag_of
from roost.providers.errors import MachineGone, NoCapacity, Refused

#: Returns the command line of a machine's worker, and variables it needs besides ours.
Command = Callable[[Launch, Path], tuple[Sequence[str], Mapping[str, str]]]

_FILE, _DATA, _LOG = "machine.json", "data", "log"
_ROUNDS = 200
_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the file of a machine says."""

    token: str
    type: str
    market: Market
    region: str
    owner: str
    created_ms: int
    price_micro: int
    pid: int = 0  # 0: it was about to be started
    began: int = 0
    ended: bool = False


class LocalProvider:
    """Machines as processes of this machine."""

    name = "local"

    def __init__(
        self,
        folder: Path,
        command: Command,
        types: Sequence[MachineType],
        *,
        clock: Clock,
        most: int | None = None,
    ) -> None:
        self._folder, self._command, self._types = folder, command, tuple(types)
        self._clock, self._most = clock, most
        self._lock = asyncio.Lock()

    async def machine_types(self) -> Sequence[MachineType]:
        """Return the sizes of workers that are offered."""
        return self._types

    async def launch(self, launch: Launch) -> CloudMachine:
        """Start a worker, or return the one that this token started."""
        _check_token(launch.token)
        if launch.type.name not in {each.name for each in self._types}:
            raise Refused("local", f"there is no machine type {launch.type.name!r}")
        async with self._lock:
            return await asyncio.to_thread(self._launch, launch)

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one worker process as it is now."""
        return await asyncio.to_thread(self._describe, cloud_id)

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return an owner's workers that live."""
        return await asyncio.to_thread(self._machines, owner)

    async def terminate(self, cloud_id: str) -> None:
        """End a worker, its jobs and all their processes."""
        _check_token(cloud_id)
        await asyncio.to_thread(self._terminate, cloud_id)

    async def close(self) -> None:
        """Close nothing; workers go on."""

    # All of this blocks.

    def _launch(self, launch: Launch) -> CloudMachine:
        kept = self._read(launch.token)
        if kept is not None and kept.pid:
            if not kept.ended and _is_alive(kept.pid, kept.began):
                return _shown(kept, "running")
            raise MachineGone("local", f"machine {launch.token} has ended")
        at = private.make_folder(self._folder / launch.token)
        if kept is not None and (found := _with_folder(at)):
            # Killed between the start and the note of it: the worker is there, and is the one.
            kept = _noted(kept, min(found))
            self._write(kept)
            return _shown(kept, "running")
        self._check_room(launch)
        kept = _Kept(
            launch.token,
            launch.type.name,
            launch.market,
            launch.region,
            tag_of(launch.tags, OWNER_TAG),
            self._clock.wall_ms(),
            launch.type.price(launch.market),
        )
        self._write(kept)
        kept = _noted(kept, self._start(launch, at))
        self._write(kept)
        return _shown(kept, "running")

    def _check_room(self, launch: Launch) -> None:
        if self._most is not None and len(self._living()) >= self._most:
            raise NoCapacity("local", f"this machine runs {self._most} workers at most")

    def _start(self, launch: Launch, at: Path) -> int:
        """Start the worker away from this process, with a log of its own."""
        command, variables = self._command(launch, at / _DATA)
        if not any(str(at) in word for word in command):
            raise Refused("local", "a worker's command line must name its folder")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = os.open(at / _LOG, flags, private.FILE)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, log, 1)]
        try:
            return os.posix_spawnp(
                command[0],
                list(command),
                {**private.plain_environment(), **variables},
                file_actions=[*actions, (os.POSIX_SPAWN_DUP2, log, 2)],
                setsid=True,
            )
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOMEM):
                raise NoCapacity("local", f"{command[0]}: {error.strerror}") from error
            raise Refused("local", f"{command[0]}: {error.strerror}") from error
        finally:
            os.close(log)
            os.close(nothing)

    def _describe(self, cloud_id: str) -> CloudMachine:
        _check_token(cloud_id)
        kept = self._read(cloud_id)
        if kept is None:
            raise MachineGone("local", f"there is no machine {cloud_id}")
        alive = bool(kept.pid) and not kept.ended and _is_alive(kept.pid, kept.began)
        return _shown(kept, "running" if alive else "gone" if kept.pid else "starting")

    def _machines(self, owner: str) -> list[CloudMachine]:
        return [_shown(kept, "running") for kept in self._living() if kept.owner == owner]

    def _living(self) -> list[_Kept]:
        if not self._folder.is_dir():
            return []
        found = [self._read(each.name) for each in sorted(self._folder.iterdir())]
        return [
            kept
            for kept in found
            if kept is not None and not kept.ended and kept.pid and _is_alive(kept.pid, kept.began)
        ]

    def _terminate(self, token: str) -> None:
        at, kept = self._folder / token, self._read(token)
        if kept is None:
            return

        def find() -> set[int]:
            known = {kept.pid} if kept.pid and _is_alive(kept.pid, kept.began) else set()
            return _with_descendants(known | _with_folder(at))

        for _ in range(_ROUNDS):
            if not (found := find()):
                break
            _send(found, signal.SIGSTOP)  # who forks faster than it is looked for does so no more
            _send(found | find(), signal.SIGKILL)
            _reap(kept.pid)
            _pause()
        self._write(_ended(kept))
        shutil.rmtree(at / _DATA, ignore_errors=True)

    def _read(self, token: str) -> _Kept | None:
        try:
            return _Kept(**json.loads((self._folder / token / _FILE).read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            return None

    def _write(self, kept: _Kept) -> None:
        path = self._folder / kept.token / _FILE
        beside, file = private.open_beside(path)
        with file:
            file.write(json.dumps({name: getattr(kept, name) for name in kept.__slots__}).encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


def _check_token(token: str) -> None:
    if not token or token.startswith(".") or "/" in token or len(token) > 120 or "\0" in token:
        raise Refused("local", f"{token[:130]!r} cannot name a machine")


def _shown(kept: _Kept, state: CloudState) -> CloudMachine:
    return CloudMachine(
        cloud_id=kept.token,
        machine=kept.token,
        state=state,
        type=kept.type,
        region=kept.region,
        market=kept.market,
        created_ms=kept.created_ms,
        price_micro=kept.price_micro,
    )


def _noted(kept: _Kept, pid: int) -> _Kept:
    fields = {name: getattr(kept, name) for name in kept.__slots__}
    return _Kept(**{**fields, "pid": pid, "began": _look(pid)[2]})


def _ended(kept: _Kept) -> _Kept:
    return _Kept(**{**{name: getattr(kept, name) for name in kept.__slots__}, "ended": True})


# Processes of this machine


def _look(pid: int) -> tuple[int, str, int]:
    """Return parent, state and beginning of a process; zeros and X if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0, "X", 0
    words = text[text.rindex(")") + 2 :].split()
    return int(words[1]), words[0], int(words[19])


def _is_alive(pid: int, began: int) -> bool:
    _reap(pid)
    _, state, since = _look(pid)
    return since == began and state not in "ZX"


def _reap(pid: int) -> None:
    """Reap a worker that this process started and that has ended."""
    with suppress(ChildProcessError, OSError):
        if pid:
            os.waitpid(pid, os.WNOHANG)


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _with_folder(folder: Path) -> set[int]:
    """Return the processes that name a folder on their command lines."""
    found, words = set(), os.fsencode(folder) + b"/"
    for pid in _pids():
        with suppress(OSError):
            if words in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != os.getpid():
                found.add(pid)
    return {pid for pid in found if _look(pid)[1] not in "ZX"}


def _with_descendants(pids: set[int]) -> set[int]:
    if not pids:
        return pids
    parents = {pid: _look(pid) for pid in _pids()}
    found, grown = set(pids), True
    while grown:
        more = {pid for pid, (parent, _, _) in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return {pid for pid in found if pid not in parents or parents[pid][1] not in "ZX"}


def _send(pids: set[int], number: int) -> None:
    for pid in pids - {os.getpid()}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _pause() -> None:
    select.select([], [], [], _PAUSE_S)
