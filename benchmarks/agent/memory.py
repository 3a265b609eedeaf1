"""Rows: the memory of one agent process, without VMs, with many virtual ones, with real guests."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.agent.agents import AgentProcess, agent, pass_time, wait_for
from benchmarks.agent.guests import Missing
from benchmarks.agent.hosts import HERE, QemuHosts
from benchmarks.agent.sizes import Sizes
from benchmarks.api.measuring import memory_mib
from benchmarks.api.serving import running
from benchmarks.api.verifying import Wrong, verify
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.client.synchronous import Client
from roost.wire.bodies import CreateVM, DemandBody

NAME = "memory"
#: Ours: a host has better uses for its memory.
_GOAL_MIB, _AIM_MIB = 80.0, 60.0
_PATIENCE_S = 60.0


def jobs(sizes: Sizes, folder: Path, hosts: QemuHosts) -> Iterator[Job]:
    """Return the jobs of this topic."""
    yield Job(f"{NAME}, virtual", partial(_virtual, sizes, folder / "virtual"))
    yield Job(f"{NAME}, QEMU", partial(_real, sizes, hosts))


def _virtual(sizes: Sizes, folder: Path) -> Iterator[Result]:
    name = f"{NAME}, virtual"
    database = f"sqlite:///{folder}/ledger.db"
    options = ("--cpu", str(sizes.vms), "--memory", f"{sizes.vms}GiB", "--boot-s", "0.1")
    with (
        running(database, folder, ()) as serving,
        agent(serving, "virtual", folder / "agent", options) as one,
        Client(serving.url, serving.token) as client,
    ):
        _wait_online(client, one)
        pass_time(sizes.settle_s)
        empty = memory_mib(one.pid)
        demand = DemandBody(cpu=1, memory="1GiB")
        made = client.create_vms([CreateVM(name=f"v{n}", demand=demand) for n in range(sizes.vms)])
        if made.created != sizes.vms:
            raise Wrong(f"{name}: {made.created} of {sizes.vms} VMs were created")

        def all_run() -> bool:
            one.check()
            return sum(vm.state == "running" for vm in client.all_vms()) == sizes.vms

        took = wait_for(f"{sizes.vms} VMs to run", all_run, _PATIENCE_S)
        pass_time(sizes.settle_s)
        full = memory_mib(one.pid)
    verify(name, database, sizes.vms)
    yield at_most(f"{name}: agent without VMs", empty, "MiB", None, note="resident, one process")
    yield at_most(
        f"{name}: agent with {sizes.vms} VMs",
        full,
        "MiB",
        sizes.goal(_GOAL_MIB),
        sizes.goal(_AIM_MIB),
        note=f"resident; all ran {took:.1f} s after the order, booting 0.1 s; goal is ours",
    )


def _real(sizes: Sizes, machines: QemuHosts) -> Iterator[Result]:
    name = f"{NAME}, QEMU"
    row, without = f"{name}: agent with {sizes.guests} guests", f"{name}: agent without VMs"
    try:
        hosts, files = machines.get()
    except Missing as missing:
        yield skipped(without, "MiB", str(missing))
        yield skipped(row, "MiB", str(missing))
        return
    pass_time(min(5.0, sizes.settle_s))
    empty = memory_mib(hosts.agents[HERE].pid)
    made = [hosts.create(files.vm(f"guest-{n}", HERE)) for n in range(sizes.guests)]
    pass_time(sizes.settle_s)
    full = memory_mib(hosts.agents[HERE].pid)
    for vm in made:
        hosts.delete(vm)
    yield at_most(without, empty, "MiB", None, note="resident, one process")
    yield at_most(
        row,
        full,
        "MiB",
        sizes.goal(_GOAL_MIB),
        sizes.goal(_AIM_MIB),
        note="resident, of the agent alone; goal is ours",
    )


def _wait_online(client: Client, one: AgentProcess) -> None:
    def is_online() -> bool:
        one.check()
        return [host.health for host in client.all_hosts()] == ["online"]

    wait_for("the host to be online", is_online, _PATIENCE_S)
