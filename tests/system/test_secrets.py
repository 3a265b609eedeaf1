"""Secrets stay where they belong: what other users of the machine can see of real processes."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from roost.base.errors import RoostError
from roost.client import Client
from roost.wire.bodies import BootBody, CreateToken
from tests.databases import PostgresServer
from tests.system.processes import Hosts, Server, Site, all_settled, eventually, small

pytestmark = pytest.mark.slow


def below(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, itself included, while processes add and replace files there."""
    for place, _, files in os.walk(folder):  # passes over folders that are gone; a glob raises
        yield Path(place)
        yield from (Path(place, name) for name in files)


def open_to_others(folder: Path) -> list[str]:
    """Return what is in a folder, itself included, that other users may use."""
    found = []
    for path in below(folder):
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                found.append(f"{path} {stat.filemode(mode)}")
    return found


@pytest.fixture
def loose_umask() -> object:
    """Let processes of a test begin with the usual umask."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_folders_of_serve_and_agent_are_private_and_older_ones_are_closed(
    site: Site, loose_umask: object
) -> None:
    server = site.serve()
    agent = site.hosts("here", server, fence_guard=True)
    plane = site.folder / "plane"
    assert (plane / "roost.db-wal").exists()
    assert open_to_others(plane) == []
    assert open_to_others(agent.folder) == []
    assert "other users" not in server.log() + agent.log()

    server.stop()
    agent.stop()
    for folder in (plane, agent.folder):
        for path in below(folder):
            path.chmod(0o755 if path.is_dir() else 0o644)
    again = site.serve_again(server)
    site.hosts_again(agent)
    eventually("the agent closes its folder", lambda: not open_to_others(agent.folder))
    assert open_to_others(plane) == []
    assert "other users could read roost.db, roost.db.lock" in again.log()
    assert f"files and folders of {agent.folder}" in agent.log()


# Markers


#: Planted as user data of VMs.
USER_DATA = "marker-of-user-data-5c1f"


def children_of(pid: int) -> Iterator[int]:
    """Return the processes that a process has started, and those that they have."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from children_of(int(child))


def guards_of(agent: Hosts) -> list[int]:
    """Return the fence guard, which is nobody's child any more after its agent's end."""
    return [json.loads((agent.folder / "guard.json").read_text())["pid"]]


