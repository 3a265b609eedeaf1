"""The stage of `roost demo`: its folder, its context file, its port. Processes: tests/system."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from roost.app.childprocess import guards_below
from roost.app.demo import VirtualStage, free_port, stage
from roost.app.jobs import LOCAL_TYPES
from roost.base.clock import RealClock
from roost.base.errors import Conflict
from roost.model.job import Bootstrap, CloudMachine, Launch
from roost.providers.local import LocalProvider


def silent(_: str) -> None:
    """Say nothing."""


async def play(folder: Path, context: str | None, token: str = "roost_1_secret") -> None:
    """Do what the control plane does to the files, and leave."""
    async with stage(VirtualStage, folder, RealClock(), silent) as made:
        (made.folder / "admin-token").write_text(token + "\n")
        if context is not None:
            made.context_file.write_text(context)


def test_workers_that_were_rented_on_a_stage_end_with_it(tmp_path: Path) -> None:
    kind = LOCAL_TYPES[0]

    def command(launch: Launch, data: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        return ["sh", "-c", "sleep 600; true", str(data)], {}

    async def rent() -> CloudMachine:
        async with stage(VirtualStage, tmp_path, RealClock(), silent) as made:
            rented = LocalProvider(made.machines_folder, command, [kind], clock=RealClock())
            told = Bootstrap(machine="machine-1", server="", join_token="")
            launch = Launch(token="machine-1", type=kind, market="on_demand", bootstrap=told)
            assert (await rented.launch(launch)).state == "running"
        return await rented.describe("machine-1")

    assert asyncio.run(rent()).state == "gone"


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port(port) <= port + 100


def test_the_context_file_is_given_back(tmp_path: Path) -> None:
    file = tmp_path / "context.json"
    file.write_text("mine")
    asyncio.run(play(tmp_path, '{"token": "roost_1_secret"}'))
    assert file.read_text() == "mine"


def test_without_one_before_the_context_file_goes(tmp_path: Path) -> None:
    asyncio.run(play(tmp_path, '{"token": "roost_1_secret"}'))
    assert not (tmp_path / "context.json").exists()


def test_a_context_file_of_somebody_else_stays(tmp_path: Path) -> None:
    asyncio.run(play(tmp_path, "written by another server meanwhile"))
    assert (tmp_path / "context.json").read_text() == "written by another server meanwhile"


def test_what_a_killed_demo_left_is_not_given_back(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "admin-token").write_text("roost_0_old\n")
    (tmp_path / "demo" / "roost.db").write_text("old")
    (tmp_path / "context.json").write_text('{"token": "roost_0_old"}')
    asyncio.run(play(tmp_path, '{"token": "roost_1_secret"}'))
    assert not (tmp_path / "context.json").exists()
    assert not (tmp_path / "demo" / "roost.db").exists()


def test_one_demo_at_a_time_in_a_folder(tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(VirtualStage, tmp_path, RealClock(), silent):
            with pytest.raises(Conflict, match="another demo runs in"):
                await play(tmp_path, None)

    asyncio.run(run())


def test_no_guard_is_found_where_none_is(tmp_path: Path) -> None:
    assert guards_below(tmp_path) == []
