"""The laws of the world, checked after every event; and what must be true once faults have ended.

| law | checked |
|---|---|
| at most one copy of a VM executes | at every change of a VM on a host |
| no host runs more than it has | at every change of a VM on a host |
| no VM is destroyed without a tombstone, or a withdrawal | at every change of a VM on a host |
| the state of a guest is nowhere lost or left behind (`guests`) | at every change of a VM |
| events have no gaps | at every commit |
| promises, quotas, constraints, hard rules and generations (`books`) | at every commit |
| plans begin moves in order, within limits, and end (`planned`) | at every commit, at the end |
| every accepted create exists until its delete | at every commit, and when a create is answered |
| rows, claims, quotas and events agree (`doctor`) | every so many commits, and at the end |
| the fleet in memory is the sum of its VMs (`fleet.check`) | sampled, as often as above in whole |
| every exception is handled by somebody (`unhandled`) | always |
| every VM, host, group and project can be read (`reading`) | at the end |

An old database may be restored: then what is known of VMs that changed since the copy is not true
any more. They are `adrift`: copies that no ledger knows may stay, and what a guest had may be
older. That at most one copy executes holds for them too.
"""

from collections import defaultdict
from collections.abc import Callable

from sqlalchemy import Connection, select

from roost.agent.drivers.base import LocalVM
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import counters, tombstones
from roost.sim.laws.books import VM, Books, Broken, Changes, read_changes
from roost.sim.laws.guests import Guests
from roost.sim.laws.planned import PlannedMoves

__all__ = ["Broken", "Laws"]

#: States in which a guest really executes.
_RUNS = ("starting", "running", "sending")