def shown_by(pid: int, *names: str) -> bytes:
    """Return what the system shows of a process."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in names)


def holding(folder: Path, marker: str) -> set[str]:
    """Return the files of a folder that hold a text somewhere in their bytes."""
    found = set()
    for path in below(folder):
        with suppress(FileNotFoundError):
            if path.is_file() and marker.encode() in path.read_bytes():
                found.add(str(path.relative_to(folder)))
    return found


def all_answers(server: Server, token: str, vm: str) -> str:
    """Return what every GET route says, of this VM where it wants one."""
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as web:
        paths = web.get("/api/v1/openapi.json").json()["paths"]
        asked = [path for path, verbs in paths.items() if "get" in verbs]
        assert len(asked) > 15
        said = []
        for path in asked:
            if "events" in path:
                path += "?limit=1000"
            name = "here" if "host" in path else "default" if "project" in path else vm
            with suppress(httpx.ReadTimeout), web.stream("GET", _filled(path, name)) as answer:
                said.append(answer.read().decode())
                assert answer.status_code < 500, (path, said[-1])
    return "\n".join(said)


def _filled(path: str, name: str) -> str:
    head, brace, rest = path.partition("{")
    return head + name + rest.partition("}")[2] if brace else path


def live_a_little(client: Client) -> str:
    """Let VMs with user data go through what leads to events, answers and log lines."""
    boot = BootBody(user_data=USER_DATA)
    stays = client.create_vm(small("stays", boot=boot))
    goes = client.create_vm(small("goes", boot=boot))
    client.create_vm(small("waits", cpu=500, boot=boot, on_no_fit="queue"))
    for wrong in ({"cpu": 500}, {"memory": "no size"}, {"strategy": "no such"}):
        with suppress(RoostError):
            client.create_vm(small("refused", boot=boot, **wrong))
    all_settled_but(client, "waits")
    client.stop_vm(stays.id)
    eventually("it is stopped", lambda: client.get_vm(stays.id).state == "stopped")
    client.start_vm(stays.id)
    client.migrate_vm(stays.id)
    eventually("it runs", lambda: client.get_vm(stays.id).state == "running")
    client.delete_vm(goes.id)
    eventually("it is gone", lambda: goes.id not in {vm.id for vm in client.all_vms()})
    return stays.id


def all_settled_but(client: Client, waiting: str) -> None:
    """Wait until all VMs run that need not wait for room."""
    eventually(
        "all run",
        lambda: all(vm.state == "running" for vm in client.all_vms() if vm.name != waiting),
    )


def test_secrets_are_found_where_they_belong_and_nowhere_else(site: Site) -> None:
    site.environment |= {"ROOST_TOKEN": "marker-of-a-token", "PGPASSWORD": "marker-of-a-password"}
    server = site.serve(log_level="debug")

    with site.client(server) as client:
        join = client.create_join_token(host="here").secret
        viewer = client.create_token(CreateToken(name="looks", role="viewer")).secret
        assert join is not None
        assert viewer is not None
        site.environment["ROOST_JOIN_TOKEN"] = join
        here = site.hosts("here", server, fence_guard=True, log_level="debug")
        del site.environment["ROOST_JOIN_TOKEN"]
        there = site.hosts("there", server, join_token=_joins(client, "there"), log_level="debug")
        stays = live_a_little(client)
        answers = all_answers(server, site.token, stays)
        answers += str(client.doctor()) + str(list(client.all_vms()))
    plane, agents = site.folder / "plane", (here, there)
    credentials = [(agent.folder / "credential").read_text().strip() for agent in agents]
    secrets = [USER_DATA, site.token, viewer, join, *credentials]
    key = (plane / "roost.key").read_text().split()[-1]

    # What was told to its host is there, and only for its owner.
    def told() -> set[str]:
        return set().union(*(holding(agent.folder, USER_DATA) for agent in agents))

    # A list that is written anew lies beside the one that it replaces for a moment.
    eventually("only the list has it", lambda: told() == {"desired.json"})
    for agent in agents:
        assert open_to_others(agent.folder) == []
        assert holding(agent.folder, site.token) == set()
    # The database, raw: nothing that opens anything, nothing that was given to a VM.
    assert holding(plane, USER_DATA) == set()
    assert holding(plane, site.token) == {"admin-token"}
    assert holding(plane, viewer) == holding(plane, join) == holding(plane, key) - {"roost.key"}
    for credential in credentials:
        assert holding(plane, credential) == set()
    # Logs, answers, events.
    for each in (server, *agents):
        for secret in (*secrets, key):
            assert secret not in each.log(), each.log_path
    for secret in (*secrets, key):
        assert secret not in answers
    # What the system shows of processes, and what they handed on to those they started.
    handed_on = [*children_of(server.pid), *children_of(here.pid), *guards_of(here)]
    assert handed_on
    for pid in handed_on:
        shown = b""
        with suppress(FileNotFoundError, ProcessLookupError):  # a child may have ended meanwhile
            shown = shown_by(pid, "cmdline", "environ")
        for secret in (*secrets, key, "marker-of-a-token", "marker-of-a-password"):
            assert secret.encode() not in shown, pid
    for pid in (server.pid, here.pid, *guards_of(here)):
        assert not any(secret.encode() in shown_by(pid, "cmdline") for secret in (*secrets, key))
        limits = shown_by(pid, "limits").decode().splitlines()
        core = next(line.split() for line in limits if line.startswith("Max core file size"))
        assert core[4:6] == ["0", "0"], "it may write a core dump"


def _joins(client: Client, host: str) -> str:
    secret = client.create_join_token(host=host).secret
    assert secret is not None
    return secret


def test_a_replica_without_the_key_refuses_and_is_mended_by_a_command(
    site: Site, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    first = site.serve("first", database=url)
    key = site.folder / "second.key"
    second = site.serve("second", ready=False, database=url, key_file=key)
    assert second.wait() != 0
    assert "the ledger is sealed with key" in second.log()
    assert "roost key import FILE" in second.log()
    assert not key.exists()
    moved = site.folder / "moved.key"
    data = str(site.folder / "plane")
    for words in (
        ("export", str(moved), "--data", data),
        ("import", str(moved), "--key-file", str(key)),
    ):
        done = site.roost("key", *words)
        assert done.returncode == 0, done.stderr
    shown = [
        site.roost("key", "show", *w).stdout for w in (("--data", data), ("--key-file", str(key)))
    ]
    assert shown[0] == shown[1] != ""
    site.serve_again(second)
    assert open_to_others(moved) == open_to_others(key) == []
    assert first.exit_code is None


def test_a_key_is_changed_while_no_server_runs(site: Site) -> None:
    server = site.serve()
    agent = site.hosts("here", server)
    with site.client(server) as client:
        client.create_vm(small("one", boot=BootBody(user_data=USER_DATA)))
        all_settled(client)
    data = str(site.folder / "plane")
    refused = site.roost("key", "rotate", "--data", data)
    assert refused.returncode != 0
    assert "another roost process uses" in refused.stderr
    server.stop()
    done = site.roost("key", "rotate", "--data", data)
    assert done.returncode == 0, done.stderr
    assert "the user data of 1 VMs was sealed anew" in done.stdout
    (agent.folder / "desired.json").unlink()
    again = site.serve_again(server)
    site.hosts_again(agent)
    wanted = agent.folder / "desired.json"
    eventually("the VM is told again", lambda: wanted.exists() and USER_DATA in wanted.read_text())
    site.doctor(again)
