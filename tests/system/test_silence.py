"""Hosts and control planes that fall silent: what may move moves after proof, the rest stays."""

from pathlib import Path

import pytest

from roost.client import Client
from roost.wire.bodies import VMBody
from tests.system.copies import OneCopy, copies
from tests.system.processes import QUICK, Hosts, Server, Site, eventually, small

pytestmark = pytest.mark.slow


def start(
    site: Site, *guarded: str, plain: tuple[str, ...] = (), **options: object
) -> tuple[Server, dict[str, Hosts]]:
    """Start a control plane with short timers and one agent process per host."""
    server = site.serve(**QUICK, **options)
    agents = {name: site.hosts(name, server, wait=False, fence_guard=True) for name in guarded}
    agents |= {name: site.hosts(name, server, wait=False) for name in plain}
    with site.client(server) as client:
        for name in agents:
            site.wait_online(server, name, 1)
        for name in guarded:
            eventually(f"the guard of {name} is known", lambda: client.get_host(name).guard)  # noqa: B023
    return server, agents


def run_on(client: Client, host: str, name: str, restart: str) -> VMBody:
    """Run a VM on a host, for a start."""
    others = [each.name for each in client.all_hosts() if each.name != host]
    for other in others:
        client.cordon_host(other)
    made = client.create_vm(small(name, restart=restart))
    for other in others:
        client.uncordon_host(other)
    assert made.host == host
    return eventually(f"{name} runs", lambda: running(client, made.id))


def running(client: Client, vm: str, host: str | None = None) -> VMBody | None:
    found = client.get_vm(vm)
    return found if found.state == "running" and host in (None, found.host) else None


def written(folder: Path, host: str, vm: str) -> tuple[int, int]:
    """Return what changes when a host touches a VM."""
    status = (folder / host / "vms" / f"{vm}.json").stat()
    return status.st_ino, status.st_mtime_ns


def health(client: Client, host: str) -> str:
    return client.get_host(host).health


def test_a_control_plane_that_stood_still_moves_nothing(site: Site) -> None:
    server, _ = start(site, "one", "two")
    hosts = site.folder / "hosts"
    with site.client(server) as client, OneCopy(hosts):
        stays = run_on(client, "one", "stays", "here")
        movable = run_on(client, "one", "movable", "elsewhere")
        before = written(hosts, "one", stays.id)
        server.pause()
        try:
            # The lease ends, so the host stops what might be started elsewhere meanwhile.
            eventually("it is stopped", lambda: copies(hosts, movable.id) == {"one": "stopped"})
        finally:
            server.resume()
        eventually("it runs again", lambda: copies(hosts, movable.id) == {"one": "running"})
        eventually("that is known", lambda: running(client, movable.id, "one"))
        assert written(hosts, "one", stays.id) == before
        kinds = {event.kind for event in client.list_events(limit=1000).events}
        assert not kinds & {"host.fenced", "vm.recovered"}
    site.doctor(server)


def test_the_vms_of_an_agent_that_stands_still_move_after_the_proof(site: Site) -> None:
    server, agents = start(site, "one", "two")
    hosts = site.folder / "hosts"
    with site.client(server) as client, OneCopy(hosts):
        stays = run_on(client, "one", "stays", "here")
        movable = run_on(client, "one", "movable", "elsewhere")
        before = written(hosts, "one", stays.id)
        agents["one"].pause()
        try:
            eventually("it is recovered", lambda: running(client, movable.id, "two"))
            assert copies(hosts, movable.id) == {"one": "stopped", "two": "running"}
            assert client.get_host("one").fenced == "lease"
            unknown = client.get_vm(stays.id)
            assert (unknown.state, unknown.host) == ("unknown", "one")
            assert copies(hosts, stays.id) == {"one": "running"}
        finally:
            agents["one"].resume()
        eventually("it is back", lambda: health(client, "one") == "online")
        eventually("one is left", lambda: copies(hosts, movable.id) == {"two": "running"})
        eventually("the other is known again", lambda: running(client, stays.id, "one"))
        assert written(hosts, "one", stays.id) == before
        assert_proof_came_first(client, movable.id)
    site.doctor(server)


