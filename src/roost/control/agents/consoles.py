"""Consoles: ask the host of a VM for a piece of its serial log."""

from collections.abc import Sequence

from roost.base.errors import Conflict
from roost.control.agents.routes import console_routes
from roost.control.agents.sessions import Agents
from roost.control.memory.roster import Roster
from roost.control.vms.lookup import vm_row
from roost.ledger.store import Store
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.bodies import ConsoleBody


class Consoles(Part):
    """Reads serial logs of guests through the agents that are connected here."""

    def __init__(self, store: Store, roster: Roster, agents: Agents) -> None:
        self._store, self._roster, self._agents = store, roster, agents

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return console_routes(self)

    async def console(
        self, ref: str, project: str | None, start: int | None, limit: int, who: Principal
    ) -> ConsoleBody:
        """Return the last `limit` bytes of a VM's serial log, or at most so many from `start`."""
        vm = await self._store.read(lambda connection: vm_row(connection, ref, project, who))
        if vm.host is None:
            raise Conflict(f"VM {vm.name!r} has no host yet", vm=vm.id)
        told = await self._agents.ask(vm.host, vm.id, start, limit)
        host = self._roster.host_name(vm.host) or ""
        return ConsoleBody(
            vm=vm.id, text=told.text, start=told.start, end=told.end, host=host, base=told.base
        )
