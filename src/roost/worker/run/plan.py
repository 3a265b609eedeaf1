"""What a warden is asked and what it says: lines of its socket, and files of the attempt's folder.

    warden.json  the warden's process, from before the job starts
    cancel       made by the worker: end the job now
    stdout       what the job wrote, up to a limit; stderr the same
    ended.json   how the job ended: once this is there, no process of it is left
    work/        the job's own folder

The folder is locked by the warden as long as it has the attempt, so that there is only one. What
to run comes over the socket alone: an attempt whose warden never got it has not begun. How a job
ended is said there and is in the file too, for the worker that comes after this one.

Standard library only: the forge imports it, and forks a process of every attempt.
"""

import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WARDEN, CANCEL, ENDED, WORK = "warden.json", "cancel", "ended.json", "work"
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `groups` are the folders of control groups by controller, with their version."""

    argv: list[str]
    environment: dict[str, str]
    run_limit_s: float
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int = 0  # 0: not limited
    log_limit_bytes: int = 1024 * 1024
    grace_s: float = 5.0  # between being asked to end and being ended
    group: str = ""  # the name of the attempt's control group
    groups: dict[str, list[Any]] = field(default_factory=dict)
    user: list[Any] = field(default_factory=list)  # uid, gid and groups; none: the worker's own
    within: bool = True  # limits are the warden's to hold; False: a container's engine holds them
    after: list[list[str]] = field(default_factory=list)  # commands that clean up, whatever came


@dataclass(frozen=True, slots=True)
class Warden:
    """The process of a warden: a number and when it began, so that no other is taken for it."""

    pid: int
    began: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended.

    `why` is exited, cancelled, run_limit, memory_limit, disk_full or not_started.
    """

    why: str
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    run_ms: int = 0
    cpu_ms: int = 0
    memory_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # bytes of each stream beyond its limit


def write(path: Path, value: Warden | Ended) -> None:
    """Write a small file at once; it survives a crash of ours, though maybe no power cut.

    Half a file is no file to a reader: no name is changed, as this is done for every job.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(_fields(value)).encode()
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(file)


def order_line(folder: Path, plan: Plan) -> bytes:
    """Return the line that asks a warden to run the attempt of a folder."""
    return json.dumps([os.fspath(folder), _fields(plan)]).encode() + b"\n"


def read_order(line: bytes) -> tuple[Path, Plan]:
    """Return what a line asks of a warden."""
    folder, fields = json.loads(line)
    return Path(folder), Plan(**fields)


def answer_line(ended: Ended | None) -> bytes:
    """Return the line that says how a job ended; None: this warden did not run it."""
    return json.dumps(None if ended is None else _fields(ended)).encode() + b"\n"


def read_answer(line: bytes) -> Ended | None:
    """Return what a warden has said."""
    fields = json.loads(line)
    return None if fields is None else Ended(**fields)


def _fields(value: Plan | Warden | Ended) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def read_warden(folder: Path) -> Warden | None:
    """Return the warden of an attempt, None before it has one."""
    return Warden(**found) if (found := _read(folder / WARDEN)) else None


def read_ended(folder: Path) -> Ended | None:
    """Return how a job ended, None before."""
    return Ended(**found) if (found := _read(folder / ENDED)) else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:  # written by a machine that lost its power
        return None
    return found if isinstance(found, dict) else None
