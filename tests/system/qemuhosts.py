"""A site whose hosts run real guests: agents with the QEMU driver, watched from beside them.

QEMUs outlive their agents by design, so they are found by the folders they run in, and ended with
the site. One control plane and one watch may serve many tests; each test leaves its VMs behind in
a state that `Counting` can use again, or deletes them.
"""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roost.agent.drivers.qemu.manifest import find_running, folder_name
from roost.client import Client
from roost.wire.bodies import BootBody, ImageBody, VMBody
from tests.guest import CMDLINE, boot_info, guest, is_unbroken
from tests.system.guests import Guests, write_wrapper
from tests.system.processes import Hosts, Site, eventually, small

#: A guest's boot takes three seconds of a core, and other work may keep the machine busy.
BOOT_S = 60.0


class QemuSite(Site):
    """A control plane and QEMU hosts."""

    boot_s = BOOT_S

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hosts_folder = folder / "hosts"
        self.agents: dict[str, Hosts] = {}
        self.watch = Guests(self.hosts_folder)

    def start(self, *names: str, timers: dict[str, float] | None = None, **options: object) -> None:
        """Start a control plane and agents, and wait until all hosts are online."""
        guest()  # without QEMU the test is skipped before anything has started
        self.serve(**(timers or {"heartbeat_s": 1}))
        for name in names:
            self.agents[name] = self._agent(name, options)
        for name in names:
            self.wait_online(self.server, name, 1)

    def _agent(self, name: str, more: dict[str, object]) -> Hosts:
        kernel, initrd = guest()
        options: dict[str, object] = {
            "driver": "qemu",
            "accel": "tcg",
            "qemu": write_wrapper(self.folder / "qemu"),
            "cpu": "8",
            "memory": "4GiB",
            "disk": "20GiB",
            "image_from": f"file://{self.folder}/",
            "default_kernel": kernel,
            "default_initrd": initrd,
            "default_cmdline": f"{CMDLINE} roost.tick_us=50000",
            "stop_grace": 5,
        }
        agent = Hosts(self, name, [self.server], options | more)
        self.processes.append(agent)
        return agent

    @contextmanager
    def watching(self) -> Iterator[Client]:
        """Watch the guests, and give a client of the control plane."""
        with self.watch, self.client(self.server) as client:
            yield client

    def agent_again(self, name: str) -> None:
        """Start the agent of a host anew."""
        self.agents[name] = self.hosts_again(self.agents[name])

    def end(self) -> None:
        """End everything, QEMUs last: an agent that lives might start one again."""
        super().end()
        for vms in self.hosts_folder.glob("*/vms"):
            for found in find_running(vms).values():
                kill(found.identity.pid)

    # VMs

    def vms(self, host: str) -> Path:
        """Return the folder of a host's VMs."""
        return self.hosts_folder / host / "vms"

    def qemu_pid(self, vm: VMBody, host: str | None = None) -> int:
        """Return the process of a VM on a host."""
        return find_running(self.vms(host or str(vm.host)))[folder_name(vm.id)].identity.pid

    def qemu_hosts(self, vm: VMBody) -> list[str]:
        """Return the hosts that have a QEMU of a VM, whether it executes or not."""
        return [
            vms.parent.name
            for vms in sorted(self.hosts_folder.glob("*/vms"))
            if folder_name(vm.id) in find_running(vms)
        ]

    def wait_counting(self, vm: VMBody, host: str | None = None, more: int = 3) -> None:
        """Wait until a VM counts on a host, so much further than now."""
        where = host or str(vm.host)
        before = len(self.watch.ticks(vm.id, where))
        eventually(
            f"{vm.name} counts on {where}",
            lambda: len(self.watch.ticks(vm.id, where)) >= before + more,
            BOOT_S,
        )

    def running(self, client: Client, vm: VMBody, host: str | None = None) -> VMBody:
        """Wait until a VM runs on a host, as the ledger has it, and no move is under way."""

        def is_there() -> VMBody | None:
            found = client.get_vm(vm.id)
            settled = found.state == "running" and found.migration is None
            return found if settled and host in (None, found.host) else None

        return eventually(f"{vm.name} runs on {host or 'a host'}", is_there, self.boot_s)

    def boot(self, client: Client, name: str, host: str, **more: object) -> VMBody:
        """Create a VM on a host and wait until its guest counts."""
        made = self.create(client, name, host, **more)
        found = self.running(client, made)
        self.wait_counting(found)
        return found

    def create(self, client: Client, name: str, host: str, **more: object) -> VMBody:
        """Create a VM on a host that is bound to no host."""
        others = [each for each in self.agents if each != host]
        for other in others:
            client.cordon_host(other)
        try:
            asked = {"cpu": 1, "memory": "96MiB", "disk": "0GiB"} | more
            made = client.create_vm(small(name, **asked))  # type: ignore[arg-type]
        finally:
            for other in others:
                client.uncordon_host(other)
        assert made.host == host
        return made

    def settle(self, client: Client, vm: VMBody, *, unbroken: bool = True) -> VMBody:
        """Demand what must hold after everything: one copy, no claim too many, a healthy ledger.

        `unbroken`: the guest has counted on by one, whatever happened to it.
        """
        found = self.running(client, vm)
        self.wait_counting(found)
        eventually("one QEMU is left", lambda: self.qemu_hosts(found) == [found.host])
        assert self.watch.executing(found.id) == [found.host]
        assert self.watch.doubles() == []
        eventually("no claim is left", lambda: _charged(client) == _wanted(client))
        if unbroken:
            assert is_unbroken(self.watch.counted(found.id)), self.watch.counted(found.id)
        self.doctor(self.server)
        return found


def boot_by_digests(words: str) -> BootBody:
    """Return the guest by digests alone: every host has its files."""
    info = boot_info(f"roost.tick_us=50000 {words}")
    assert info.kernel is not None
    assert info.initrd is not None
    return BootBody(
        kernel=ImageBody(digest=info.kernel.digest),
        initrd=ImageBody(digest=info.initrd.digest),
        cmdline=info.cmdline,
    )


def _charged(client: Client) -> dict[str, tuple[int, int]]:
    return {
        host.name: (host.vms, host.memory_bytes.committed)
        for host in client.all_hosts()
        if host.memory_bytes.committed
    }


def _wanted(client: Client) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for vm in client.all_vms():
        number, memory = found.get(str(vm.host), (0, 0))
        found[str(vm.host)] = (number + 1, memory + vm.demand.memory_bytes)
    return found


def kill(pid: int, sign: signal.Signals = signal.SIGKILL) -> None:
    """Kill a process that is not our child, and wait until it is gone."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, sign)
            assert select.select([handle], [], [], 10)[0], f"{pid} does not go"
        finally:
            os.close(handle)
