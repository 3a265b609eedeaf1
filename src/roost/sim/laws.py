"""The laws of the world, checked after every event; and what must be true once faults have ended.

| law | checked |
|---|---|
| at most one copy of a VM executes | at every change of a VM on a host |
| no host runs more than it has | at every change of a VM on a host |
| no VM is destroyed without a tombstone, or a withdrawal | at every change of a VM on a host |
| no host promises more than it has | at every commit, for the hosts it touched |
| every accepted create exists until its delete | at every commit |
| events have no gaps | at every commit |
| rows, claims, quotas and events agree (`doctor`) | every so many commits, and at the end |
"""

from collections import defaultdict
from typing import Any

import msgspec

from roost.agent.drivers.base import LocalVM
from roost.ledger.rows import Event

#: States in which a guest really executes.
_RUNS = ("starting", "running")


class Broken(AssertionError):
    """A law was broken."""


class Laws:
    """Watches one world."""

    def __init__(self) -> None:
        self.copies: dict[str, dict[str, LocalVM]] = defaultdict(dict)  # VM -> host -> copy
        self.accepted: dict[str, str] = {}  # name -> id of VMs whose create was answered
        self.deleted: set[str] = set()  # ids whose delete was accepted, or is in doubt
        self.existing: set[str] = set()  # ids with a row
        self.may_go: set[tuple[str, str]] = set()  # (VM, host) with a tombstone or withdrawal
        self.capacity: dict[str, int] = {}
        self._seq = 0

    # Hosts

    def vm_changed(self, host: str, vm_id: str, vm: LocalVM | None) -> None:
        """See what became of a copy."""
        copies = self.copies[vm_id]
        before = copies.get(host)
        if vm is None:
            copies.pop(host, None)
            self._may_be_gone(host, vm_id, before)
            return
        copies[host] = vm
        running = sorted(name for name, copy in copies.items() if copy.state in _RUNS)
        if len(running) > 1:
            raise Broken(f"{vm_id} runs on {' and '.join(running)}")
        used = sum(
            there[host].cpu_milli
            for there in self.copies.values()
            if host in there and there[host].state in _RUNS
        )
        if used > self.capacity[host]:
            raise Broken(f"{host} runs {used} of {self.capacity[host]} millicores")

    def _may_be_gone(self, host: str, vm_id: str, before: LocalVM | None) -> None:
        if before is None or (vm_id, host) in self.may_go:
            return
        raise Broken(f"{vm_id} was {before.state} on {host} and was destroyed without an order")

    # The ledger

    def committed(self, events: list[Event], names: dict[int, str]) -> None:
        """See what was committed; `names` are the hosts' by number."""
        for event in events:
            if event.seq != self._seq + 1:
                raise Broken(f"event {event.seq} follows {self._seq}")
            self._seq = event.seq
            changes: dict[str, dict[str, Any]] = msgspec.json.decode(event.changes)
            for vm_id, row in changes.get("vms", {}).items():
                self._row(event, vm_id, row, names)
            for key, row in changes.get("tombstones", {}).items():
                vm_id, _, number = key.rpartition("|")
                if row is not None:
                    self.may_go.add((vm_id, names.get(int(number), "")))

    def _row(
        self, event: Event, vm_id: str, row: dict[str, Any] | None, names: dict[int, str]
    ) -> None:
        if row is None:
            self.existing.discard(vm_id)
            if vm_id not in self.deleted:
                raise Broken(f"{vm_id} is gone by {event.kind}, and nobody deleted it")
            return
        self.existing.add(vm_id)
        if row["phase"] == "recalling" and row["target"] is not None:
            self.may_go.add((vm_id, names.get(row["target"], "")))
        if row["desired"] != "absent" and row["host"] is not None:
            home = names.get(row["host"], "")
            self.may_go.discard((vm_id, home))

    def was_accepted(self, name: str, vm_id: str) -> None:
        """Note that somebody was told that a VM exists."""
        self.accepted[name] = vm_id
        if vm_id not in self.existing and vm_id not in self.deleted:
            raise Broken(f"{name} was accepted as {vm_id}, and is nowhere")

    # The end

    def executing(self, vm_id: str) -> list[str]:
        """Return where a VM executes or stands still."""
        copies = self.copies.get(vm_id, {})
        return sorted(name for name, vm in copies.items() if vm.state in (*_RUNS, "paused"))
