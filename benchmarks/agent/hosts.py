"""A control plane with QEMU hosts, and the places where their guests can be watched.

QEMU is started through a line of shell that gives it a second QMP socket: the first is the agent's,
and the benchmark wants to hear the same events that it hears from guests driven by hand.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.agent.agents import AgentProcess, agent, processes_in, wait_for
from benchmarks.agent.guests import Guest, guest
from benchmarks.agent.ledger import Events
from benchmarks.api.serving import Serving, running
from benchmarks.api.verifying import Wrong
from roost.agent.drivers.qemu.command import CONSOLE
from roost.agent.drivers.qemu.manifest import folder_name
from roost.client.synchronous import Client
from roost.wire.bodies import CreateVM, VMBody

#: The socket that QEMU has for the benchmark.
WATCH = "watch.qmp"
HERE, THERE = "host-a", "host-b"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Hosts:
    """What runs."""

    serving: Serving
    client: Client
    events: Events
    agents: dict[str, AgentProcess]

    def vm_folder(self, host: str, vm_id: str) -> Path:
        """Return where a host keeps a VM."""
        return self.agents[host].folder / "data" / "vms" / folder_name(vm_id)

    def console(self, host: str, vm_id: str) -> Path:
        """Return the serial log of a VM on a host."""
        return self.vm_folder(host, vm_id) / CONSOLE

    def argv(self, host: str, vm_id: str) -> list[str]:
        """Return the command line that a VM's QEMU was started with."""
        for pid in processes_in(self.vm_folder(host, vm_id)):
            return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        raise Wrong(f"no QEMU runs in {self.vm_folder(host, vm_id)}")

    def create(self, request: CreateVM) -> VMBody:
        """Create a VM and wait until it runs."""
        since = self.events.mark()
        vm = self.client.create_vm(request)
        self.events.wait_for("vm.running", vm.id, since)
        return vm

    def delete(self, vm: VMBody) -> None:
        """Delete a VM and wait until it is gone."""
        since = self.events.mark()
        self.client.delete_vm(vm.id)
        self.events.wait_for("vm.deleted", vm.id, since)


class QemuHosts:
    """Two hosts that are started when they are first needed, and ended with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = ExitStack()
        self._hosts: Hosts | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts.close()

    def get(self) -> tuple[Hosts, Guest]:
        """Return them and what they boot; raises Missing where there can be no guests."""
        files = guest()
        if self._hosts is None:
            self._hosts = self._parts.enter_context(_running(self._folder, files))
        return self._hosts, files


@contextmanager
def _running(folder: Path, files: Guest) -> Iterator[Hosts]:
    folder.mkdir(parents=True)
    binary = _watched_qemu(folder)
    # Guests share the machine; how many fit on it is not the question here.
    options = [*files.agent_options, "--qemu", str(binary), "--cpu", "16", "--memory", "8GiB"]
    options += ["--disk", "10GiB", "--reserve-memory", "0"]
    with ExitStack() as stack:
        serving = stack.enter_context(running(f"sqlite:///{folder}/ledger.db", folder, ()))
        client = stack.enter_context(Client(serving.url, serving.token))
        agents = {
            name: stack.enter_context(agent(serving, name, folder / name, options))
            for name in (HERE, THERE)
        }

        def all_online() -> bool:
            for each in agents.values():
                each.check()
            hosts = list(client.all_hosts())
            return sum(h.health == "online" and h.connected for h in hosts) == len(agents)

        wait_for("hosts to be online", all_online, _PATIENCE_S)
        hosts = Hosts(serving, client, Events(serving), agents)
        for name in agents:  # a host fetches images once, and that is not the question either
            hosts.delete(hosts.create(files.vm("first", name)))
        yield hosts


def _watched_qemu(folder: Path) -> Path:
    path = folder / "qemu-watched"
    real = shutil.which("qemu-system-x86_64")
    path.write_text(f'#!/bin/sh\nexec {real} "$@" -qmp unix:{WATCH},server=on,wait=off\n')
    path.chmod(0o755)
    return path
