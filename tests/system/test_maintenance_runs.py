"""`roost maintenance run` that is killed or interrupted: what it has left closed is told."""

import os
import signal
import socket

import pytest

from roost.client import Client
from tests.system.processes import ROOST, Process, Site, all_settled, eventually, small


def rolling(site: Site, *hosts: str, log: str = "run.log") -> Process:
    """Run maintenance over hosts, whose command waits until there is a file `go`."""
    heeding = ["env", "--default-signal=INT,TERM,HUP"]  # whatever these tests are run by ignores
    command = "touch began-$ROOST_HOST; while [ ! -e go ]; do sleep 0.05; done"
    words = [*heeding, str(ROOST), "maintenance", "run", *hosts, "--no-spare", "--command", command]
    environment = site.environment | {"COLUMNS": "160", "NO_COLOR": "1"}
    run = Process(words, site.folder / log, environment)
    site.processes.append(run)
    eventually("a command runs", lambda: list(site.folder.glob("began-*")))
    return run


def admins(client: Client) -> dict[str, str]:
    return {host.name: host.admin for host in client.all_hosts()}


def filled(site: Site, hosts: str = "abc") -> Client:
    """Start a control plane and hosts with four VMs."""
    server = site.serve()
    for name in hosts:
        site.hosts(name, server)
    client = site.client(server)
    for number in range(4):
        client.create_vm(small(f"vm-{number}"))
    all_settled(client)
    return client


def test_hosts_of_a_run_that_was_killed_are_told_with_the_way_back(site: Site) -> None:
    with filled(site) as client:
        run = rolling(site, "a", "b")
        try:
            assert "is closed by another" in site.roost(*_AGAIN, "b").stderr
            assert "which still runs" in site.roost("maintenance", "list").stdout
            run.kill()
        finally:
            (site.folder / "go").touch()
        assert admins(client) == {"a": "maintenance", "b": "maintenance", "c": "open"}

        told = " ".join(site.roost("maintenance", "list").stdout.split())
        assert f"process {run.pid} on {socket.gethostname()}" in told
        assert "which runs no longer" in told
        assert "roost host uncordon a b" in told
        assert "maintenance run, process" in site.roost("host", "show", "a").stdout

        one = site.roost(*_AGAIN, "a")
        assert one.returncode == 0, one.stderr
        assert "b is maintenance, closed by an earlier maintenance run" in one.stderr
        assert "roost host uncordon b" in one.stderr
        assert admins(client) == {"a": "open", "b": "maintenance", "c": "open"}
        site.roost("host", "uncordon", "b")
        listed = site.roost("maintenance", "list").stdout
        assert "no host is closed by a maintenance run" in listed
        assert client.get_host("b").closed == ""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_opens_what_it_may_and_says_what_it_leaves(
    site: Site, sign: signal.Signals
) -> None:
    with filled(site) as client:
        run = rolling(site, "a", "b")
        try:
            run.signal(sign)
            assert run.wait() == 130, run.log()
        finally:
            (site.folder / "go").touch()
        said = run.log()
        assert "a stays in maintenance: its command, or its return, was interrupted" in said
        assert "roost host maintenance off a" in said
        assert "b is open again: nothing was done to it" in said
        assert "interrupted: 0 hosts are done, 2 are left" in said
        assert admins(client) == {"a": "maintenance", "b": "open", "c": "open"}
        assert client.get_host("b").closed == ""


def test_a_run_that_nobody_reads_any_more_opens_what_it_may(site: Site) -> None:
    with filled(site, "abcd") as client:
        os.mkfifo(site.folder / "pipe")
        reader = os.open(site.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            run = rolling(site, "a", "b", "c", log="pipe")
        finally:
            os.close(reader)
        try:
            run.signal(signal.SIGHUP)
            assert run.wait() == 130
        finally:
            (site.folder / "go").touch()
        assert admins(client) == {"a": "maintenance", "b": "open", "c": "open", "d": "open"}


_AGAIN = ("maintenance", "run", "--no-spare", "--command", "true")
