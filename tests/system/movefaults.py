"""How moves of real guests are watched and broken: their events, and kills at chosen instants.

Used by the tests of moves; what is killed or frozen is named by host, the instant by what a QEMU
says on its control socket.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from roost.agent.drivers.qemu.manifest import folder_name
from roost.wire.bodies import EventBody, VMBody
from tests.system.conftest import Real
from tests.system.guests import Copy
from tests.system.processes import eventually


def events(real: Real, vm: VMBody) -> list[EventBody]:
    """Return what the ledger tells of a VM."""
    listed = list(real.client.list_events(limit=1000).events)
    while page := real.client.list_events(since=listed[-1].seq, limit=1000).events:
        listed += page
    return [each for each in listed if each.subject == f"vm/{vm.id}"]


def ended(real: Real, vm: VMBody, before: int) -> EventBody:
    """Wait for the end of a move that began after so many events, and return it."""

    def end() -> EventBody | None:
        kinds = ("vm.moved", "vm.move_abandoned")
        return next((e for e in events(real, vm)[before:] if e.kind in kinds), None)

    return eventually("the move ends", end)


def source_has_spoken(real: Real, vm: VMBody, before: int) -> bool:
    """Say whether the source of the move has told what became of it, so that the target is next."""
    kinds = ("vm.move_sent", "vm.move_recalled")
    return any(each.kind in kinds for each in events(real, vm)[before:])


@contextmanager
def killing(real: Real, vm: VMBody, said: str, by: str, victim: str) -> Iterator[list[int]]:
    """Kill the QEMU on one host in the moment when the one on another says something."""
    pids: list[int] = []
    killed: list[int] = []

    def hook(copy: Copy, event: str) -> None:
        right = copy.folder.name == folder_name(vm.id) and copy.host == by and event == said
        if right and pids and not killed:
            with suppress(ProcessLookupError):
                os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    real.site.watch.hooks.append(hook)
    try:
        if victim != vm.host:
            eventually("the copy is there", lambda: victim in real.site.qemu_hosts(vm))
        pids.append(real.site.qemu_pid(vm, victim))
        yield killed
    finally:
        real.site.watch.hooks.remove(hook)


@contextmanager
def freezing(real: Real, vm: VMBody, said: str, by: str, host: str) -> Iterator[None]:
    """Freeze the agent of a host in the moment when a QEMU says something, until this is left."""
    agent = real.site.agents[host]

    def hook(copy: Copy, event: str) -> None:
        if copy.folder.name == folder_name(vm.id) and copy.host == by and event == said:
            agent.signal(signal.SIGSTOP)

    real.site.watch.hooks.insert(0, hook)
    try:
        yield
    finally:
        real.site.watch.hooks.remove(hook)
        agent.signal(signal.SIGCONT)
