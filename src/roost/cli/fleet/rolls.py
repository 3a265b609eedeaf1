"""Runs of maintenance: each marks the hosts that it closes, so that none is forgotten when it dies.

The mark is the reason for which a host is closed. It names the process, which is looked for where
it ran; of a process on another machine nobody here knows whether it still runs.
"""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from roost.base.errors import Conflict
from roost.base.timestamps import timestamp
from roost.cli.show.screen import note
from roost.cli.words.session import Session

if TYPE_CHECKING:
    from roost.wire.bodies import HostBody

_MARK = re.compile(r"maintenance run, process (\d+) on (\S+), since \S+")
#: Hosts that are named in one line.
_MOST_NAMED = 20


def mark() -> str:
    """Return the mark of this process' run."""
    from roost.base.clock import RealClock

    since = timestamp(RealClock().wall_ms())
    return f"maintenance run, process {os.getpid()} on {socket.gethostname()}, since {since}"


def closed_by_runs(session: Session) -> "list[HostBody]":
    """Return the hosts that are closed by runs, this one's too."""
    return [
        host
        for admin in ("cordoned", "draining", "maintenance")
        for host in session.client.all_hosts(admin=admin)
        if _MARK.fullmatch(host.closed)
    ]


def runs_on(closed: str) -> bool | None:
    """Say whether the run of a mark still goes on; None where that cannot be known from here."""
    found = _MARK.fullmatch(closed)
    if found is None or found[2] != socket.gethostname():
        return None
    if int(found[1]) == os.getpid():
        return False  # asked before this one closes any: an earlier process had the same number
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def in_words(closed: str) -> str:
    """Return a mark, with whether its run still goes on."""
    known = {
        True: "which still runs",
        False: "which runs no longer",
        None: "which may run no longer",
    }
    return f"{closed}, {known[runs_on(closed)]}"


def way_back(hosts: "Sequence[HostBody]") -> list[str]:
    """Say how hosts that a run has left are taken back, or gone on with."""
    named = " ".join(host.name for host in hosts[:_MOST_NAMED])
    said = [f"go on with: roost maintenance run --command ... {named}"]
    if served := [host.name for host in hosts if host.admin == "maintenance"][:_MOST_NAMED]:
        said.append(f"see whether the command ended on {', '.join(served)} before they are opened")
    return [*said, f"or open them: roost host uncordon {named}"]


def tell_left(session: Session, named: Sequence[str]) -> None:
    """Say which hosts earlier runs have left closed; refuse those that a living run has."""
    found = closed_by_runs(session)
    for host in found:
        if host.name in named and runs_on(host.closed):
            raise Conflict(
                f"host {host.name!r} is closed by another {in_words(host.closed)}",
                hint="Maybe wait for it; if that process is another program by now, "
                f"roost host uncordon {host.name}.",
                host=host.name,
            )
    left = [host for host in found if host.name not in named and not runs_on(host.closed)]
    if left:
        for host in left[:_MOST_NAMED]:
            note(f"{host.name} is {host.admin}, closed by an earlier {in_words(host.closed)}")
        if len(left) > _MOST_NAMED:
            note(f"and {len(left) - _MOST_NAMED} more: roost maintenance list")
        for line in way_back(left):
            note(line)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a run that is told to end, or whose terminal is gone, end as by Ctrl-C.

    What is ignored already, as `nohup` has it, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {sign: signal.getsignal(sign) for sign in (signal.SIGTERM, signal.SIGHUP)}
    heeded = [sign for sign, handler in before.items() if handler is not signal.SIG_IGN]
    for sign in heeded:
        signal.signal(sign, interrupt)
    try:
        yield
    finally:
        for sign in heeded:
            signal.signal(sign, before[sign])


def say(text: str) -> None:
    """Write a line if anybody reads it: that a terminal is gone must keep no host closed."""
    with suppress(OSError, SystemExit):  # the latter is what rich makes of a broken pipe
        note(text)
