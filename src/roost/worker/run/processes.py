"""Processes of this machine by their parents: who descends from whom, and is it still the same one.

A number alone names no process, as numbers are used again: a process is its number and the moment
at which it began. Standard library only.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
#: Rounds of freezing and ending before giving up on processes that the kernel does not let go.
_ROUNDS = 200


class Process(NamedTuple):
    """A process as /proc shows it."""

    pid: int
    parent: int
    state: str
    began: int  # ticks since the machine booted
    pages: int  # in memory


def look(pid: int) -> Process | None:
    """Return a process, None if there is none of this number."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name is in parentheses and may hold anything; what follows the last one is fixed.
    words = text[text.rindex(")") + 2 :].split()
    return Process(pid, int(words[1]), words[0], int(words[19]), int(words[21]))


def is_alive(pid: int, began: int) -> bool:
    """Say whether a process still runs; one that waits to be reaped does not."""
    found = look(pid)
    return found is not None and found.began == began and found.state not in "ZX"


def began_at(pid: int) -> int:
    """Return when a process began, 0 if it is not there."""
    found = look(pid)
    return found.began if found else 0


def descendants(pid: int) -> list[Process]:
    """Return every process that descends from one, parents first."""
    children: dict[int, list[Process]] = defaultdict(list)
    for name in os.listdir(_PROC):  # noqa: PTH208 - one list, no objects: it is asked often
        if name.isdigit() and (found := look(int(name))) is not None:
            children[found.parent].append(found)
    all_of_them, at = list(children[pid]), 0
    while at < len(all_of_them):
        all_of_them += children[all_of_them[at].pid]
        at += 1
    return all_of_them


def send(pids: "list[int] | set[int]", number: int) -> None:
    """Send a signal to processes; those that are gone are no harm."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_wholly(find: Callable[[], "set[int]"], pause: Callable[[], None]) -> bool:
    """End every process that `find` finds, until it finds none; return whether that came.

    They are frozen first: one that forks faster than it is looked for cannot go on doing so.
    """
    for _ in range(_ROUNDS):
        found = find()
        if not found:
            return True
        send(found, signal.SIGSTOP)
        send(found | find(), signal.SIGKILL)
        pause()
    return not find()
