"""The command line against a live control plane, as a user types it: what it says, how it ends."""

import json
import subprocess

import pytest

from tests.system.processes import ROOST, Process, Site, eventually

pytestmark = pytest.mark.slow

SIZE = ("--cpu", "2", "--memory", "4GiB", "--disk", "20GiB")


def run(site: Site, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command that must end with a code."""
    said = site.roost(*words)
    assert said.returncode == code, (words, said.stdout, said.stderr)
    return said


def document(site: Site, *words: str) -> dict[str, object]:
    """Run a command and return what it answers."""
    found: dict[str, object] = json.loads(run(site, *words, "-o", "json").stdout)
    return found


def test_a_vm_from_create_to_delete(shared: Site) -> None:
    follower = Process(
        [str(ROOST), "events", "--follow", "--since", "0"],
        shared.folder / "events.log",
        shared.environment,
    )
    shared.processes.append(follower)
    made = run(shared, "vm", "create", "web-1", *SIZE, "--wait").stdout
    assert "web-1" in made
    assert "one" in made
    assert "running" in made
    listed = run(shared, "vm", "list").stdout
    assert "web-1" in listed
    assert "virtual" in listed
    shown = document(shared, "vm", "show", "web-1")
    assert (shown["state"], shown["host"], shown["hypervisor_id"]) == ("running", "one", "one")
    assert "two" in run(shared, "vm", "explain", "web-1").stdout
    assert document(shared, "capacity", *SIZE)["count"] == 15
    run(shared, "vm", "migrate", "web-1", "--host", "two")
    eventually("it has moved", lambda: _host(shared, "web-1") == ("two", "running"))
    run(shared, "doctor")
    run(shared, "vm", "delete", "web-1")
    eventually("it is gone", lambda: shared.roost("vm", "show", "web-1").returncode == 3)
    eventually("events were followed", lambda: "vm.deleted" in follower.log())
    assert follower.exit_code is None
    follower.kill()


def _host(site: Site, vm: str) -> tuple[object, object]:
    shown = document(site, "vm", "show", vm)
    return shown["host"], shown["state"]


def test_a_drain_empties_a_host(shared: Site) -> None:
    for at in range(4):
        run(shared, "vm", "create", f"vm-{at}", *SIZE)
    assert {_host(shared, f"vm-{at}")[0] for at in range(4)} == {"one", "two"}
    run(shared, "host", "drain", "one", "--wait")
    assert {_host(shared, f"vm-{at}")[0] for at in range(4)} == {"two"}
    run(shared, "host", "uncordon", "one")
    run(shared, "doctor")
    run(shared, "vm", "delete", *(f"vm-{at}" for at in range(4)))


def test_exit_codes_tell_the_families_of_errors_apart(shared: Site) -> None:
    assert "no VM" in run(shared, "vm", "show", "nobody", code=3).stderr
    refused = run(shared, "vm", "create", "huge", "--cpu", "99", "--memory", "1GiB", code=6)
    assert "cpu" in refused.stderr.lower()
    run(shared, "vm", "create", "odd", "--cpu", "x", "--memory", "1GiB", code=2)
    run(shared, "vm", "create", "odd", *SIZE, "--strategy", "magic", code=2)
    run(shared, "vm", "create", "same", *SIZE)
    run(shared, "vm", "create", "same", *SIZE, code=4)
    down = run(shared, "vm", "list", "--server", "http://127.0.0.1:1", "--token", "x", code=5)
    assert "no server answers" in down.stderr
