"""Jobs as processes: a real server, real workers that it starts, one of them killed on the way."""

import os
import signal
from hashlib import sha256

import pytest

from roost.client import Client
from roost.wire.jobs import CreatePool, OutputBody, SubmitJobs
from tests.system.processes import Site, eventually, workers_in

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
        _files_go_in_and_out(site)
        _what_is_kept_is_fetched(site, client)
        eventually("the pool is empty", lambda: not client.get_pool("default").machines)
    assert server.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user's jobs")
def test_jobs_of_local_workers_run_as_the_user_that_their_server_names(site: Site) -> None:
    site.environment["ROOST_JOB_USER"] = "nobody"
    server = site.serve()
    with site.client(server) as client:
        client.create_pool(CreatePool(name="default", provider="local", max_machines=1))
        secret = site.folder / "plane" / "roost.db"

        (done,) = client.jobs.map(["sh", "-c", f"id -un; cat {secret} 2>&1 >{{item}}"], ["copy"])

        assert (done.state, done.exit_code) == ("failed", 1)
        assert done.stdout == f"nobody\ncat: {secret}: Permission denied\n"
    assert server.stop() == 0


def test_a_job_whose_worker_is_killed_ends_all_the_same(site: Site) -> None:
    server = site.serve()
    with site.client(server) as client:
        client.create_pool(
            CreatePool(name="default", provider="local", max_machines=2, idle_grace_s=1)
        )
        made = client.submit_jobs(SubmitJobs(command=["sleep", "3"]))
        eventually("it runs", lambda: client.get_job(made.id).state == "running")

        (folder,) = (site.folder / "plane" / "machines").glob("*/machine.json")
        for pid in workers_in(folder.parent):
            os.kill(pid, signal.SIGKILL)

        eventually(
            "it has ended",
            lambda: client.get_array(made.id).finished_at is not None,
            within_s=150,
        )
        assert client.get_array(made.id).state == "completed"
        _none_is_left(client)
    assert server.stop() == 0


def test_jobs_go_on_while_their_server_is_killed_and_started_again(site: Site) -> None:
    folder, items = site.folder / "notes", list(range(12))
    folder.mkdir()
    server = site.serve()
    with site.client(server) as client:
        client.create_pool(
            CreatePool(
                name="default", provider="local", types=["local-1"], max_machines=3, idle_grace_s=1
            )
        )
        # Each start leaves a line: what ran twice can be told from what was recorded twice.
        work = f"echo $ROOST_ATTEMPT >> {folder}/{{item}}; sleep 1; echo $(( {{item}} * {{item}} ))"
        made = client.submit_jobs(SubmitJobs(command=["sh", "-c", work], items=items))
        for already in (1, 5):  # once at the beginning, once half way

            def so_far(already: int = already) -> bool:
                found = client.get_array(made.id).jobs
                return found.live > 0 and found.completed >= already

            eventually(f"{already} jobs are done and others run", so_far)
            server.kill()
            server = site.serve_again(server)

        eventually(
            "all jobs have ended", lambda: client.get_array(made.id).finished_at, within_s=150
        )
        array = client.get_array(made.id)
        assert (array.state, array.jobs.completed) == ("completed", len(items))
        found = client.list_jobs(made.id, limit=100).jobs
        assert [job.item for job in found] == items
        # Workers outlive the server: nothing was started anew, and each wrote its result once.
        assert [job.attempt for job in found] == [1] * len(items)
        assert [(folder / str(item)).read_text() for item in items] == ["1\n"] * len(items)
        assert [client.jobs.log(job.id) for job in found] == [f"{n * n}\n" for n in items]
        finished = [e for e in _events_of(client, made.id) if e == "jobs.finished"]
        assert finished == ["jobs.finished"]
        machines = client.list_machines("default", ended=True, limit=100).machines
        assert len(machines) <= 3, "machines were rented twice"
        _none_is_left(client)
        assert workers_in(site.folder / "plane" / "machines") == []
    assert server.stop() == 0


def _files_go_in_and_out(site: Site) -> None:
    given, kept = site.folder / "given", site.folder / "kept"
    given.write_text("five")
    digest = sha256(b"five").hexdigest()
    words = ["--input", f"a={given.as_uri()}#sha256:{digest}", "--keep", "b"]
    words += ["--keep-in", kept.as_uri(), "--wait", "--", "cp", "a", "b"]
    said = site.roost("job", "submit", *words)
    assert said.returncode == 0, said.stdout + said.stderr
    assert [path.read_text() for path in kept.glob("**/b")] == ["five"]


def _what_is_kept_is_fetched(site: Site, client: Client) -> None:
    size = 3 * 2**20 + 1
    work = f"mkdir s; head -c {size} /dev/urandom > s/b; sha256sum < s/b; echo one > a"
    made = client.submit_jobs(
        SubmitJobs(
            command=["sh", "-c", work], outputs=[OutputBody(name="s/b"), OutputBody(name="a")]
        )
    )
    assert client.get_array(made.id, wait_s=30).state == "completed"
    to = site.folder / "fetched"
    said = site.roost("job", "fetch", made.id, "--to", str(to))
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.split() == [str(to / "s/b"), str(to / "a")]
    assert sha256((to / "s/b").read_bytes()).hexdigest() == client.jobs.log(made.id).split()[0]
    assert (to / "a").read_text() == "one\n"
    assert b"".join(client.jobs.output(made.id, "a")) == b"one\n"


def _events_of(client: Client, array: str) -> list[str]:
    """Return the kinds of all events about an array so far."""
    page = client.list_events(limit=1000)
    return [event.kind for event in page.events if event.subject == f"job/{array}"]


def _none_is_left(client: Client) -> None:
    eventually("the pool is empty", lambda: not client.get_pool("default").machines)
