"""`roost demo` as a newcomer runs it: it shows all its parts, and leaves nothing running."""

import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.processes import ROOST, Process, eventually, free_port

pytestmark = pytest.mark.slow

LIMIT_S = 240.0


class Demo(Process):
    """A demo in a folder of its own; standard output and error are in its log."""

    def __init__(self, folder: Path, *words: str, **more: str) -> None:
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "SCHEDULING_"))}
        self.environment = kept | {"NO_COLOR": "1", "COLUMNS": "100"} | more
        words = (str(ROOST), "demo", "--port", str(free_port()), *words)
        super().__init__(list(words), folder / "demo.log", self.environment)

    def roost(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as in a second terminal: in the same folder, with nothing said."""
        return subprocess.run(
            [str(ROOST), *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def wait_for(self, said: str) -> str:
        """Wait until it has said something; return all it has said."""

        def heard() -> str | None:
            if said in self.log():
                return self.log()
            assert self.exit_code is None, self.log()
            return None

        return eventually(f"the demo says {said!r}", heard, LIMIT_S)

    def finish(self) -> int:
        """Wait for its end and return its exit code."""
        eventually("the demo has ended", lambda: self.exit_code is not None, LIMIT_S)
        return self.wait()


def processes_of(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [line] if str(folder) in line else []
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder, and show that nothing of it runs afterwards."""
    yield tmp_path
    assert processes_of(tmp_path) == []


@pytest.fixture
def started() -> Iterator[list[Demo]]:
    """Collect demos; one that a failed test leaves is asked to end, and ends all its own."""
    demos: list[Demo] = []
    yield demos
    for demo in demos:
        if demo.exit_code is None:
            demo.stop()


def test_the_tour_shows_every_part_and_ends_by_itself(folder: Path, started: list[Demo]) -> None:
    (folder / ".roost").mkdir()
    mine = folder / ".roost" / "context.json"
    mine.write_text('{"server": "http://127.0.0.1:1"}')
    demo = Demo(folder, ONCE="1")
    started.append(demo)
    demo.wait_for("2. A batch")
    assert len(processes_of(folder)) == 4  # control plane, agents, agent and guard of the victim
    assert demo.finish() == 0, demo.log()
    said = demo.log()
    for part in (
        "20 hosts are online: 7 in north, 7 in south, 6 in west.",
        "200 of 200 placed and durable",
        "least_loaded",
        "fragmentation",
        "warehouse-1 fits on no host  (12 cores, 24 GiB, 100 GiB disk; insufficient_resources)",
        "smallest fix: uncordon host-07",
        "it is running on host-07.",
        "host-20   is suspect",
        "host-20   is offline",
        "host-20   is fenced  lease: no renewal for",
        "runs again",
        "The guard has stopped the old copies: 239 VMs run, none of them twice.",
        "are shown as unknown.",
        "Counted on the disks of all hosts: 239 VMs run, none of them twice.",
        "all is well.",
        "Everything has ended",
    ):
        assert part in said, said
    assert all(len(line) <= 100 for line in said.splitlines())
    assert processes_of(folder) == []
    assert mine.read_text() == '{"server": "http://127.0.0.1:1"}'


def test_it_serves_a_second_terminal_until_it_is_interrupted(
    folder: Path, started: list[Demo]
) -> None:
    demo = Demo(folder, "--serve", "-o", "json")
    started.append(demo)
    log = demo.wait_for("\n}\n")
    summary = json.loads(log[log.index("{") :])
    assert summary["hosts"]["online"] == 20
    assert len(summary["strategies"]) >= 10
    assert summary["killed"]["recovered"]
    assert summary["killed"]["unknown"] == summary["back"]["running"]
    assert summary["back"]["destroyed"] == len(summary["killed"]["recovered"])
    assert summary["running_copies"]["twice"] == 0
    assert summary["doctor"]["ok"]

    size = ("--cpu", "2", "--memory", "4GiB", "--disk", "20GiB")
    made = demo.roost("vm", "create", "web-1", *size, "--wait")
    assert made.returncode == 0, made.stderr
    assert "web-1 is on host-" in made.stdout
    assert "why host-" in made.stdout
    listed = json.loads(demo.roost("vm", "list", "--name", "web-1", "-o", "json").stdout)
    assert [vm["state"] for vm in listed["vms"]] == ["running"]

    second = Demo(folder, "--once")
    started.append(second)
    assert second.finish() == 4
    assert "another demo runs in" in second.log()

    demo.signal(signal.SIGINT)
    assert demo.finish() == 0, demo.log()
    assert processes_of(folder) == []
    assert not (folder / ".roost" / "context.json").exists()


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("moment", "sign"),
    [
        ("roost demo:", signal.SIGINT),
        ("1. Hosts", signal.SIGHUP),
        ("kill -9", signal.SIGTERM),
    ],
    ids=["at the start", "while hosts join", "with a host dead"],
)
def test_an_interrupted_demo_leaves_nothing_running(
    folder: Path, started: list[Demo], moment: str, sign: signal.Signals
) -> None:
    demo = Demo(folder, "--once")
    started.append(demo)
    demo.wait_for(moment)
    demo.signal(sign)
    assert demo.finish() == 130, demo.log()
    assert processes_of(folder) == []


def test_the_demo_of_the_analysis_places_a_vm_that_promises_would_have_put_wrong(
    folder: Path, started: list[Demo]
) -> None:
    demo = Demo(folder, "--once", "--analysis", "-o", "json")
    started.append(demo)
    assert demo.finish() == 0, demo.log()
    text = demo.log()
    told = json.loads(text[text.index("{") :])
    assert told["least_loaded"] == told["least_loaded"] | {"host": "host-01", "short": True}
    assert told["metrics_based"] == told["metrics_based"] | {"host": "host-02", "short": False}
    assert told["placed"] == "host-02"
    assert told["report"] == {"vms": 15, "groups": 2}


@pytest.mark.turns(2)
@pytest.mark.parametrize("form", ["json", "table"])
def test_the_demo_of_jobs_sweeps_on_workers_of_which_one_is_killed(
    folder: Path, started: list[Demo], form: str
) -> None:
    demo = Demo(folder, "--jobs", "-o", form, ONCE="1")
    started.append(demo)
    assert demo.finish() == 0, demo.log()
    said = demo.log()
    assert processes_of(folder) == []
    if form == "table":
        for part in ("grown to 3 machines", "$ kill -9", "silent for 15 s", "0 machines and costs"):
            assert part in said, said
        assert all(len(line) <= 100 for line in said.splitlines())
        return
    told = json.loads(said[said.index("{") :])
    assert told["grown"] == 3
    assert told["again"]["attempts"] == 2
    assert told["again"]["why"] == "worker_silent"
    assert told["again"]["machine"] != told["killed"]["machine"]
    assert len(told["results"]) == 16
    assert told["results"]["4"] == pytest.approx(math.log(2), abs=0.01)
    assert told["results"]["2.8"] == pytest.approx(math.log(0.8), abs=0.001)  # |2 - r|
    assert told["bill"] == told["bill"] | {"left": 0, "completed": 16}
    assert told["bill"]["machines"] >= 3
    assert 0 < told["bill"]["jobs_micro"] <= told["bill"]["rent_micro"]


def test_a_jobs_demo_that_is_ended_half_way_leaves_no_worker(
    folder: Path, started: list[Demo]
) -> None:
    demo = Demo(folder, "--jobs", "--once")
    started.append(demo)
    demo.wait_for("kill -9")
    demo.signal(signal.SIGTERM)
    assert demo.finish() == 130, demo.log()
    assert processes_of(folder) == []
