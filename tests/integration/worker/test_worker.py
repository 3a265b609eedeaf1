"""A worker on real processes: limits, signals, logs, files, restarts, and answers sent again."""

import asyncio
import errno
import hashlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from roost.base.backoff import BackOff
from roost.base.units import GIB, MIB
from roost.wire.workerlink import AttemptReport, InputOrder, OutputOrder
from roost.worker.run.plan import read_warden
from roost.worker.store import WorkerStore
from tests.integration.worker.standin import StandInPlane, assignment, working

Case = Callable[..., Coroutine[Any, Any, None]]


def asynchronous(case: Case) -> Callable[..., None]:
    """Run a case on an event loop of its own."""

    @wraps(case)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(case(*args, **kwargs))

    return run


def processes_with(mark: str) -> list[int]:
    """Return the processes that have a word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(entry.name))
    return found


@asynchronous
async def test_a_job_runs_and_says_how_it_ended(tmp_path: Path) -> None:
    plane = StandInPlane()
    script = "echo $ROOST_JOB $WORD; echo no >&2; cat parameters.json; env | wc -l"
    plane.assigned["job-1:1"] = assignment(
        "job-1:1", "sh", "-c", script, environment={"WORD": "hi"}, parameters={"x": 1}
    )
    async with working(plane, tmp_path / "w"):
        report = await plane.report("job-1:1")
        await plane.until(lambda: plane.logs["job-1:1", "stderr"] == b"no\n")
    assert (report.outcome, report.reason, report.exit_code) == ("completed", "", 0)
    assert plane.logs["job-1:1", "stdout"].startswith(b'job-1 hi\n{"x":1}')
    assert plane.polls[0].capacity is not None


@asynchronous
async def test_a_control_plane_that_is_away_is_asked_less_and_less_and_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plane = StandInPlane()
    # A log that grows is news all the time; it must not cut the back-off short.
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done"
    plane.assigned["job-1:1"] = assignment("job-1:1", "sh", "-c", script)
    slow = BackOff(first_s=0.2, most_s=5.0)
    caplog.set_level("INFO", "roost.worker")
    async with working(plane, tmp_path / "w", back_off=slow):
        await plane.until(lambda: plane.state("job-1:1") == "running")
        before, plane.lose_answers = len(plane.polls), 3
        await plane.until(lambda: plane.lose_answers == 0)
        began = asyncio.get_running_loop().time()
        await plane.until(lambda: len(plane.polls) > before + 3)
        waited = asyncio.get_running_loop().time() - began
        await plane.report("job-1:1")
    said = [each.message for each in caplog.records if "trying again" in each.message]
    assert len(said) == 1
    assert waited > 0.25, "the third wait is of 0.4 to 0.8 s"
    assert "the control plane answers again" in caplog.messages


@asynchronous
async def test_an_exit_code_a_signal_and_a_command_that_is_not_there(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.assigned = {
        "a:1": assignment("a:1", "sh", "-c", "exit 7"),
        "b:1": assignment("b:1", "sh", "-c", "kill -11 $$"),
        "c:1": assignment("c:1", "/no/such/command"),
    }
    async with working(plane, tmp_path / "w"):
        a, b, c = [await plane.report(name) for name in plane.assigned]
    assert (a.outcome, a.reason, a.exit_code) == ("failed", "exit_code", 7)
    assert (b.outcome, b.reason, b.signal) == ("failed", "signal", 11)
    assert (c.outcome, c.exit_code) == ("failed", 127)
    assert "/no/such/command" in c.message


@asynchronous
async def test_what_is_sent_again_changes_nothing(tmp_path: Path) -> None:
    """A lost answer, a report without acknowledgement, an assignment after its end: one run."""
    plane = StandInPlane()
    mark = tmp_path / "runs"
    one = assignment("j:1", "sh", "-c", f"echo run >> {mark}")
    plane.assigned["j:1"] = one
    plane.lose_answers = 2
    plane.acknowledges = False
    async with working(plane, tmp_path / "w"):
        await plane.report("j:1", count=3)
        plane.acknowledges = True
        await plane.until(lambda: plane.polls[-1].finished == [])
        before = len(plane.reports["j:1"])
        plane.again = [one, one]
        report = await plane.report("j:1", count=before + 1)
    assert report.outcome == "completed"
    assert len({each.run_ms for each in plane.reports["j:1"]}) == 1
    assert mark.read_text() == "run\n"


@pytest.mark.parametrize("groups", [True, False], ids=["groups", "rlimits"])
@asynchronous
async def test_a_job_that_forks_and_ignores_signals_is_ended_wholly(
    tmp_path: Path, groups: bool
) -> None:
    mark = f"stubborn-{tmp_path.name}-{groups}"
    script = (
        "import os,signal,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for each in range(4):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(1000)\n"
        "        os._exit(0)\n"
        "print('up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment("j:1", sys.executable, "-c", script, mark)
    async with working(plane, tmp_path / "w", groups=groups):
        await plane.until(lambda: plane.logs["j:1", "stdout"] == b"up\n")
        async with asyncio.timeout(20):  # those that fork and end are missed by one look
            while len(processes_with(mark)) < 5:
                await asyncio.sleep(0.02)
        plane.cancelled.add("j:1")
        report = await plane.report("j:1")
    assert (report.outcome, report.reason) == ("cancelled", "cancelled")
    assert processes_with(mark) == []


@asynchronous
async def test_the_run_limit_holds_and_waiting_does_not_count(tmp_path: Path) -> None:
    plane = StandInPlane()
    whole = {"cpu_milli": 4000}
    plane.assigned = {
        "a:1": assignment("a:1", "sleep", "1.2", **whole),
        "b:1": assignment("b:1", "sleep", "0.1", run_limit_s=1, **whole),
        "c:1": assignment("c:1", "sleep", "60", run_limit_s=1, **whole),
    }
    async with working(plane, tmp_path / "w"):
        a, b, c = [await plane.report(name) for name in plane.assigned]
    assert (a.outcome, b.outcome) == ("completed", "completed")
    assert (c.outcome, c.reason) == ("failed", "run_limit")
    assert 1000 <= c.run_ms < 10_000


@pytest.mark.parametrize("groups", [True, False], ids=["groups", "rlimits"])
@asynchronous
async def test_the_memory_limit_holds(tmp_path: Path, groups: bool) -> None:
    plane = StandInPlane()
    eats = "x = []\nwhile True: x.append(bytearray(16 << 20))"
    plane.assigned["j:1"] = assignment("j:1", sys.executable, "-c", eats, memory_bytes=128 * MIB)
    async with working(plane, tmp_path / "w", groups=groups):
        report = await plane.report("j:1")
    assert report.outcome == "failed"
    if groups:
        assert report.reason == "memory_limit"
    else:  # the kernel gives its processes no more, and Python says so
        assert b"MemoryError" in plane.logs["j:1", "stderr"] or report.reason == "memory_limit"
    assert report.memory_bytes <= 160 * MIB


@asynchronous
async def test_the_cpu_limit_holds(tmp_path: Path) -> None:
    """Two spinning processes within 300 millicores take a third of a core, not two."""
    plane = StandInPlane()
    spin = "(while :; do :; done) & (while :; do :; done)"
    plane.assigned["j:1"] = assignment("j:1", "sh", "-c", spin, cpu_milli=300, run_limit_s=2)
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
    assert report.reason == "run_limit"
    assert report.cpu_ms <= report.run_ms * 0.45


@asynchronous
async def test_a_file_beyond_the_disk_of_a_job_ends_it(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment(
        "j:1", "sh", "-c", "exec head -c 50000000 /dev/zero > big", disk_bytes=MIB
    )
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
        work = WorkerStore(tmp_path / "w").folder_of("j:1") / "work" / "big"
        assert not work.exists() or work.stat().st_size <= MIB
    assert (report.outcome, report.reason) == ("failed", "disk_full")


@asynchronous
async def test_a_gigabyte_of_output_is_counted_and_not_kept(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment(
        "j:1", "head", "-c", "1000000000", "/dev/zero", log_limit_bytes=300_000
    )
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
        await plane.until(lambda: ("j:1", "stdout") in plane.dropped)
    assert report.outcome == "completed"
    assert len(plane.logs["j:1", "stdout"]) == 300_000
    assert plane.dropped["j:1", "stdout"] == 1_000_000_000 - 300_000


@asynchronous
async def test_inputs_are_there_and_outputs_are_kept(tmp_path: Path) -> None:
    plane = StandInPlane()
    source = tmp_path / "a.txt"
    source.write_text("words\n")
    digest = "sha256:" + hashlib.sha256(b"words\n").hexdigest()
    plane.assigned["j:1"] = assignment(
        "j:1", "sh", "-c", "mkdir out; tr a-z A-Z < in/a.txt > out/b.txt",
        inputs=[InputOrder("in/a.txt", source.as_uri(), digest)],
        outputs=[OutputOrder("out/b.txt"), OutputOrder("out/c.txt", required=False)],
        outputs_to=(tmp_path / "store").as_uri(),
    )  # fmt: skip
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
    assert report.outcome == "completed"
    assert [each.name for each in report.outputs] == ["out/b.txt"]
    assert (tmp_path / "store/out/b.txt").read_text() == "WORDS\n"
    assert report.outputs[0].digest == "sha256:" + hashlib.sha256(b"WORDS\n").hexdigest()


@pytest.mark.parametrize(
    ("url", "digest", "says"),
    [
        ("file:///no/such/file", "", "No such file"),
        ("file:///etc/hostname", "sha256:00", "its digest is"),
        ("gopher://x/y", "", "is not a file:"),
        ("file:///etc/host%00name", "", "names no file"),
    ],
    ids=["missing", "digest", "scheme", "NUL"],
)
@asynchronous
async def test_an_input_that_is_missing_is_the_jobs_own_failure(
    tmp_path: Path, url: str, digest: str, says: str
) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment("j:1", "true", inputs=[InputOrder("a", url, digest)])
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
    assert (report.outcome, report.reason) == ("failed", "input_missing")
    assert says in report.message


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "a/../../../b", ""])
@asynchronous
async def test_no_input_leaves_the_folder_of_its_job(tmp_path: Path, name: str) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment(
        "j:1", "true", inputs=[InputOrder(name, "file:///etc/hostname")]
    )
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
    assert report.reason == "input_missing"


@asynchronous
async def test_a_link_out_of_the_folder_is_no_output(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment(
        "j:1", "ln", "-s", "/etc/passwd", "out",
        outputs=[OutputOrder("out")], outputs_to=(tmp_path / "store").as_uri(),
    )  # fmt: skip
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
    assert report.reason == "output_missing"
    assert not (tmp_path / "store").exists()


@asynchronous
async def test_a_store_that_is_down_is_our_failure_and_tried_again(tmp_path: Path) -> None:
    plane = StandInPlane()
    blocked = tmp_path / "store"
    blocked.write_text("a file where a folder should be")
    fields: dict[str, Any] = {"outputs": [OutputOrder("o")], "outputs_to": blocked.as_uri()}
    plane.assigned["j:1"] = assignment("j:1", "sh", "-c", "echo x > o", **fields)
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
        blocked.unlink()
        plane.assigned["j:2"] = assignment("j:2", "sh", "-c", "echo x > o", **fields)
        second = await plane.report("j:2")
    assert (report.outcome, report.reason, report.exit_code) == ("failed", "output_failed", 0)
    assert second.outcome == "completed"


@asynchronous
async def test_jobs_outlive_their_worker_and_the_next_one_reports_them(tmp_path: Path) -> None:
    plane, folder, mark = StandInPlane(), tmp_path / "w", tmp_path / "runs"
    plane.assigned = {
        "a:1": assignment("a:1", "sh", "-c", f"echo a >> {mark}; sleep 1; echo late; exit 3"),
        "b:1": assignment("b:1", "sh", "-c", f"echo b >> {mark}; sleep 0.1"),
    }
    async with working(plane, folder):
        await plane.until(lambda: plane.state("a:1") == "running")
        plane.lose_answers = 10**9  # nothing is acknowledged any more
        await plane.report("b:1")
    plane.reports.clear()
    plane.lose_answers = 0
    async with working(plane, folder):
        a, b = await plane.report("a:1"), await plane.report("b:1")
        await plane.until(lambda: plane.logs["a:1", "stdout"] == b"late\n")
    assert (a.exit_code, b.exit_code) == (3, 0)
    assert sorted(mark.read_text().split()) == ["a", "b"]


@asynchronous
async def test_a_job_whose_warden_is_killed_is_our_failure_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    plane = StandInPlane()
    mark = f"orphan-{tmp_path.name}"
    plane.assigned["j:1"] = assignment("j:1", "sh", "-c", "sleep 1000; true", mark)
    async with working(plane, tmp_path / "w"):
        await plane.until(lambda: plane.state("j:1") == "running")
        folder = WorkerStore(tmp_path / "w").folder_of("j:1")
        await plane.until(lambda: read_warden(folder) is not None)
        warden = read_warden(folder)
        assert warden is not None
        os.kill(warden.pid, signal.SIGKILL)
        report = await plane.report("j:1")
    assert (report.outcome, report.reason) == ("failed", "worker_failed")
    assert processes_with(mark) == []


@asynchronous
async def test_a_machine_that_is_taken_away_gives_back_what_waits_and_ends_what_runs(
    tmp_path: Path,
) -> None:
    plane, lasts = StandInPlane(), tmp_path / "lasts"
    lasts.touch()
    while_there = f"while [ -e {lasts} ]; do sleep 0.1; done"
    plane.assigned["a:1"] = assignment("a:1", "sh", "-c", while_there, cpu_milli=4000)
    plane.assigned["b:1"] = assignment("b:1", "true")  # there is no room: it waits
    async with working(plane, tmp_path / "w") as task:
        await plane.until(lambda: plane.state("a:1") == "running")
        await plane.until(lambda: plane.state("b:1") == "waiting")
        (tmp_path / "w/notice").write_text("soon")
        b = await plane.report("b:1")
        plane.assigned["c:1"] = assignment("c:1", "true")  # by a plan that did not know yet
        c = await plane.report("c:1")
        assert plane.state("a:1") == "running"
        lasts.unlink()
        a = await plane.report("a:1")
        plane.leave = True
        await asyncio.wait_for(task, 20)
    assert any(poll.notice == "reclaim" for poll in plane.polls)
    assert a.outcome == "completed"
    for each in (b, c):
        assert (each.outcome, each.reason) == ("failed", "machine_reclaimed")


@asynchronous
async def test_a_drained_worker_finishes_what_runs_gives_back_what_waits_and_leaves_when_told(
    tmp_path: Path,
) -> None:
    plane, lasts = StandInPlane(), tmp_path / "lasts"
    lasts.touch()
    while_there = f"while [ -e {lasts} ]; do sleep 0.1; done"
    plane.assigned["a:1"] = assignment("a:1", "sh", "-c", while_there)
    async with working(plane, tmp_path / "w") as task:
        await plane.until(lambda: plane.state("a:1") == "running")
        plane.drain = True
        plane.assigned["b:1"] = assignment("b:1", "true")
        b = await plane.report("b:1")
        assert plane.state("a:1") == "running"
        lasts.unlink()
        a = await plane.report("a:1")
        plane.leave = True
        await asyncio.wait_for(task, 20)
    assert a.outcome == "completed"
    assert (b.outcome, b.reason) == ("failed", "machine_reclaimed")


@asynchronous
async def test_a_worker_has_the_last_word_on_its_capacity(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.assigned = {
        "large:1": assignment("large:1", "true", memory_bytes=64 * GIB),
        "a:1": assignment("a:1", "sleep", "0.6", cpu_milli=3000),
        "b:1": assignment("b:1", "sleep", "0.6", cpu_milli=3000),
    }
    async with working(plane, tmp_path / "w"):
        large = await plane.report("large:1")
        await plane.until(lambda: plane.state("a:1") == "running")
        assert plane.state("b:1") == "waiting"
        b = await plane.report("b:1")
    assert large.reason == "worker_refused"
    assert b.outcome == "completed"


@asynchronous
async def test_what_is_ended_while_it_waits_is_reported_and_no_warden_has_it(
    tmp_path: Path,
) -> None:
    plane = StandInPlane()
    plane.acknowledges = False  # so its folder stays
    plane.assigned["a:1"] = assignment("a:1", "sleep", "60", cpu_milli=4000)
    async with working(plane, tmp_path / "w"):
        await plane.until(lambda: plane.state("a:1") == "running")
        plane.assigned["b:1"] = assignment("b:1", "true", cpu_milli=4000)
        await plane.until(lambda: plane.state("b:1") == "waiting")
        plane.cancelled.add("b:1")
        report = await plane.report("b:1")
        files = {each.name for each in (tmp_path / "w/attempts/b%3A1").iterdir()}
        plane.cancelled.add("a:1")
        await plane.report("a:1")
    assert (report.outcome, report.reason) == ("cancelled", "cancelled")
    assert files == {"assignment.json", "cancel", "work"}


@asynchronous
async def test_what_was_never_known_is_reported_as_cancelled(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.cancelled.add("ghost:1")
    async with working(plane, tmp_path / "w"):
        report = await plane.report("ghost:1")
    assert (report.outcome, report.reason) == ("cancelled", "cancelled")


@asynchronous
async def test_an_image_without_an_engine_is_refused_by_this_machine(tmp_path: Path) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment("j:1", "true", image="registry.test/x@sha256:00")
    async with working(plane, tmp_path / "w"):
        report = await plane.report("j:1")
    assert report.reason == "worker_refused"


@asynchronous
async def test_a_warden_has_one_attempt_after_the_other(tmp_path: Path) -> None:
    plane = StandInPlane()
    names = [f"j.{index}:1" for index in range(6)]
    for name in names:  # the first leaves somebody behind: what descends is of one attempt only
        script = "setsid sleep 1000 & echo $PPID" if name == names[0] else "echo $PPID"
        plane.assigned[name] = assignment(name, "sh", "-c", script, cpu_milli=4000)
    async with working(plane, tmp_path / "w"):
        reports = [await plane.report(name) for name in names]
        await plane.until(lambda: all(plane.logs[name, "stdout"] for name in names))
    assert {each.outcome for each in reports} == {"completed"}
    assert len({plane.logs[name, "stdout"] for name in names}) == 1, "each had a warden of its own"


@asynchronous
async def test_a_signal_that_comes_late_does_not_end_the_next_attempt_of_a_warden(
    tmp_path: Path,
) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment("j:1", "sh", "-c", "sleep 0.5; exit 4")
    async with working(plane, tmp_path / "w"):
        folder = WorkerStore(tmp_path / "w").folder_of("j:1")
        await plane.until(lambda: read_warden(folder) is not None)
        warden = read_warden(folder)
        assert warden is not None
        os.kill(warden.pid, signal.SIGTERM)
        report = await plane.report("j:1")
    assert (report.reason, report.exit_code) == ("exit_code", 4)


@pytest.mark.parametrize("memory", [4 * MIB, 64 * MIB], ids=["tiny", "usual"])
@asynchronous
async def test_a_job_is_in_its_group_from_its_first_instruction_on(
    tmp_path: Path, memory: int
) -> None:
    plane = StandInPlane()
    plane.assigned["j:1"] = assignment("j:1", "cat", "/proc/self/cgroup", memory_bytes=memory)
    async with working(plane, tmp_path / "w"):
        if plane.polls and plane.polls[0].capacity and plane.polls[0].capacity.limits != "cgroup":
            pytest.skip("no control groups here: run as root, or in a unit with Delegate=yes")
        report = await plane.report("j:1")
        await plane.until(lambda: b"memory" in plane.logs["j:1", "stdout"])
    name = WorkerStore(tmp_path / "w").folder_of("j:1").name
    held = [line for line in plane.logs["j:1", "stdout"].decode().splitlines() if name in line]
    assert report.outcome == "completed"
    assert {"cpu", "memory"} <= {each.split(":")[1] for each in held} or "0::" in held[0]


def test_reports_outlive_the_worker_and_their_files_stay_short_and_are_never_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.worker.store.MOST_REPORTS", 10)
    kept = WorkerStore(tmp_path / "w")
    kept.open()
    path, old = tmp_path / "w/reports.jsonl", tmp_path / "w/reports.old.jsonl"
    last = 0
    for number in range(55):
        kept.finish(AttemptReport(attempt=f"j.{number}:1", outcome="completed"))
        if number == 39:
            last = path.stat().st_ino
    kept.close()
    assert old.stat().st_ino == last, "a file that was full is not the one that is kept"
    path.write_bytes(path.read_bytes() + b'{"attempt": "cut o')  # killed while it wrote
    again = WorkerStore(tmp_path / "w")
    again.open()
    again.finish(AttemptReport(attempt="last:1", outcome="failed", reason="signal"))
    names = [each.attempt for each in again.reports()]
    again.close()
    assert names == [f"j.{number}:1" for number in range(46, 55)] + ["last:1"]
    assert len(path.read_bytes().splitlines()) <= 23
    assert len(old.read_bytes().splitlines()) <= 23


def test_a_report_after_one_that_the_disk_took_in_part_is_kept(tmp_path: Path) -> None:
    kept = WorkerStore(tmp_path / "w")
    kept.open()
    kept.finish(AttemptReport(attempt="first:1", outcome="completed"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (tmp_path / "w/reports.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            kept.finish(AttemptReport(attempt="torn:1", outcome="completed"))
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            kept.finish(AttemptReport(attempt="none:1", outcome="completed"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept.finish(AttemptReport(attempt="after:1", outcome="completed"))
    names = [each.attempt for each in kept.reports()]
    kept.close()
    assert names == ["first:1", "after:1"]
