"""The fence guard: its judgement on made-up clocks, and as a real process beside a killed agent."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from roost.agent.drivers.vmfiles import locked
from roost.agent.fencing.recipes import ALIVE_S, FolderFences, ProcessGuard, dismiss_guard, guard
from roost.testing.clock import HandClock

PATIENCE_S = 20.0
ROOT = Path(__file__).parents[3]


def wait_until(condition: Callable[[], object]) -> None:
    pause, end = threading.Event(), time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        pause.wait(0.02)


def write_lease(folder: Path, deadline: float, boot: str = "this") -> None:
    (folder / "lease").write_text(json.dumps({"deadline": deadline, "boot": boot}))


def write_vm(folder: Path, name: str, state: str) -> Path:
    """Write a VM of the virtual driver together with its recipe."""
    vms = folder / "vms"
    vms.mkdir(exist_ok=True)
    path = vms / f"{name}.json"
    path.write_text(json.dumps({"id": name, "name": name, "state": state, "generation": 3}))
    recipe = {
        "kind": "edit",
        "file": str(path),
        "lock": str(vms / "lock"),
        "field": "state",
        "when": ["starting", "running"],
        "set": {"state": "stopped", "reason": "fenced"},
    }
    FolderFences(folder).put(name, recipe)
    return path


def state_of(path: Path) -> str:
    return json.loads(path.read_text())["state"]


# Judgement


def is_fresh(folder: Path, now: float, asleep: float = 0.0) -> bool:
    return guard.LeaseWatch(folder / "lease", "this").is_fresh(now, asleep)


def test_a_lease_is_fresh_until_its_deadline(tmp_path: Path) -> None:
    write_lease(tmp_path, 100.0)
    assert is_fresh(tmp_path, 99.9)
    assert not is_fresh(tmp_path, 100.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"deadline": "soon", "boot": "this"}', "null"])
def test_a_lease_that_cannot_be_read_is_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "lease").write_text(text)
    assert not is_fresh(tmp_path, 0.0)


def test_a_missing_lease_is_over(tmp_path: Path) -> None:
    assert not is_fresh(tmp_path, 0.0)


def test_a_lease_of_an_earlier_boot_is_over(tmp_path: Path) -> None:
    write_lease(tmp_path, 1e9, boot="earlier")
    assert not is_fresh(tmp_path, 0.0)


def test_time_that_the_machine_slept_counts(tmp_path: Path) -> None:
    write_lease(tmp_path, 100.0)
    watch = guard.LeaseWatch(tmp_path / "lease", "this")
    assert watch.is_fresh(90.0, asleep=500.0)
    assert not watch.is_fresh(91.0, asleep=520.0)
    write_lease(tmp_path, 105.0)
    assert watch.is_fresh(92.0, asleep=520.0)


def test_nothing_is_touched_while_the_lease_is_fresh(tmp_path: Path) -> None:
    path = write_vm(tmp_path, "vm-1", "running")
    write_lease(tmp_path, 100.0)
    assert guard.Guard(tmp_path, "this").look(50.0, 0.0)
    assert state_of(path) == "running"


@pytest.mark.parametrize("state", ["running", "starting"])
def test_what_executes_is_stopped_when_the_lease_is_over(tmp_path: Path, state: str) -> None:
    path = write_vm(tmp_path, "vm-1", state)
    write_lease(tmp_path, 100.0)
    assert guard.Guard(tmp_path, "this").look(100.0, 0.0)
    assert json.loads(path.read_text()) == {
        "id": "vm-1",
        "name": "vm-1",
        "state": "stopped",
        "generation": 3,
        "reason": "fenced",
    }


@pytest.mark.parametrize("state", ["ready", "moved", "stopped"])
def test_what_does_not_execute_stays_as_it_is(tmp_path: Path, state: str) -> None:
    path = write_vm(tmp_path, "vm-1", state)
    assert guard.Guard(tmp_path, "this").look(100.0, 0.0)
    assert state_of(path) == state


def test_one_broken_recipe_does_not_save_the_other_vms(tmp_path: Path) -> None:
    FolderFences(tmp_path).put("a", {"kind": "nonsense"})
    (tmp_path / "fence" / "b.json").write_text("{")
    path = write_vm(tmp_path, "c", "running")
    assert not guard.Guard(tmp_path, "this").look(100.0, 0.0)  # so a watchdog is not petted
    assert state_of(path) == "stopped"


def test_an_agent_that_hangs_with_the_lock_does_not_stop_the_guard(tmp_path: Path) -> None:
    path = write_vm(tmp_path, "vm-1", "running")
    with locked(tmp_path / "vms" / "lock"):
        assert guard.Guard(tmp_path, "this").look(100.0, 0.0)
    assert state_of(path) == "stopped"


# Killing


@contextmanager
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; input()"], stdin=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_with_the_right_start_time_is_killed() -> None:
    with child() as process:
        each = {"pid": process.pid, "started": guard.started_at(process.pid)}
        wait_until(lambda: guard.carry_out({"kind": "kill", "processes": [each]}))
        assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_process_that_only_has_the_same_number_is_spared() -> None:
    with child() as process:
        started = guard.started_at(process.pid)
        assert started is not None
        each = {"pid": process.pid, "started": started - 1}
        assert guard.carry_out({"kind": "kill", "processes": [each]})
        assert process.poll() is None


_ENDS_FIRST = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
print("begun", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_alone_has_ended_is_not_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", _ENDS_FIRST], stdout=subprocess.PIPE)
    try:
        started = guard.started_at(child.pid)
        assert started is not None
        stat = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        assert not guard.is_gone(child.pid, started)
        child.kill()
        wait_until(lambda: guard.is_gone(child.pid, started))
    finally:
        child.kill()
        child.communicate()


# The process


@contextmanager
def agent_stand_in(folder: Path, lease_s: float) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.unit.agent.agent_stand_in", str(folder), str(lease_s)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()
        end_guard(folder)


def guard_pid(folder: Path) -> int:
    sign = guard.read_sign(folder)
    assert sign is not None
    assert isinstance(sign["pid"], int)
    return sign["pid"]


def end_guard(folder: Path) -> None:
    sign = guard.read_sign(folder)
    if sign is not None and dismiss_guard(folder, force=True):
        with suppress(ChildProcessError):
            os.waitpid(int(str(sign["pid"])), 0)


@pytest.mark.slow
def test_the_guard_stops_vms_of_a_killed_agent_when_the_lease_is_over(tmp_path: Path) -> None:
    vms = tmp_path / "vms"
    with agent_stand_in(tmp_path, lease_s=3.0) as agent:
        deadline = json.loads((tmp_path / "lease").read_text())["deadline"]
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait(PATIENCE_S)
        assert state_of(vms / "movable.json") == "running" or time.monotonic() >= deadline
        wait_until(lambda: state_of(vms / "movable.json") == "stopped")
        assert deadline <= time.monotonic() <= deadline + 5.0  # the stop limit that is promised
        assert state_of(vms / "homely.json") == "running"


@pytest.mark.slow
def test_the_guard_of_a_killed_agent_is_taken_over_by_the_next(tmp_path: Path) -> None:
    with agent_stand_in(tmp_path, lease_s=60.0) as agent:
        first = guard_pid(tmp_path)
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait(PATIENCE_S)
        with agent_stand_in(tmp_path, lease_s=60.0):
            assert guard_pid(tmp_path) == first
            second = subprocess.run(
                [sys.executable, "-m", guard.__name__, str(tmp_path)], timeout=PATIENCE_S
            )
            assert second.returncode == 0  # the folder is guarded already
            assert guard_pid(tmp_path) == first
            assert state_of(tmp_path / "vms" / "movable.json") == "running"


@pytest.mark.slow
def test_a_guard_told_to_leave_stays_until_nothing_needs_it(tmp_path: Path) -> None:
    path = write_vm(tmp_path, "vm-1", "running")
    watchdog = tmp_path / "watchdog"
    watchdog.touch()
    write_lease(tmp_path, time.monotonic() + 60.0, guard.boot_id())
    command = [sys.executable, "-m", guard.__name__, str(tmp_path), "--watchdog", str(watchdog)]
    with subprocess.Popen(command) as process:
        wait_until(lambda: guard.read_sign(tmp_path))
        assert dismiss_guard(tmp_path)
        write_lease(tmp_path, 0.0, guard.boot_id())
        wait_until(lambda: state_of(path) == "stopped")  # it does its duty meanwhile
        FolderFences(tmp_path).drop("vm-1")
        assert process.wait(PATIENCE_S) == 0
    assert watchdog.read_bytes().startswith(b"\0")
    assert watchdog.read_bytes().endswith(b"V")


def test_the_agent_counts_on_a_guard_only_while_it_gives_signs_of_life(tmp_path: Path) -> None:
    clock = HandClock(500.0)
    handle = ProcessGuard(tmp_path, clock=clock, start=False, stop_s=4.0)
    assert handle.stop_s() is None
    sign = {"pid": os.getpid(), "at": 500.0, "boot": guard.boot_id()}
    (tmp_path / guard.SIGN).write_text(json.dumps(sign))
    assert handle.stop_s() == 4.0
    clock.now = 500.0 + ALIVE_S
    assert handle.stop_s() is None
    (tmp_path / guard.SIGN).write_text(json.dumps({**sign, "boot": "earlier", "at": clock.now}))
    assert handle.stop_s() is None


def test_the_guard_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, roost.agent.fencing.guard; print([m for m in sys.modules if 'msgspec' in m])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
