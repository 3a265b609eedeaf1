"""Lets time stand still where nothing happens: a quiet week need not beat 120 million times.

Two kinds of time pass in a lazy world. The control room's (`control`) passes only while a plane has
something to do; a host that has nothing to do counts in it too. So a healthy link renews the lease
as an interval: for each second that the planes count, every resting host counts one, and its
heartbeats are due no more often than the planes look for them. A host that is touched, by an order,
a fault or one of its VMs, counts real time until it is still again; and while anything in the world
is in trouble or unfinished, the control room counts real time, and with it everybody.

What remains true: no clock is ever ahead of another that judges it, every message of an interval
that somebody could miss is sent. What is lost: timers much longer than a moment do not run down
while the world rests. Only a world without faults rests for long.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from roost.ledger.schema.rows import Event
from roost.sim.actors.hosts import SimHost
from roost.sim.ground.clocks import PausedTime

#: How long after the last touch somebody may rest. Longer than production gathers reports (50 ms).
_HOST_S = 0.12
_CONTROL_S = 0.02
#: How soon somebody who could not rest is looked at again.
_AGAIN_S = 0.25
#: How long a move may take before the planes count the time for it.
_LONG_MOVE_S = 10.0
#: How long a host may count real time alone. Then the planes count it too, and renew its lease.
_ALONE_S = 20.0


class Stillness:
    """Tracks which processes are idle, so that their time can be skipped."""

    def __init__(
        self,
        hosts: Mapping[str, SimHost],
        control: PausedTime,
        planes_are_well: Callable[[], bool],
        renew: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._hosts, self._planes_are_well, self._renew = hosts, planes_are_well, renew
        self.control = control
        self._awake: dict[str, float] = {}  # hosts that count real time, and since when
        self._until: dict[str, float] = {}  # ... and until when at least
        self._control_until = 0.0
        self._asking = 0  # requests of users that are under way
        self._unfinished: set[str] = set()  # VMs and hosts about which a plane has more to do
        self._moving: dict[str, float] = {}  # VMs that move, and since when
        self._looking = False
        self._ended = False

    def noted(self, kind: str, who: str, detail: str) -> None:
        """Mark processes busy by an event of the world."""
        if self._ended:
            return
        if kind == "net.up":
            if detail != "heartbeat":
                self._touch_control()
            elif who in self._awake:
                # It counts real time and the planes may not: its lease cannot wait for their turn.
                self._loop.call_soon(self._renew)
        elif kind == "net.down":
            if detail != "renewed":
                self._touch_host(who)
        elif kind == "commit":
            self._touch_control()
        elif kind != "transaction":
            self._touch_control()
            if who in self._hosts:
                self._touch_host(who)

    def committed(self, events: list[Event]) -> None:
        """Mark VMs and hosts unfinished by a commit of the ledger."""
        if self._ended:
            return
        for event in events:
            changes: dict[str, dict[str, dict[str, Any] | None]]
            changes = msgspec.json.decode(event.changes)
            for vm_id, vm in changes.get("vms", {}).items():
                self._count(vm_id, vm is not None and vm["pending"] is not None)
                self._follow_move(vm_id, vm["phase"] if vm is not None else "")
            for number, host in changes.get("hosts", {}).items():
                self._count(f"host {number}", host is not None and not _is_fine(host))

    def _count(self, what: str, unfinished: bool) -> None:
        if unfinished:
            self._unfinished.add(what)
        else:
            self._unfinished.discard(what)

    def _follow_move(self, vm_id: str, phase: str) -> None:
        """Track a move by its hosts' reports; only a long one keeps the planes awake."""
        if not phase:
            self._moving.pop(vm_id, None)
            self._unfinished.discard(f"move {vm_id}")
        elif vm_id not in self._moving:
            began = self._moving[vm_id] = self._loop.time()
            self._loop.call_at(began + _LONG_MOVE_S, self._look_at_move, vm_id, began)

    def _look_at_move(self, vm_id: str, began: float) -> None:
        if self._moving.get(vm_id) == began and not self._ended:
            self._unfinished.add(f"move {vm_id}")
            self._touch_control()

    def asks(self) -> None:
        """Count a user's request that begins."""
        self._asking += 1
        self._touch_control()

    def was_answered(self) -> None:
        """Count a user's request that ends."""
        self._asking -= 1
        self._touch_control()

    def end(self) -> None:
        """Let everybody count real time from here on."""
        self._ended = True
        self.control.go_on()

    # Hosts

    def _touch_host(self, name: str) -> None:
        now = self._loop.time()
        self._until[name] = now + _HOST_S
        if name not in self._awake:
            self._awake[name] = now
            self._hosts[name].machine.follow(self._loop)
            self._loop.call_at(now + _HOST_S, self._look_at_host, name)

    def _look_at_host(self, name: str) -> None:
        now = self._loop.time()
        if self._ended:
            return
        if now < self._until[name]:
            self._loop.call_at(self._until[name], self._look_at_host, name)
        elif self._hosts[name].is_still:
            del self._awake[name]
            self._hosts[name].machine.follow(self.control)
        else:
            if now - self._awake[name] > _ALONE_S:
                self._touch_control()
            self._loop.call_at(now + _AGAIN_S, self._look_at_host, name)

    # The control room

    def _touch_control(self) -> None:
        self.control.go_on()
        self._control_until = self._loop.time() + _CONTROL_S
        if not self._looking:
            self._looking = True
            self._loop.call_at(self._control_until, self._look_at_control)

    def _look_at_control(self) -> None:
        now = self._loop.time()
        if self._ended:
            return
        if now < self._control_until:
            self._loop.call_at(self._control_until, self._look_at_control)
        elif not self._is_calm():
            self._loop.call_at(now + _AGAIN_S, self._look_at_control)
        else:
            self._looking = False
            self.control.hold()

    def _is_calm(self) -> bool:
        if self._asking or self._unfinished or not self._planes_are_well():
            return False
        alone_since = self._loop.time() - _ALONE_S
        return all(
            since > alone_since and self._hosts[name].is_well for name, since in self._awake.items()
        )


def _is_fine(host: dict[str, Any]) -> bool:
    return host["health"] == "online" and host["admin"] != "draining" and not host["fenced"]
