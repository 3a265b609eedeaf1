"""The main flow as processes: a VM is asked for over HTTP, runs on its host and goes again."""

import asyncio
import json

import pytest

from roost.base.errors import NotFound
from roost.client import Client
from roost.wire.bodies import CreateVM, DemandBody, VMBody
from tests.system.processes import Site, assert_healthy, eventually, examine

pytestmark = pytest.mark.slow


def test_a_vm_is_created_runs_and_is_deleted(site: Site, database_url: str) -> None:
    server = site.serve(database=database_url)
    site.hosts("hypervisor", server, count=3, memory="32GiB", disk="500GiB", zone="a,b,c")
    with site.client(server) as client:
        demand = DemandBody(cpu=12, memory="24GiB", disk="100GiB")
        made = client.create_vm(CreateVM(name="web-server-1", demand=demand))
        host = made.host
        assert host in {"hypervisor-01", "hypervisor-02", "hypervisor-03"}
        assert made.hypervisor_id == host
        assert made.placement is not None

        log = eventually("both lines are in the log", lambda: _after(server.log(), "Selected"))
        assert "Scheduling VM 'web-server-1' using least_loaded strategy\n" in server.log()
        assert log.startswith(
            f"Selected agent '{host}' for VM 'web-server-1'"
            " - CPU: 12/16, Memory: 24GB/32GB, Disk: 100GB/500GB\n"
        )

        running = eventually("it runs", lambda: _if_running(client.get_vm(made.id)))
        assert running.virtual
        assert running.observed_generation == running.generation
        file = next((site.folder / "hosts/hypervisor" / host / "vms").glob("vm-*.json"))
        assert json.loads(file.read_bytes())["state"] == "running"
        there = client.get_host(host)
        assert (there.cpu_milli.committed, there.vms, there.virtual) == (12_000, 1, True)

        client.delete_vm("web-server-1")
        eventually("it is gone", lambda: _is_gone(client, made.id))
        assert not file.exists()
        there = client.get_host(host)
        assert (there.cpu_milli.committed, there.vms) == (0, 0)
        kinds = [event.kind for event in client.list_events().events]
        assert kinds.index("vm.created") < kinds.index("vm.running") < kinds.index("vm.deleted")
    site.doctor(server)
    assert server.stop() == 0
    assert_healthy(asyncio.run(examine(database_url)))


def _after(log: str, word: str) -> str:
    return word + log.partition(word)[2] if word in log else ""


def _if_running(vm: VMBody) -> VMBody | None:
    return vm if vm.state == "running" else None


def _is_gone(client: Client, vm: str) -> bool:
    try:
        client.get_vm(vm)
    except NotFound:
        return True
    return False
