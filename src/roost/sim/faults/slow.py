"""Faults beyond crashes and cuts: slow networks and databases, full disks, failing hypervisors.

Also who is meant by words: `source of vm3` is the host that has the VM when the action is done,
`target of vm3` the one it moves to. What hits the right host at the right moment finds mistakes
that chance alone would need thousands of worlds for.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from roost.ledger.schema.tables import hosts, vms

if TYPE_CHECKING:
    from roost.sim.world import World


class Mischief:
    """The slow faults, as a part of `Actor`."""

    _world: "World"
    _kill_agent: Callable[[str, float], None]

    def _who(self, name: str) -> str | None:
        """Return the victim of a fault, None when there is none."""
        role, _, vm = name.partition(" of ")
        if not vm:
            return name
        column = vms.c.target if role == "target" else vms.c.host
        query = select(hosts.c.name).join(vms, column == hosts.c.number).where(vms.c.name == vm)

        def question(connection: Connection) -> str | None:
            return connection.execute(query).scalar()

        found: str | None = self._world.ask(question)
        return found

    def _strike(self, fault: str, victim: str) -> None:
        """Record a fault, and what its victim was doing."""
        doing = "plane"
        if victim in self._world.hosts:
            doing = self._world.ask(lambda connection: _part_in_moves(connection, victim))
        self._world.note(f"fault.{fault}", victim, f"during:{doing}")

    def _slow(self, host: str, seconds: float, for_: float) -> None:
        """Let a wire be congested: everything arrives, in order, and late."""
        self._strike("slow", host)
        wire = self._world.network.wire(host)
        wire.slow_s = seconds
        self._later(for_, lambda: setattr(wire, "slow_s", 0.0))

    def _disk_full(self, host: str, for_: float) -> None:
        """Let an agent write nothing."""
        ailments = self._world.hosts[host].ailments
        ailments.full = True
        self._later(for_, lambda: setattr(ailments, "full", False))

    def _forget(self, host: str, after: float) -> None:
        """Let an agent write nothing from now on, and kill it: it goes on with what it had."""
        self._disk_full(host, after + 1.0)
        self._later(after, lambda: self._kill_agent(host, 2.0))

    def _blind(self, host: str, for_: float) -> None:
        """Let a hypervisor not tell what it has."""
        ailments = self._world.hosts[host].ailments
        ailments.blind = True
        self._later(for_, lambda: setattr(ailments, "blind", False))

    def _refuse_vms(self, host: str, times: int) -> None:
        """Let a hypervisor find no room for the next VMs, although there should be."""
        self._world.hosts[host].ailments.refusals = times

    def _driver_fails(self, host: str, times: int) -> None:
        """Let the next changes of VMs fail."""
        self._world.hosts[host].ailments.failures = times

    def _slow_database(self, plane: str, seconds: float, for_: float) -> None:
        """Let a plane wait for every answer of the database."""
        store = self._world.planes[plane].store
        if store is not None:
            self._strike("slow_database", plane)
            store.troubles.slow_s = seconds
            self._later(for_, lambda: setattr(store.troubles, "slow_s", 0.0))

    def _lose_database(self, plane: str, for_: float) -> None:
        """Cut a plane, and it alone, off from the database."""
        store = self._world.planes[plane].store
        if store is not None:
            store.troubles.away = True
            self._later(for_, lambda: setattr(store.troubles, "away", False))

    def _later(self, seconds: float, end: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(seconds, end)


def _part_in_moves(connection: Connection, host: str) -> str:
    """Return which part a host has in a move, if it has one."""
    query = select(vms.c.phase, vms.c.host == hosts.c.number).where(
        vms.c.phase != "",
        hosts.c.name == host,
        (vms.c.host == hosts.c.number) | (vms.c.target == hosts.c.number),
    )
    found = connection.execute(query.order_by(vms.c.id)).first()
    if found is None:
        return "rest"
    return f"{found[0]}, as {'source' if found[1] else 'target'}"
