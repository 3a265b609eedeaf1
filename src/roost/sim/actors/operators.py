"""What operators do that takes more than one request, and what strikes many hosts at once.

Maintenance follows how things go: a host is switched off only once it is empty, and opened again
when it never gets empty. A rack or a zone that loses power or network loses it on all its hosts at
one moment.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from roost.base.errors import NotFound
from roost.control.plane import Plane
from roost.parts.access import Principal
from roost.sim.actors.probes import measure_for_ever
from roost.wire.bodies import CreateProject, QuotaBody, SetQuota

if TYPE_CHECKING:
    from roost.sim.world import World

ADMIN = Principal("admin", "admin")
#: How often an operator looks whether a host is empty.
_LOOKS_S = 5.0


class Operators:
    """A part of `Actor`: procedures, and losses of many hosts."""

    _world: "World"
    _ask: Callable[[str, str, dict[str, Any]], "asyncio.Task[None]"]
    _power_off: Callable[[str, float], None]
    _cut: Callable[[str, bool, bool, float], None]

    def __init__(self) -> None:
        self._procedures: dict[asyncio.Task[None], None] = {}

    def _begin(self, procedure: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(procedure)
        self._procedures[task] = None
        task.add_done_callback(self._procedures.pop)

    def end_procedures(self) -> None:
        """End every procedure of an operator."""
        for task in list(self._procedures):
            task.cancel()

    # Maintenance

    def _maintain(self, host: str, off: float, patience: float) -> None:
        self._begin(self._maintenance(host, off, patience))

    async def _maintenance(self, host: str, off_s: float, patience_s: float) -> None:
        world, loop = self._world, asyncio.get_running_loop()
        await self._ask("drain", host, {})
        end = loop.time() + patience_s
        while not self._is_empty(host) and loop.time() < end:
            await asyncio.sleep(_LOOKS_S)
        if self._is_empty(host):
            world.note("maintenance", host, "off")
            world.hosts[host].power_off()
            await asyncio.sleep(off_s)
            world.hosts[host].start()
        await self._ask("uncordon", host, {})

    def _is_empty(self, host: str) -> bool:
        books = self._world.laws.books
        return all(
            not books.promised[number][3]
            for number, known in books.hosts.items()
            if known.name == host
        )

    # The network

    def measure(self) -> None:
        """Begin to measure the network, again and again."""
        self._begin(measure_for_ever(self._world))

    # Quotas

    async def set_quota(self, plane: Plane, project: str, limits: dict[str, Any]) -> None:
        """Set what a project may use, and make the project if there is none."""
        quota = QuotaBody(**limits)
        try:
            await plane.projects.set_quota(project, SetQuota(quota=quota), ADMIN)
        except NotFound:
            await plane.projects.create(CreateProject(name=project, quota=quota), ADMIN)

    # Losses

    def _lose_host(self, host: str, how: str, for_: float) -> None:
        if how == "power":
            self._power_off(host, for_)
        else:
            self._cut(host, True, True, for_)

    def _lose_rack(self, rack: str, how: str, for_: float) -> None:
        self._lose_all([h.name for h in self._world.hosts.values() if h.rack == rack], how, for_)

    def _lose_zone(self, zone: str, how: str, for_: float) -> None:
        self._lose_all([h.name for h in self._world.hosts.values() if h.zone == zone], how, for_)

    def _lose_all(self, hosts: list[str], how: str, for_: float) -> None:
        for host in hosts:
            self._lose_host(host, how, for_)
