"""Jobs under another user than their worker's: what they have, what they are kept from."""

import asyncio
import os
import pwd
import subprocess
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from roost.wire.workerlink import AttemptReport, InputOrder, OutputOrder
from roost.worker.containers import Engine
from roost.worker.files import urls
from roost.worker.files.outputs import keep_outputs
from roost.worker.run.jobuser import (
    JobUser,
    NoSuchUse,
    find_user,
    give_folder,
    open_way,
    take_folder,
)
from tests.integration.worker.standin import StandInPlane, assignment, working

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user's jobs")


def run(tmp_path: Path, script: str, **fields: Any) -> tuple[AttemptReport, str]:
    """Run a script as nobody; return the report and what it wrote."""

    async def case() -> tuple[AttemptReport, str]:
        plane, user = StandInPlane(), find_user("nobody")
        (tmp_path / "w/attempts").mkdir(parents=True, exist_ok=True)
        for each in ("w", "w/attempts"):
            (tmp_path / each).chmod(0o700)
        (tmp_path / "w/credential").write_text("secret")
        (tmp_path / "w/credential").chmod(0o600)
        open_way(tmp_path / "w/attempts", user)
        plane.assigned["j:1"] = assignment("j:1", "sh", "-c", script, **fields)
        async with working(plane, tmp_path / "w", user=user):
            report = await plane.report("j:1")
            await plane.until(lambda: "end" in plane.logs["j:1", "stdout"].decode())
        return report, plane.logs["j:1", "stdout"].decode()

    return asyncio.run(case())


def test_a_job_is_its_user_wholly_and_none_of_roots_rights_is_left(tmp_path: Path) -> None:
    report, said = run(
        tmp_path, "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm)' /proc/self/status; echo end"
    )
    lines = {line.split(":")[0]: line.split()[1:] for line in said.splitlines() if ":" in line}
    nobody = pwd.getpwnam("nobody")
    assert report.outcome == "completed"
    assert lines["Uid"] == [str(nobody.pw_uid)] * 4
    assert lines["Gid"] == [str(nobody.pw_gid)] * 4
    assert lines["Groups"] == [str(nobody.pw_gid)]
    assert {int(lines[each][0], 16) for each in ("CapEff", "CapPrm")} == {0}


