"""A copy of what is read of a roster to place VMs that end or draw, for questions in a thread.

The fleet alone is not enough for them: what hosts hold of a VM depends on the units of reservations
there, and on the claims that end or draw on them (`holdings`). All of it is of one moment, and
whoever has a copy may change it.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from roost.control.memory.holdings import Holdings
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.fleet.fleet import Fleet
from roost.ledger.claims.holdsums import Living
from roost.placement.engine import Engine


class Places(Protocol):
    """What VMs that end or draw are placed on: a roster, or a copy of one."""

    fleet: Fleet
    engine: Engine
    holdings: Holdings
    hosts: dict[int, HostEntry]
    by_fleet_row: dict[int, HostEntry]
    room: int

    def wall_ms(self) -> int:
        """Return the time by the wall clock."""

    def charge_living(self, key: str, number: int, living: Living) -> None:
        """Count a claim that ends or draws, and hold with it what its host will have to."""


@dataclass(slots=True)
class RosterCopy:
    """Hosts and what they hold beside a copy of the fleet, at the moment of that copy."""

    engine: Engine
    fleet: Fleet
    holdings: Holdings
    hosts: dict[int, HostEntry]
    by_fleet_row: dict[int, HostEntry]
    now_ms: int
    room: int = 0

    @classmethod
    def of(cls, roster: Roster, world: Engine) -> "RosterCopy":
        """Return a copy of what a process knows now; `world` is one of its fleet."""
        hosts = {number: replace(entry) for number, entry in roster.hosts.items()}
        by_row = {entry.fleet_row: entry for entry in hosts.values()}
        now_ms = roster.wall_ms()
        return cls(world, world.fleet, roster.holdings.copy(), hosts, by_row, now_ms)

    def wall_ms(self) -> int:
        """Return the moment of the copy."""
        return self.now_ms

    def charge_living(self, key: str, number: int, living: Living) -> None:
        """Count a claim that ends or draws, and hold with it what its host will have to."""
        self.holdings.charge(key, number, living)
        held = self.holdings.held(number, self.now_ms)
        self.fleet.keep_free(self.hosts[number].fleet_row, held)
