"""The exporter: what nodes and VMs use, for Prometheus, and the few things it can be asked to do.

    mirrors -> usage -> counters -> exposition -> GET /metrics
    (or roost's own fleet -> usage, where there is no Kubernetes)

It decides nothing. `exporterapp` puts it behind a socket.
"""

from collections.abc import Sequence
from typing import Any

from roost.base.clock import Clock, RealClock
from roost.base.errors import NotFound
from roost.kube.base.client import Kube
from roost.kube.metering.exposition import NodePage, family
from roost.kube.metering.kubesource import KubeSource
from roost.kube.metering.loaded import read_body
from roost.kube.metering.ownfleet import OwnFleet
from roost.kube.metering.sources import Asked, Health, Landed, Moved, Source

SOURCES = (KubeSource.name, OwnFleet.name)


class Exporter:
    """Joins a source with what is told of it."""

    def __init__(
        self,
        kube: Kube | None,
        namespace: str | None = None,
        *,
        clock: Clock | None = None,
        home: str | None = None,
        avoid_pressure: float | None = None,
        own_fleet: OwnFleet | None = None,
        watch_s: int = 60,
    ) -> None:
        """Show a cluster, its pods of one namespace or all; or a fleet of roost's own.

        Scenarios are loaded in the namespace `home`.
        """
        clock = clock or RealClock()
        self.source: Source
        if kube is not None:
            self.source = KubeSource(
                kube, namespace, clock, home=home, avoid_pressure=avoid_pressure, watch_s=watch_s
            )
        else:
            self.source = own_fleet or OwnFleet(why="no cluster was given")
        self.usage = self.source.usage
        self._home = home or namespace or "default"
        self._nodes = NodePage(self.usage, clock)
        self._landed: Landed | None = None

    async def start(self) -> None:
        """Begin; fails when the source cannot be read."""
        await self.source.start()

    async def stop(self) -> None:
        """End, and leave nothing behind."""
        await self.source.stop()

    def health(self) -> Health:
        """Return the health of the exporter's source."""
        return self.source.health()

    async def refresh(self) -> Health:
        """Read the source anew now."""
        await self.source.refresh()
        return self.health()

    def metrics(self) -> bytes:
        """Return the page that Prometheus reads."""
        health = self.source.health()
        page = self._nodes.lines()
        page += self.source.extra_lines()
        page.append(
            family(
                "roost_exporter_source", "What is shown.",
                [({"source": name}, int(name == health.source)) for name in SOURCES],
            )
        )  # fmt: skip
        page.append(
            family(
                "roost_exporter_view_age_seconds", "How long the watch is broken; 0: it is not.",
                [({}, health.view_age_s)],
            )
        )  # fmt: skip
        return "".join(page).encode()

    def node(self, name: str) -> dict[str, Any]:
        """Return one node with its VMs."""
        use = self.usage.node(name)
        if use is None or use.capacity is None:
            raise NotFound(f"there is no node {name!r}", node=name)
        vms = [
            {
                "vm": charge.vm,
                "namespace": key[0],
                "pod": key[1] if key[0] else "",
                "cpu_milli": charge.cpu_milli,
                "memory_bytes": charge.allocated_bytes,
                "cpu_used_milli": charge.cpu_micro / 1000,
                "memory_used_bytes": charge.memory_bytes,
            }
            for key, charge in sorted(use.charges.items())
            if charge.vm
        ]
        return {
            "node": name,
            "cpu_milli": use.capacity.cpu_milli,
            "memory_bytes": use.capacity.memory_bytes,
            "cpu_usage_ratio": use.cpu_ratio,
            "cpu_demand_ratio": use.cpu_demand,
            "cpu_pressure": use.cpu_pressure,
            "memory_usage_ratio": use.memory_ratio,
            "memory_pressure": use.memory_pressure,
            "pods": len(use.charges),
            "vms": vms,
        }

    async def load(self, body: bytes, name: str | None, wait_s: float) -> Landed:
        """Load a scenario from a document in either form, or a shipped one by its name."""
        loaded = read_body(body, name, self._home)
        self._landed = await self.source.load(loaded, wait_s)
        return self._landed

    def scenario(self) -> Landed:
        """Return where the VMs of the loaded scenario went."""
        if self._landed is None:
            raise NotFound("no scenario was loaded", hint="Maybe POST one here.")
        return self._landed

    async def feedback(self, asked: Sequence[Asked], wait_s: float) -> list[Moved]:
        """Ask for moves; each is answered for itself."""
        return await self.source.move(asked, wait_s)
