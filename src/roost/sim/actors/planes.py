"""One simulated control-plane process, one life after another, on the world's database."""

import asyncio
from collections.abc import Callable
from random import Random

from roost.base.errors import RoostError
from roost.base.ids import IdSource
from roost.control.plane import Plane, PlaneSettings
from roost.control.plans.continuouslimits import ContinuousLimits
from roost.control.timers import Timers
from roost.ledger.upkeep.base import EventsKept
from roost.sim.actors.database import Database, PlaneStore
from roost.sim.ground.clocks import Frame, Machine, NodeClock
from roost.sim.ground.lives import Life
from roost.sim.ground.network import Network

#: After which a process that ended by itself is started again.
_STARTED_AGAIN_S = 1.0

#: Events of a world are folded while it lasts, and none that a plane could still have to read.
_EVENTS = EventsKept(seconds=120, least=20)


class SimPlane:
    """One plane of the world."""

    def __init__(
        self,
        name: str,
        database: Database,
        network: Network,
        random: Random,
        timers: Timers,
        frame: Frame,
        note: Callable[[str, str, str], None],
        continuous_s: float = 0.0,
    ) -> None:
        self.name = name
        self.machine = Machine(frame)
        self.life: Life | None = None
        self.plane: Plane | None = None
        self.store: PlaneStore | None = None
        self._database, self._network, self._random = database, network, random
        self._timers, self._note = timers, note
        # Of two planes that look, one holds the lease; who takes over counts its looks anew.
        self._continuous = ContinuousLimits()
        if continuous_s:
            self._continuous = ContinuousLimits(mode="apply", every_s=continuous_s)
        self._lives = 0

    def start(self) -> None:
        """Start the simulated process."""
        if self.life is not None:
            return
        self._lives += 1
        life = self.life = Life(f"{self.name}.{self._lives}")
        self._note("start", self.name, life.name)
        clock = NodeClock(self.machine, life)
        self.store = self._database.attach(life, self.kill)
        ids = IdSource(clock.wall_ms, Random(self._random.getrandbits(64)))
        settings = PlaneSettings(
            "least_loaded", timers=self._timers, events=_EVENTS, continuous=self._continuous
        )
        plane = self.plane = Plane(self.store, clock, ids, settings, series=self._database.series)
        self._network.planes[self.name] = (plane, life)
        life.spawn(self._serve(plane))

    async def _serve(self, plane: Plane) -> None:
        """Start the plane; a process that cannot ends, and is started again as by systemd."""
        try:
            await plane.start()
        except RoostError as error:
            self._note("exit", self.name, error.message)
            asyncio.get_running_loop().call_later(_STARTED_AGAIN_S, self.start)
            self.kill()

    def kill(self) -> None:
        """Kill the simulated process at once."""
        if self.life is None:
            return
        life, self.life, self.plane, self.store = self.life, None, None, None
        del self._network.planes[self.name]
        life.end()
        self._network.plane_died(life)

    def thaw(self) -> None:
        """Let a stopped process go on, and take what has arrived meanwhile."""
        if self.life is not None:
            self.life.thaw()
            for connection in list(self._network.connections):
                if connection.plane_life is self.life:
                    connection.push()

    def renew_leases(self) -> None:
        """Write the plane's queued heartbeats at once, before its own turn."""
        if self.life is not None and self.plane is not None:
            self.life.spawn(self.plane.evidence.flush())

    @property
    def is_ready(self) -> bool:
        """Return whether it serves requests."""
        return (
            self.plane is not None
            and self.life is not None
            and self.life.frozen is None
            and self.plane.readiness().status == "ready"
        )