def test_a_job_reads_its_inputs_leaves_outputs_and_never_sees_the_credential(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").write_text("given")
    (tmp_path / "in").chmod(0o644)
    script = (
        f"cat {tmp_path}/w/credential && echo READ; ls {tmp_path}/w/attempts && echo LISTED; "
        "kill -9 $PPID && echo KILLED; cp $HOME/a out; echo end"
    )
    report, said = run(
        tmp_path, script,
        inputs=[InputOrder("a", f"file://{tmp_path}/in")], outputs=[OutputOrder("out")],
        outputs_to=f"file://{tmp_path}/kept", own_store=True,
    )  # fmt: skip
    assert (report.outcome, said) == ("completed", "end\n")
    assert (tmp_path / "kept/out").read_text() == "given"


def test_a_program_that_the_user_may_not_run_is_said_so(tmp_path: Path) -> None:
    async def case() -> AttemptReport:
        plane, user = StandInPlane(), find_user("nobody")
        (tmp_path / "only-root").write_text("#!/bin/sh\n")
        (tmp_path / "only-root").chmod(0o700)
        plane.assigned["j:1"] = assignment("j:1", str(tmp_path / "only-root"))
        async with working(plane, tmp_path / "w", user=user):
            return await plane.report("j:1")

    report = asyncio.run(case())
    assert (report.outcome, report.exit_code) == ("failed", 127)
    assert "Permission denied" in report.message


def test_another_name_of_a_file_that_the_job_may_not_read_is_no_output(tmp_path: Path) -> None:
    async def case() -> AttemptReport:
        plane, user = StandInPlane(), find_user("nobody")
        plane.assigned["j:1"] = assignment(
            "j:1", "sh", "-c", "touch ready; while ! [ -e out ]; do sleep 0.05; done",
            outputs=[OutputOrder("out")], outputs_to=f"file://{tmp_path}/kept", own_store=True,
        )  # fmt: skip
        async with working(plane, tmp_path / "w", user=user):
            work = tmp_path / "w/attempts/j%3A1/work"
            async with asyncio.timeout(30):
                while not (work / "ready").exists():
                    await asyncio.sleep(0.02)
            (tmp_path / "secret").write_text("root's")
            os.link(tmp_path / "secret", work / "out")  # as a kernel without protected links lets
            return await plane.report("j:1")

    report = asyncio.run(case())
    assert (report.outcome, report.reason) == ("failed", "output_missing")
    assert not (tmp_path / "kept").exists()


def test_a_job_that_has_ended_has_no_folder_of_its_own_any_more(tmp_path: Path) -> None:
    async def case() -> None:
        plane, user = StandInPlane(), find_user("nobody")
        plane.acknowledges = False  # so the folder stays
        plane.assigned["j:1"] = assignment("j:1", "sh", "-c", "stat -c %U . > owner")
        async with working(plane, tmp_path / "w", user=user):
            await plane.report("j:1")
            folder = tmp_path / "w/attempts/j%3A1"
            assert (folder / "work/owner").read_text() == "nobody\n"
            assert [each.stat().st_mode & 0o777 for each in (folder, folder / "work")] == [
                0o700
            ] * 2
            assert (folder / "work").stat().st_uid == 0

    asyncio.run(case())


def test_what_a_job_left_is_out_of_reach_of_its_user_while_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a/work").mkdir(parents=True)
    user = find_user("nobody")
    give_folder(tmp_path / "a", tmp_path / "a/work", user)
    assert (tmp_path / "a/work").stat().st_uid == user.uid

    take_folder(tmp_path / "a", tmp_path / "a/work")

    for each in ("a", "a/work"):
        found = (tmp_path / each).stat()
        assert (found.st_uid, found.st_mode & 0o777) == (0, 0o700)


@pytest.mark.parametrize("name", ["root", "nobody-of-this-name"])
def test_a_user_who_would_not_do_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(NoSuchUse, match=name):
        find_user(name)


def test_no_way_is_opened_through_a_folder_that_is_not_the_workers_own(tmp_path: Path) -> None:
    (tmp_path / "of-another/w").mkdir(parents=True)
    (tmp_path / "of-another").chmod(0o700)
    os.chown(tmp_path / "of-another", 1, 1)
    with pytest.raises(NoSuchUse, match="of-another"):
        open_way(tmp_path / "of-another/w", JobUser(65534, 65534, [65534]))


@pytest.mark.parametrize("image", ["", "docker.io/library/alpine"], ids=["command", "container"])
def test_an_input_that_the_user_may_not_read_is_not_read_for_it(tmp_path: Path, image: str) -> None:
    async def case() -> AttemptReport:
        plane, user = StandInPlane(), find_user("nobody")
        (tmp_path / "secret").write_text("root's")
        (tmp_path / "secret").chmod(0o600)
        (tmp_path / "w/attempts").mkdir(parents=True, mode=0o700)
        (tmp_path / "w").chmod(0o700)
        open_way(tmp_path / "w/attempts", user)
        plane.assigned["j:1"] = assignment(
            "j:1", "cat", "a", image=image,
            inputs=[InputOrder("a", (tmp_path / "secret").as_uri())],
        )  # fmt: skip
        engine = Engine("podman", ("true",))  # it has every image
        async with working(plane, tmp_path / "w", user=user, engine=engine):
            return await plane.report("j:1")

    report = asyncio.run(case())
    assert (report.outcome, report.reason) == ("failed", "input_missing")
    assert "Permission denied" in report.message


def test_what_a_user_reads_is_read_whole_and_no_further_than_it_may(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    user, given, to = find_user("nobody"), tmp_path / "given", tmp_path / "to"
    open_way(tmp_path, user)
    given.write_bytes(bytes(range(256)) * 20_000)
    given.chmod(0o644)
    digest = "sha256:" + sha256(given.read_bytes()).hexdigest()
    assert urls.fetch(given.as_uri(), to, most=2**30, user=user) == digest
    assert to.read_bytes() == given.read_bytes()
    os.truncate(given, 2**40)  # nobody reads that to its end
    with pytest.raises(urls.TooMuch):
        urls.fetch(given.as_uri(), to, most=3_000_000, user=user)
    with pytest.raises(urls.Denied, match="No such file"):
        urls.fetch((tmp_path / "none").as_uri(), to, most=1, user=user)


@pytest.mark.parametrize("user", [None, "nobody"], ids=["own", "other"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, user: str | None) -> None:
    """Whoever opened a pipe would wait in a thread of the worker until somebody wrote to it."""
    tmp_path.chmod(0o755)
    open_way(tmp_path, find_user("nobody"))
    pipe, who = tmp_path / "pipe", None if user is None else find_user(user)
    os.mkfifo(pipe)
    pipe.chmod(0o644)
    ended = list[Exception]()

    def fetch() -> None:
        try:
            urls.fetch(pipe.as_uri(), tmp_path / "to", most=1, user=who)
        except (urls.Missing, urls.Denied) as error:
            ended.append(error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(20)
    waits = thread.is_alive()
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # whoever waits is let go
    assert not waits
    assert "not a file" in str(*ended)


@pytest.mark.parametrize("image", ["", "docker.io/library/alpine"], ids=["command", "container"])
def test_root_writes_no_output_to_a_folder_that_the_job_has_named(
    tmp_path: Path, image: str
) -> None:
    async def case() -> AttemptReport:
        plane, user = StandInPlane(), find_user("nobody")
        plane.assigned["j:1"] = assignment(
            "j:1", "touch", "cron", image=image,
            outputs=[OutputOrder("cron")], outputs_to=f"file://{tmp_path}/cron.d",
        )  # fmt: skip
        engine = Engine("podman", ("true",))  # it has every image
        async with working(plane, tmp_path / "w", user=user, engine=engine):
            return await plane.report("j:1")

    report = asyncio.run(case())
    assert (report.outcome, report.reason) == ("failed", "output_failed")
    assert "--job-user" in report.message
    assert report.exit_code is None, "it ran, though nothing of it could be kept"
    assert not (tmp_path / "cron.d").exists()


def test_nothing_of_the_machine_is_given_away_by_who_gets_in_before_all_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job of the same user knows the name, and puts a link into the way."""
    work, etc = tmp_path / "a/work", tmp_path / "etc"
    for name in ("one", "other"):
        for folder in (work / "in", etc):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("of this folder")
    user, chown = find_user("nobody"), os.chown
    open_way(tmp_path, user)

    def and_then_another_job_acts(path: str | Path, uid: int, gid: int, **given: Any) -> None:
        chown(path, uid, gid, **given)
        if Path(path).name in ("one", "other"):
            script = 'cd "$0" && mv in was && ln -s "$1" in'
            subprocess.run(
                ["sh", "-c", script, work, etc], stderr=subprocess.DEVNULL, check=False,
                user=user.uid, group=user.gid, extra_groups=user.groups,
            )  # fmt: skip

    monkeypatch.setattr(os, "chown", and_then_another_job_acts)
    give_folder(tmp_path / "a", work, user)
    assert {each.stat().st_uid for each in etc.iterdir()} == {0}
    assert {each.stat().st_uid for each in (work / "in").iterdir()} == {user.uid}


def test_a_folder_that_was_given_before_the_worker_was_killed_is_made_anew(tmp_path: Path) -> None:
    """Its job never began: whoever got in meanwhile has laid a link where an input is written."""
    (tmp_path / "target").write_text("root's")
    (tmp_path / "in").write_text("given")
    work = tmp_path / "w/attempts/j%3A1/work"
    work.mkdir(parents=True)
    give_folder(work.parent, work, find_user("nobody"))
    (work / ".a.part").symlink_to(tmp_path / "target")
    inputs = [InputOrder("a", (tmp_path / "in").as_uri())]
    tmp_path.chmod(0o755)
    report, said = run(tmp_path, "cat a; ls -A; echo end", inputs=inputs)
    assert (tmp_path / "target").read_text() == "root's"
    assert (report.outcome, said) == ("completed", "givena\nend\n")


def test_an_output_is_the_file_that_was_looked_at_whatever_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job of the same user may have a handle of a folder in the folder."""
    (tmp_path / "secret").write_text("root's")
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "work/sub/out").write_text("made")
    user, store = find_user("nobody"), urls.store
    for each in ("work/sub/out", "work/sub"):
        os.chown(tmp_path / each, user.uid, user.gid)
    handle = os.open(tmp_path / "work/sub", os.O_DIRECTORY)

    def after_it_was_swapped(source: Path, url: str) -> str:
        os.symlink(tmp_path / "secret", "other", dir_fd=handle)
        os.replace("other", "out", src_dir_fd=handle, dst_dir_fd=handle)
        return store(source, url)

    monkeypatch.setattr(urls, "store", after_it_was_swapped)
    [kept] = keep_outputs(
        tmp_path / "work", [OutputOrder("sub/out")], (tmp_path / "kept").as_uri(),
        ended_well=True, owner=user.uid,
    )  # fmt: skip
    os.close(handle)
    assert (tmp_path / "kept/sub/out").read_text() == "made"
    assert kept.bytes == 4


def test_folders_are_given_beside_the_polls_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may hold a hundred thousand files, and the poll is the heartbeat."""
    threads = []

    def give(folder: Path, work: Path, user: JobUser) -> None:
        threads.append(threading.current_thread())
        give_folder(folder, work, user)

    monkeypatch.setattr("roost.worker.attempts.give_folder", give)
    report, _ = run(tmp_path, "echo end")
    assert report.outcome == "completed"
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