def test_killed_hosts_with_and_without_a_guard(site: Site) -> None:
    server, agents = start(site, "guarded", "spare", plain=("plain",))
    hosts = site.folder / "hosts"
    with site.client(server) as client, OneCopy(hosts) as watch:
        movable = run_on(client, "guarded", "movable", "elsewhere")
        stranded = run_on(client, "plain", "stranded", "elsewhere")
        stays = run_on(client, "guarded", "stays", "here")
        agents["plain"].kill()
        agents["guarded"].kill()
        eventually("it is recovered", lambda: running(client, movable.id, "spare"))
        assert copies(hosts, movable.id) == {"guarded": "stopped", "spare": "running"}
        assert_proof_came_first(client, movable.id)

        # The plain host was silent for longer, but nothing proves that its VM is stopped.
        assert health(client, "plain") == "offline"
        assert client.get_vm(stranded.id).host == "plain"
        assert copies(hosts, stranded.id) == {"plain": "running"}
        assert client.get_vm(stays.id).host == "guarded"
        watch.but.add("plain")
        said = site.roost("host", "confirm-dead", "plain", "--reason", "its power is off")
        assert said.returncode == 0, said.stderr
        eventually("it is recovered too", lambda: running(client, stranded.id, "spare"))

        # The dead come back: what they still have of others goes, what is theirs stays.
        for name in ("plain", "guarded"):
            agents[name] = site.hosts_again(agents[name])
        for name in ("plain", "guarded"):
            eventually(f"{name} is back", lambda: health(client, name) == "online")  # noqa: B023
        for vm in (movable, stranded):
            eventually("one is left", lambda: copies(hosts, vm.id) == {"spare": "running"})  # noqa: B023
        eventually("it is known again", lambda: running(client, stays.id, "guarded"))
        assert copies(hosts, stays.id) == {"guarded": "running"}
    site.doctor(server)


def test_a_fence_command_is_believed_and_a_lie_is_seen(site: Site) -> None:
    asked = site.folder / "asked"
    command = site.folder / "fence"
    command.write_text(f'#!/bin/sh\necho "$1" >> {asked}\n')
    command.chmod(0o755)
    server, agents = start(site, plain=("one", "two"), fence_command=command)
    hosts = site.folder / "hosts"
    with site.client(server) as client:
        movable = run_on(client, "one", "movable", "elsewhere")
        with OneCopy(hosts) as watch:
            agents["one"].kill()
            eventually("it is recovered", lambda: running(client, movable.id, "two"))
            assert client.get_host("one").fenced == "command"
            assert_proof_came_first(client, movable.id)
            assert set(asked.read_text().split()) == {"one"}
            # The command only said that the host is off: its VM ran on, and the watch says so.
            eventually("two copies are seen", lambda: watch.doubles)
            watch.stop()
            watch.doubles.clear()
        agents["one"] = site.hosts_again(agents["one"])
        eventually("one is left", lambda: copies(hosts, movable.id) == {"two": "running"})
    site.doctor(server)


def test_the_watch_sees_two_copies(tmp_path: Path) -> None:
    for host in ("one", "two"):
        folder = tmp_path / host / "vms"
        folder.mkdir(parents=True)
        (folder / "vm-1.json").write_text('{"id": "vm-1", "name": "vm", "state": "running"}')
    watch = OneCopy(tmp_path)
    with pytest.raises(AssertionError, match="one/vms/vm-1"), watch:
        eventually("it is seen", lambda: watch.doubles)


def assert_proof_came_first(client: Client, vm: str) -> None:
    """Demand that the ledger recorded the fencing before the second start."""
    kinds = [
        event.kind
        for event in client.list_events(limit=1000).events
        if event.kind == "host.fenced" or event.subject == f"vm/{vm}"
    ]
    assert kinds.index("host.fenced") < kinds.index("vm.recovered")
