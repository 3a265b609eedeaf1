"""kill -9 at any moment: everything goes on from the ledger, nothing is double, nothing is lost."""

import os
import threading
from pathlib import Path
from random import Random

import msgspec
import pytest

from roost.agent.drivers.base import LocalVM
from roost.client import Client
from roost.wire.bodies import VMBody
from tests.system.load import Load
from tests.system.processes import Site, all_settled, all_vms, eventually

pytestmark = pytest.mark.slow

LONG = bool(os.environ.get("ROOST_LONG"))
SEED = int(os.environ.get("ROOST_SEED", "1"))
#: Heartbeats that notice a lost server at once, and time enough for a restart on a busy machine.
TIMERS = {"heartbeat_s": 0.5, "suspect_s": 20, "offline_s": 40, "lease_s": 30}


def local_vms(folder: Path) -> dict[str, tuple[LocalVM, tuple[int, int]]]:
    """Return the VMs of all hosts below a folder, each with what changes when it is rewritten."""
    found = {}
    for path in folder.rglob("vms/*.json"):
        try:
            status, vm = path.stat(), msgspec.json.decode(path.read_bytes(), type=LocalVM)
        except FileNotFoundError:
            continue
        assert vm.id not in found, f"{vm.id} is on two hosts"
        found[vm.id] = (vm, (status.st_ino, status.st_mtime_ns))
    return found


def wait_converged(site: Site, load: Load, client: Client) -> None:
    """Wait until ledger and hosts have the VMs that were promised, and no others."""
    found: dict[str, VMBody] = {}

    def is_as_promised() -> bool:
        found.clear()
        found.update(all_vms(client))
        return found.keys() == load.kept.keys()

    try:
        eventually("exactly what was promised exists", is_as_promised, every_s=0.2)
    except AssertionError:
        assert load.kept.keys() <= found.keys(), "VMs are lost"
        more = [vm for vm in found.values() if vm.id not in load.kept]
        assert not more, f"too many, {sum(vm.id in load.deleted for vm in more)} of them deleted"
    all_settled(client)
    local = eventually(
        "hosts have what was promised",
        lambda: (found := local_vms(site.folder)).keys() == load.kept.keys() and found,
    )
    assert {vm.state for vm, _ in local.values()} == {"running"}


def test_the_control_plane_is_killed_again_and_again(site: Site, database_url: str) -> None:
    server = site.serve(database=database_url, **TIMERS)
    agents = site.hosts("host", server, count=4, cpu="200", max_destroy=1000)
    random = Random(SEED)
    with Load(lambda: [site.async_client(server, patience_s=300)], seed=SEED, pause_s=0.01) as load:
        for _ in range(20 if LONG else 2):
            threading.Event().wait(random.uniform(0.1, 1.0))
            server.kill()
            server = site.serve_again(server)
    assert not load.refused
    assert load.kept
    assert load.deleted
    with site.client(server) as client:
        wait_converged(site, load, client)
        kinds = {event.kind for event in client.list_events(limit=1000).events}
        assert not kinds & {"host.offline", "host.fenced"}
        assert {host.health for host in client.all_hosts()} == {"online"}
    assert agents.exit_code is None
    site.doctor(server)


def test_agents_are_killed_and_adopt_what_runs(site: Site, sqlite_url: str) -> None:
    server = site.serve(database=sqlite_url, **TIMERS)
    agents = [site.hosts(f"host-{at}", server, cpu="200", max_destroy=1000) for at in range(3)]
    random = Random(SEED)
    with (
        site.client(server) as client,
        Load(lambda: [site.async_client(server, patience_s=300)], seed=SEED, pause_s=0.05) as load,
    ):
        for _ in range(20 if LONG else 4):
            threading.Event().wait(random.uniform(0.1, 0.6))
            at = random.randrange(len(agents))
            agents[at].kill()
            before = local_vms(agents[at].folder)
            deleting = load.deleted | _under_way(client)
            agents[at] = site.hosts_again(agents[at])
            site.wait_online(server, agents[at].name, 1)
            _wait_connected(client, agents[at].name)
            after = local_vms(agents[at].folder)
            for vm_id, (vm, written) in before.items():
                if vm.state == "running" and vm_id not in deleting | load.deleted:
                    assert after[vm_id] == (vm, written), "it was started again"
    with site.client(server) as client:
        wait_converged(site, load, client)
    site.doctor(server)


def _under_way(client: Client) -> set[str]:
    return {vm.id for vm in all_vms(client).values() if vm.desired == "absent"}


def _wait_connected(client: Client, host: str) -> None:
    eventually(f"{host} is connected", lambda: client.get_host(host).connected)
