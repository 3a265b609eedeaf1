"""Wardens and their forge as processes: which of them get another job, and what is left of them."""

import asyncio
import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest

from roost.hostkit.machine.limitgroups import LimitGroups
from roost.worker.run import warden
from roost.worker.run.hearth import Hearth
from roost.worker.run.plan import WORK, Plan, order_line, read_ended
from roost.worker.run.processes import began_at, is_alive

PLAN = Plan(["true"], {"PATH": "/usr/bin:/bin"}, 30.0, 1000, 2**30)


def attempt(folder: Path) -> Path:
    (folder / WORK).mkdir(parents=True)
    return folder


def children() -> set[int]:
    """Return the processes that this one has started and not reaped."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.add(int(entry.name))
    return found


def test_a_warden_with_a_process_that_it_cannot_end_is_given_no_other_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes without an answer, so that nobody keeps it; the file says how the job ended."""
    monkeypatch.setattr(warden, "end_wholly", lambda *_: False)
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(ours, theirs))
    process.start()
    theirs.close()
    folder = attempt(tmp_path / "a")
    with ours:
        ours.settimeout(30)
        ours.sendall(order_line(folder, PLAN))
        assert ours.recv(65536) == b""
    process.join(30)
    assert process.exitcode == 0
    ended = read_ended(folder)
    assert ended is not None
    assert (ended.why, ended.exit_code) == ("exited", 0)


def _serve(ours: socket.socket, theirs: socket.socket) -> None:
    ours.close()
    warden.serve(theirs)


def test_a_forge_that_is_gone_is_reaped_and_another_one_takes_its_place(tmp_path: Path) -> None:
    async def case() -> None:
        before = children()
        groups = LimitGroups("test-hearth", bases={})
        hearth = Hearth(tmp_path, groups)
        try:
            for name in ("a", "b", "c"):
                folder = attempt(tmp_path / name)
                pid = await hearth.start(folder, PLAN)
                ended = await hearth.ended(folder, pid)
                assert ended is not None
                (forge,) = children() - before
                assert hearth._forge is not None
                # The way is closed while the process is still there, as when it is being ended.
                hearth._forge._way.shutdown(socket.SHUT_RDWR)
                began = began_at(pid)
                os.kill(pid, signal.SIGKILL)  # so that the next job needs a new warden
                async with asyncio.timeout(60):
                    while forge in children() or is_alive(pid, began):
                        await asyncio.sleep(0.01)
        finally:
            hearth.close()
            groups.close()

    asyncio.run(case())