class Laws:
    """Checks the laws of one world."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self.books = Books(now)
        self.guests = Guests()
        self.plans = PlannedMoves()
        self.copies: dict[str, dict[str, LocalVM]] = defaultdict(dict)  # VM -> host -> copy
        self.accepted: dict[str, str] = {}  # id -> name of VMs whose create was answered
        self.deleted: set[str] = set()  # ids whose delete was accepted, or is in doubt
        self.adrift: set[str] = set()  # ids that an old database does not know as they are
        self._may_go: set[tuple[str, str]] = set()  # (VM, host) with a tombstone or withdrawal
        self._capacity: dict[str, tuple[int, int]] = {}
        self._running: dict[str, list[int]] = {}  # what runs on a host, summed up
        self._seq = 0

    # Hosts

    def add_host(self, host: str, cpu_milli: int, memory_bytes: int) -> None:
        """Register a host and its capacity with the laws."""
        self._capacity[host] = (cpu_milli, memory_bytes)
        self._running[host] = [0, 0]

    def vm_changed(self, host: str, vm_id: str, vm: LocalVM | None) -> None:
        """Check a change of a VM's copy."""
        copies = self.copies[vm_id]
        before = copies.pop(host, None)
        running = self._running[host]
        if before is not None and before.state in _RUNS:
            running[0] -= before.cpu_milli
            running[1] -= before.memory_bytes
        if vm is None:
            if not copies:
                del self.copies[vm_id]
            self._may_be_gone(host, vm_id, before)
            self.guests.destroyed(host, vm_id, wanted=self._is_wanted(vm_id))
            return
        copies[host] = vm
        if vm_id not in self.adrift:
            row = self.books.vms.get(vm_id)
            home = self.books.host_name(row.host) if row and row.host is not None else ""
            self.guests.changed(host, vm_id, vm, before, home)
        if vm.state not in _RUNS:
            return
        running[0] += vm.cpu_milli
        running[1] += vm.memory_bytes
        if len(copies) > 1:
            executing = sorted(name for name, copy in copies.items() if copy.state in _RUNS)
            if len(executing) > 1:
                raise Broken(f"{vm_id} runs on {' and '.join(executing)}")
        for used, most, what in zip(
            running, self._capacity[host], ("millicores", "bytes of memory"), strict=True
        ):
            if used > most:
                raise Broken(f"{host} runs {used} of {most} {what}")

    def _is_wanted(self, vm_id: str) -> bool:
        row = self.books.vms.get(vm_id)
        return row is not None and row.desired != "absent" and vm_id not in self.adrift

    def _may_be_gone(self, host: str, vm_id: str, before: LocalVM | None) -> None:
        if before is None or (vm_id, host) in self._may_go:
            return
        raise Broken(f"{vm_id} was {before.state} on {host} and was destroyed without an order")

    # The ledger

    def committed(self, events: list[Event]) -> None:
        """Check a commit of the ledger."""
        planned = False
        for event in events:
            if event.seq != self._seq + 1:
                raise Broken(f"event {event.seq} follows {self._seq}")
            self._seq = event.seq
            changes = read_changes(event.changes)
            self.books.at_ms = event.at_ms
            if event.kind == "vm.expired":
                self.deleted.add(event.subject.partition("/")[2])
            self.books.apply(event.kind, changes)
            for number, host in changes.hosts.items():
                if host is not None and host.health == "offline":
                    self.plans.host_lost(int(number))
            if changes.plans or changes.plan_moves:
                if wrong := self.plans.apply(changes.plans, changes.plan_moves):
                    raise Broken(wrong)
                planned = True
            for vm_id, vm in changes.vms.items():
                self._see_row(event, vm_id, vm)
            self._see_graves(changes)
            if event.kind == "host.fenced":
                self.guests.fenced(event.subject.partition("/")[2])
            elif event.kind in ("vm.refused", "vm.displaced"):
                self.guests.forget(event.subject.partition("/")[2])
        self.books.check()
        if planned:
            moving = {vm: (row.phase, row.target) for vm, row in self.books.vms.items()}
            if wrong := self.plans.check(moving):
                raise Broken(wrong)

    def _see_row(self, event: Event, vm_id: str, vm: VM | None) -> None:
        if vm is None:
            if vm_id not in self.deleted:
                raise Broken(f"{vm_id} is gone by {event.kind}, and nobody deleted it")
            return
        if vm.phase == "recalling" and vm.target is not None:
            self._may_go.add((vm_id, self.books.host_name(vm.target)))
        if vm.desired != "absent" and vm.host is not None:
            self._may_go.discard((vm_id, self.books.host_name(vm.host)))

    def _see_graves(self, changes: Changes) -> None:
        for key, row in changes.tombstones.items():
            if row is not None:
                vm_id, _, number = key.rpartition("|")
                self._may_go.add((vm_id, self.books.host_name(int(number))))

    def was_accepted(self, name: str, vm_id: str) -> None:
        """Record that a user was told that a VM exists."""
        self.accepted[vm_id] = name
        if not self._is_accounted_for(vm_id):
            raise Broken(f"{name} was accepted as {vm_id}, and is nowhere")

    def _is_accounted_for(self, vm_id: str) -> bool:
        return vm_id in self.books.vms or vm_id in self.deleted or vm_id in self.adrift

    def restored(self, connection: Connection) -> None:
        """Begin again from an old database that was put in place of the ledger."""
        before = self.books.vms
        self.books = Books.read(connection, self._now)
        self.plans = PlannedMoves.read(connection)
        after = self.books.vms
        for vm_id in before | after:
            if before.get(vm_id) != after.get(vm_id):
                self.adrift.add(vm_id)
                self.guests.forget(vm_id)
        for row in connection.execute(select(tombstones.c.vm, tombstones.c.host)):
            self._may_go.add((row.vm, self.books.host_name(row.host)))
        head = select(counters.c.value).where(counters.c.name == "events")
        self._seq = int(connection.execute(head).scalar_one())

    def clear_away(self, host: str, vm_id: str) -> bool:
        """Allow a copy to be destroyed by hand that no ledger knows since a restore."""
        if vm_id not in self.adrift or vm_id in self.books.vms:
            return False
        self._may_go.add((vm_id, host))
        return True

    @property
    def head(self) -> int:
        """Return the sequence of the last event."""
        return self._seq

    # The end

    def lost(self) -> str:
        """Return the VMs that were accepted, not deleted, and are nowhere; empty when none is."""
        for vm_id, name in self.accepted.items():
            if not self._is_accounted_for(vm_id):
                return f"{name} ({vm_id}) was accepted and is nowhere"
        return ""

    def missing_hosts(self) -> str:
        """Return which host takes no part although nothing is wrong with it; empty when none."""
        known = {host.name: host for host in self.books.hosts.values()}
        for name in self._capacity:
            host = known.get(name)
            if host is None:
                return f"{name} is not registered"
            if host.health != "online" or host.fenced is not None:
                return f"{name} is {host.health if host.fenced is None else 'fenced'}"
        return ""

    def strays(self) -> str:
        """Return which copy lies on a host and is in no ledger; empty when none does."""
        for vm_id, copies in self.copies.items():
            if vm_id not in self.books.vms and vm_id not in self.adrift:
                return f"{vm_id} lies on {sorted(copies)} and is in no ledger"
            row = self.books.vms.get(vm_id)
            if row is not None and row.host is not None and vm_id not in self.adrift:
                home = self.books.host_name(row.host)
                if sorted(copies) != [home]:
                    return f"{vm_id} lies on {sorted(copies)} and belongs on {home} alone"
        return ""

    def executing(self, vm_id: str) -> list[str]:
        """Return where a VM executes or stands still."""
        copies = self.copies.get(vm_id, {})
        return sorted(name for name, vm in copies.items() if vm.state in (*_RUNS, "paused"))
