"""Outputs fetched through the server: files of its own store, of the attempt itself, no others."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest

from roost.base.errors import NotFound
from roost.parts.access import Principal
from roost.wire import jobs as w
from roost.wire.workerlink import Assignment, OutputKept
from tests.integration.jobs.rig import MEMBER, OPERATOR, Process, Rig, run

OTHER = Principal("otto", "member", project="other")
CONTENT = bytes(range(256)) * 40


def kept_as(name: str, url: str) -> OutputKept:
    return OutputKept(name, url, len(CONTENT), f"sha256:{sha256(CONTENT).hexdigest()}")


async def finished(
    rig: Rig,
    store: Path,
    name: str,
    left: Callable[[Assignment, Path], OutputKept],
    **given: object,
) -> str:
    """Run a job that keeps a file, as its worker says; return the job."""
    rig.process = Process(rig.store, rig.clock, rig.clouds, "two", outputs=store)
    await rig.pool()

    def ending(told: Assignment) -> dict[str, object]:
        folder = store / "default" / told.attempt
        folder.mkdir(parents=True)
        return {"outcome": "completed", "exit_code": 0, "outputs": [left(told, folder)]}

    rig.ending = ending
    made = await rig.submit(outputs=[w.OutputBody(name=name)], **given)
    await rig.settle()
    assert (await rig.job(made.id)).state == "completed"
    return made.id


def left_well(name: str) -> Callable[[Assignment, Path], OutputKept]:
    """Leave a file as workers do."""

    def left(told: Assignment, folder: Path) -> OutputKept:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(CONTENT)
        return kept_as(name, f"{told.outputs_to}/{quote(name)}")

    return left


async def read(rig: Rig, job: str, name: str, who: Principal = OPERATOR, limit: int = 999) -> bytes:
    """Read a whole output, piece by piece."""
    data = b""
    while True:
        asked = w.ReadOutput(name=name, start=len(data), limit=limit)
        piece = await rig.process.desk.output(job, asked, who)
        assert len(piece.data) <= limit
        assert (piece.start, piece.size) == (len(data), len(CONTENT))
        data += piece.data
        assert piece.next == len(data)
        if piece.ended:
            return data


@pytest.mark.parametrize("name", ["result", "sub/a b%20ü.bin"])
def test_an_output_comes_whole_in_pieces_of_any_size(
    database_url: str, tmp_path: Path, name: str
) -> None:
    async def test(rig: Rig) -> None:
        job = await finished(rig, tmp_path, name, left_well(name))
        for limit in (7000, len(CONTENT), len(CONTENT) + 1, 999):
            assert await read(rig, job, name, limit=limit) == CONTENT
        assert await read(rig, job, name, MEMBER) == CONTENT
        beyond = w.ReadOutput(name=name, start=2**40)
        piece = await rig.process.desk.output(job, beyond, OPERATOR)
        assert (piece.data, piece.ended) == (b"", True)
        with pytest.raises(NotFound, match="there is no job"):
            await read(rig, job, name, OTHER)
        with pytest.raises(NotFound, match="has kept no 'another'"):
            await read(rig, job, "another")

    run(database_url, test)


def test_an_output_in_another_store_is_said_to_be_there(sqlite_url: str, tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        url = "s3://bucket/here/result"
        job = await finished(
            rig, tmp_path, "result", lambda told, folder: kept_as("result", url),
            outputs_to="s3://bucket/here",
        )  # fmt: skip
        with pytest.raises(NotFound, match="not in this server's own store") as caught:
            await read(rig, job, "result")
        assert url in (caught.value.hint or "")

    run(sqlite_url, test)


def _another_s(told: Assignment, folder: Path) -> OutputKept:
    return kept_as("result", f"{folder.parents[1].as_uri()}/other/job-x.0:1/result")


def _above(told: Assignment, folder: Path) -> OutputKept:
    return kept_as("../../../secret", f"{told.outputs_to}/../../../secret")


def _dotted(told: Assignment, folder: Path) -> OutputKept:
    return kept_as("result", f"{told.outputs_to}/../../../secret")


def _link(told: Assignment, folder: Path) -> OutputKept:
    (folder / "result").symlink_to(folder.parents[2] / "secret")
    return kept_as("result", f"{told.outputs_to}/result")


def _pipe(told: Assignment, folder: Path) -> OutputKept:
    os.mkfifo(folder / "result")
    return kept_as("result", f"{told.outputs_to}/result")


def _folder(told: Assignment, folder: Path) -> OutputKept:
    (folder / "result").mkdir()
    return kept_as("result", f"{told.outputs_to}/result")


def _linked_attempt(told: Assignment, folder: Path) -> OutputKept:
    folder.rmdir()
    folder.symlink_to(folder.parents[1] / "other/job-x.0:1")
    return kept_as("result", f"{told.outputs_to}/result")


def _nothing(told: Assignment, folder: Path) -> OutputKept:
    return kept_as("result", f"{told.outputs_to}/result")


@pytest.mark.parametrize(
    "left", [_another_s, _above, _dotted, _link, _pipe, _folder, _linked_attempt, _nothing]
)
def test_what_a_worker_says_or_links_to_opens_no_other_file(
    sqlite_url: str, tmp_path: Path, left: Callable[[Assignment, Path], OutputKept]
) -> None:
    async def test(rig: Rig) -> None:
        store = tmp_path / "outputs"
        (tmp_path / "secret").write_bytes(CONTENT)
        (store / "other/job-x.0:1").mkdir(parents=True)
        (store / "other/job-x.0:1/result").write_bytes(CONTENT)
        job = await finished(rig, store, "result", left)
        (said,) = (await rig.job(job)).outputs
        for name in {"result", said.name}:
            with pytest.raises(NotFound):
                await read(rig, job, name)

    run(sqlite_url, test)
