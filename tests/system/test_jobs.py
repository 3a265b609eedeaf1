"""Jobs as processes: a real server, real workers that it starts, one of them killed on the way."""

import os
import signal
from pathlib import Path

import pytest

from roost.client import Client
from roost.wire.jobs import CreatePool, SubmitJobs
from tests.system.processes import Site, eventually

pytestmark = pytest.mark.slow


def test_a_sweep_runs_on_local_workers_and_the_pool_goes_back_to_nothing(site: Site) -> None:
    server = site.serve()
    with site.client(server) as client:
        client.create_pool(
            CreatePool(name="default", provider="local", max_machines=2, idle_grace_s=1)
        )

        done = list(client.jobs.map(["sh", "-c", "echo $(( {item} * 2 )); exit {item}"], [0, 3, 0]))

        assert [(each.state, each.exit_code) for each in done] == [
            ("completed", 0),
            ("failed", 3),
            ("completed", 0),
        ]
        assert [each.stdout for each in done] == ["0\n", "6\n", "0\n"]
        eventually("the pool is empty", lambda: not client.get_pool("default").machines)
    assert server.stop() == 0


def test_a_job_whose_worker_is_killed_ends_all_the_same(site: Site) -> None:
    server = site.serve()
    with site.client(server) as client:
        client.create_pool(
            CreatePool(name="default", provider="local", max_machines=2, idle_grace_s=1)
        )
        made = client.submit_jobs(SubmitJobs(command=["sleep", "3"]))
        eventually("it runs", lambda: client.get_job(made.id).state == "running")

        (folder,) = Path(site.folder).glob("**/machines/*/machine.json")
        for pid in _workers(folder.parent):
            os.kill(pid, signal.SIGKILL)

        eventually(
            "it has ended",
            lambda: client.get_array(made.id).finished_at is not None,
            within_s=150,
        )
        assert client.get_array(made.id).state == "completed"
        _none_is_left(client)
    assert server.stop() == 0


def _none_is_left(client: Client) -> None:
    eventually("the pool is empty", lambda: not client.get_pool("default").machines)


def _workers(folder: Path) -> list[int]:
    """Return the processes that have a machine's folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(int(entry.name))
    return found
