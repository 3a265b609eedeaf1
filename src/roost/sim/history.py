"""What happens in a world, as data: timed actions that a seed makes, a file holds, a person reads.

A history is complete: with it and the world's seed every run is the same. That is why a failing one
can be made shorter, action by action.
"""

from typing import Any

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


class History(Struct, omit_defaults=True):
    """The world and all that is done to it."""

    seed: int
    hosts: int = 5
    planes: int = 2
    zones: int = 2
    cpu: int = 4
    memory_gib: int = 16
    calm_s: float = 0.0  # after the last action, faults end; then everything must converge
    actions: list[Action] = []


def host_name(number: int) -> str:
    """Return the name of a host."""
    return f"h{number}"
