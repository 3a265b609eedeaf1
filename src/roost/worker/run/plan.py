"""What a warden is asked and what it says, as small files in the folder of an attempt.

    plan.json    written by the worker: what to run, and within which limits
    lock         held by the warden as long as it lives, so that an attempt has only one
    warden.json  the warden's process, from before the job starts
    cancel       made by the worker: end the job now
    stdout       what the job wrote, up to a limit; stderr the same
    ended.json   how the job ended: once this is there, no process of it is left
    work/        the job's own folder

Standard library only: the forge imports it, and forks a process of every attempt.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLAN, LOCK, WARDEN, CANCEL, ENDED, WORK = (
    "plan.json",
    "lock",
    "warden.json",
    "cancel",
    "ended.json",
    "work",
)
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


def write(path: Path, value: Plan | Warden | Ended) -> None:
    """Write a file in one step; it survives a crash of ours, though maybe no power cut."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(json.dumps({name: getattr(value, name) for name in value.__slots__}))
    beside.rename(path)


def read_plan(folder: Path) -> Plan:
    """Return the plan of an attempt."""
    return Plan(**json.loads((folder / PLAN).read_bytes()))


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
