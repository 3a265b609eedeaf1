"""Preemption as the laws see it: from the rows of the ledger, commit by commit.

| law | checked |
|---|---|
| who makes room is of strictly lower priority | when a preemption begins |
| whoever was displaced displaces nobody until it has run again | when a preemption begins |
| a disruption budget is not passed by our doing | when a member moves or is displaced |
| what becomes free where room is made is held for the VM | when a claim there is given back |
| nothing is held for a VM for which no room is made | at every commit |
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from roost.sim.laws.reserved import Hold

if TYPE_CHECKING:
    from roost.sim.laws.books import Books

_PREEMPT = "preempt"
#: Events by which we take a member of a group away from where it runs.
_DISRUPTING = ("vm.move_begun", "vm.displaced")


class _Victim(Struct):
    vm: str


class Preemption(Struct, gc=False):
    """What the laws need of a preemption's row."""

    host: int
    victims: str


def _limits(hold: Hold) -> tuple[int, ...]:
    """Return what is held, in the order of the ledger's limits."""
    return (hold.cpu_milli, hold.memory_bytes, hold.disk_bytes, hold.vms)


_victims = msgspec.json.Decoder(list[_Victim]).decode


class RoomMade:
    """The preemptions of a world, who was displaced, and what is held."""

    def __init__(self) -> None:
        self.preemptions: dict[str, Preemption] = {}
        self.displaced: dict[str, dict[str, Any]] = {}
        self.holds: dict[str, Hold] = {}
        self._begun: list[str] = []
        self._disrupted: list[str] = []
        self._freed: dict[int, None] = {}

    def apply(
        self,
        kind: str,
        preemptions: Mapping[str, Preemption | None],
        displaced: Mapping[str, dict[str, Any] | None],
        holds: Mapping[str, Hold | None],
        vms: Iterable[str],
    ) -> None:
        """Take over what one event says."""
        for vm, row in preemptions.items():
            if row is not None and vm not in self.preemptions and kind:
                self._begun.append(vm)
            _put(self.preemptions, vm, row)
        for vm, mark in displaced.items():
            _put(self.displaced, vm, mark)
        for key, hold in holds.items():
            _put(self.holds, key, hold)
        if kind in _DISRUPTING:
            self._disrupted += vms

    def held_for(self, kind: str) -> list[str]:
        """Return the holds of a kind, by id."""
        return sorted(key for key, hold in self.holds.items() if hold.kind == kind)

    def freed(self, host: int) -> None:
        """Note that a claim on a host was given back."""
        self._freed[host] = None

    def broken(self, books: "Books") -> str:
        """Return which law a commit has broken; empty if none."""
        begun, self._begun = self._begun, []
        disrupted, self._disrupted = self._disrupted, []
        freed, self._freed = self._freed, {}
        return (
            next(filter(None, (self._unfair(books, vm) for vm in begun)), "")
            or next(filter(None, (self._beyond(books, vm) for vm in disrupted)), "")
            or next(filter(None, (self._unheld(books, host) for host in freed)), "")
            or self._forgotten()
        )

    def _unfair(self, books: "Books", vm: str) -> str:
        row, waits = self.preemptions.get(vm), books.vms.get(vm)
        if row is None or waits is None:
            return ""
        if vm in self.displaced:
            return f"room is made for {waits.name}, which was displaced and has not run since"
        for victim in _victims(row.victims):
            found = books.vms.get(victim.vm)
            if found is not None and found.priority >= waits.priority:
                return f"{found.name} makes room for {waits.name}, which is no more important"
        return ""

    def _beyond(self, books: "Books", vm: str) -> str:
        for group, allowed in books.budgets_of(vm):
            away = [each for each in books.members_of(group) if self._is_away(books, each)]
            if len(away) > allowed:
                return f"{len(away)} members of {group} are away, and {allowed} may be"
        return ""

    def _is_away(self, books: "Books", vm: str) -> bool:
        row = books.vms.get(vm)
        if row is None or row.desired == "absent":
            return False
        lost = row.host is None and row.desired != "stopped" and row.generation > 1
        return bool(row.phase) or vm in self.displaced or lost or books.is_offline(row)

    def _unheld(self, books: "Books", host: int) -> str:
        """Check that what is free on a host is held for whoever room is made for there."""
        here = [vm for vm, row in self.preemptions.items() if row.host == host]
        kept = [hold for hold in self.holds.values() if hold.host == host]
        if not here or any(hold.kind == "reservation" for hold in kept):
            return ""
        held = [sum(each) for each in zip((0,) * 4, *(_limits(hold) for hold in kept), strict=True)]
        free = [
            capacity - promised - kept_free
            for capacity, promised, kept_free in zip(
                books.capacity.get(host, (0,) * 4), books.promised[host], held, strict=True
            )
        ]
        for vm in here:
            row, hold = books.vms.get(vm), self.holds.get(f"{_PREEMPT}:{vm}")
            if row is None:
                continue
            have = (0,) * 4 if hold is None else _limits(hold)
            for wanted, had, left in zip((*row.amounts, 1), have, free, strict=True):
                if wanted > had and left > 0:
                    return f"{left} became free where room is made for {row.name}, and is not held"
        return ""

    def _forgotten(self) -> str:
        for hold in self.holds.values():
            vm = hold.owner.partition(":")[2]
            if hold.kind == _PREEMPT and vm not in self.preemptions:
                return f"room is held for {vm}, and none is made for it"
        return ""


def _put(known: dict[str, Any], key: str, row: Any) -> None:
    if row is None:
        known.pop(key, None)
    else:
        known[key] = row
