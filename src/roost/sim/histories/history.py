"""What happens in a world, as data: timed actions that a seed makes, a file holds, a person reads.

A history is complete: with it and the world's seed every run is the same. That is why a failing one
can be made shorter, action by action.
"""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct


class Action(Struct, frozen=True, omit_defaults=True):
    """One thing that somebody or something does at a time."""

    at: float
    do: str
    on: str = ""  # a VM, host or plane
    with_: dict[str, Any] = msgspec.field(default_factory=dict, name="with")

    def __str__(self) -> str:
        given = " ".join(f"{key}={value}" for key, value in self.with_.items())
        return f"{self.at:8.2f} s  {self.do} {self.on} {given}".rstrip()


class Machines(Struct, frozen=True, omit_defaults=True):
    """Some equal hosts: what each has, and how they stand in zones and racks."""

    count: int
    cpu: int = 16
    memory_gib: int = 64
    disk_gib: int = 1000
    zones: tuple[str, ...] = ("z0",)
    racks: int = 0  # in each zone; 0: nobody says where they stand
    guard: bool = True  # a fence guard runs beside the agent


class HostPlan(NamedTuple):
    """One host of a world."""

    cpu: int
    memory_gib: int
    disk_gib: int
    zone: str
    rack: str
    guard: bool


class History(Struct, omit_defaults=True):
    """The world and all that is done to it."""

    seed: int
    hosts: int = 5
    planes: int = 2
    zones: int = 2
    cpu: int = 4
    memory_gib: int = 16
    calm_s: float = 0.0  # after the last action, faults end; then everything must converge
    lazy: bool = False  # time stands still where nothing happens
    rates: dict[str, float] = {}  # how fast the clocks of some hosts and planes run
    timers: Literal["short", "production"] = "short"
    length_s: float = 0.0  # how long it lasts at least, when the last action is earlier
    cards: int = 0  # GPUs of each host
    continuous: float = 0.0  # planes look so often at what to move, and move it; 0: never
    rogue: bool = False  # one more host, whose agent lies
    measured: bool = False  # the network is measured all the time; with one plane
    machines: list[Machines] = []  # none: all have `cpu` and `memory_gib`, in `zones` zones
    actions: list[Action] = []

    def host_plan(self, number: int) -> HostPlan:
        """Return what a host has and where it stands."""
        at = number
        for some in self.machines:
            if at < some.count:
                zone = some.zones[at % len(some.zones)]
                rack = f"{zone}-r{at // len(some.zones) % some.racks}" if some.racks else ""
                return HostPlan(
                    some.cpu, some.memory_gib, some.disk_gib, zone, rack, guard=some.guard
                )
            at -= some.count
        zone = f"z{number % self.zones}"
        return HostPlan(self.cpu, self.memory_gib, 1000, zone, "", guard=number % 4 != 3)


def host_name(number: int) -> str:
    """Return the name of a host."""
    return f"h{number}"
