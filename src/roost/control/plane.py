"""The control plane of one process: every use case, built from what it was given, and its loops.

Nothing here or below reads a clock, opens a socket or draws a number by itself: clock, ids, store
and fence command are handed in by whoever composes the process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import FleetUnavailable, RoostError
from roost.base.ids import IdSource
from roost.control.admin.doctor import doctor
from roost.control.admin.host_admin import Hosts
from roost.control.admin.projects import Projects
from roost.control.agents.dispatch import Dispatch
from roost.control.agents.intake import Intake
from roost.control.agents.sessions import Agents
from roost.control.create.admit import Admit
from roost.control.create.grouping import Grouping
from roost.control.create.placing import Placing
from roost.control.create.questions import Questions
from roost.control.create.queueing import Queue
from roost.control.memory.eventlog import Broadcast, EventLog
from roost.control.memory.follower import Follower
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.moves.draining import Drain
from roost.control.moves.moving import Moving
from roost.control.survive.liveness import Evidence, Watcher
from roost.control.survive.recover import FenceCommand, Recover
from roost.control.survive.restore_judge import Settling
from roost.control.timers import Timers
from roost.control.vms.lifecycle import Lifecycle
from roost.ledger.retention import RetentionSettings, purge, surplus
from roost.ledger.store import Store
from roost.parts.access import Access
from roost.parts.singleton import Singleton
from roost.wire.bodies import DoctorBody, HealthBody

log = logging.getLogger("roost.plane")

_PURGE_S = 300.0
_MOST_PIECES = 100


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """What an operator may set."""

    strategy: str = "least_loaded"
    timers: Timers = field(default_factory=Timers)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    patience_s: float = 600.0


class Plane:
    """All use cases over one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        settings: PlaneSettings,
        fence_command: FenceCommand | None = None,
    ) -> None:
        self._store, self._clock, self._settings = store, clock, settings
        timers = settings.timers
        self.telemetry = Telemetry()
        self.roster = Roster(settings.strategy)
        self.follower = Follower(store, clock)
        self.access = Access(store, clock, ids)
        self.lineage = Lineage(store, self.roster, clock, timers)
        grouping = Grouping(store, self.roster, self.follower, self.lineage)
        self.admit = Admit(store, self.roster, self.follower, grouping, clock, ids, self.telemetry)
        placing = Placing(store, self.roster, self.follower)
        moving = Moving(store, self.roster, placing, self.lineage)
        self.dispatch = Dispatch(self.roster, self.lineage)
        self.intake = Intake(store, clock)
        self.evidence = Evidence(store)
        self.agents = Agents(
            store, self.roster, self.follower, self.dispatch, self.intake, self.evidence,
            self.lineage, clock, timers,
        )  # fmt: skip
        self.vms = Lifecycle(store, self.roster, moving, self.agents)
        self.hosts = Hosts(store, self.roster, self.agents)
        self.questions = Questions(self.roster, grouping)
        self.projects = Projects(store)
        self.events = EventLog(store)
        self._keeper = Singleton(
            store, clock, "keeper", ids.new("plane"), length_s=timers.singleton_s
        )
        self._watcher = Watcher(store, self.roster, clock, timers, self._keeper)
        self._recover = Recover(
            store, self.roster, placing, self._watcher, timers, self._keeper, fence_command
        )
        self._queue = Queue(
            store, self.roster, placing, clock, self._keeper, patience_s=settings.patience_s
        )
        self._settling = Settling(store, self.lineage, self._keeper)
        self._drain = Drain(store, self.roster, moving, self._keeper, clock, timers)
        self._status = "loading the fleet"
        self._tasks: list[asyncio.Task[None]] = []

    # Beginning and end

    async def start(self, warm_up: Callable[[], Awaitable[None]] | None = None) -> None:
        """Load the fleet, make the kernels ready and begin the loops."""
        await self.load(warm_up)
        timers = self._settings.timers
        self._tasks = [
            asyncio.create_task(self.follower.run()),
            asyncio.create_task(self.intake.run()),
            asyncio.create_task(self._every(timers.flush_s, self.flush)),
            asyncio.create_task(self._every(timers.watch_s, self.look_back)),
            asyncio.create_task(self._every(timers.watch_s, self.run_singletons)),
            asyncio.create_task(self._every(timers.flush_s, self.agents.send_full_lists)),
            asyncio.create_task(self._every(_PURGE_S, self._purge)),
        ]

    async def load(self, warm_up: Callable[[], Awaitable[None]] | None = None) -> None:
        """Load the fleet and follow the events from there; nothing runs by itself yet."""
        applied = await self._store.read(self._load)
        self.follower.start(
            applied, [self.lineage, self.roster, self.dispatch, self.access, Broadcast(self.events)]
        )
        self.telemetry.watch(self.roster, lambda: self.agents.online, lambda: self.lineage.doubted)
        await self.follower.catch_up()
        if warm_up is not None:
            self._status = "compiling kernels"
            await warm_up()
        self._status = "ready"
        self.agents.ready.set()

    def _load(self, connection: Connection) -> int:
        applied = self.roster.load(connection)
        self.dispatch.load(connection)
        self.lineage.load(connection)
        return applied

    async def stop(self) -> None:
        """End the loops and the connections; the store is whoever's opened it."""
        self._status = "stopping"
        await self.agents.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do something again and again; what goes wrong is logged and tried again."""
        while True:
            await self._clock.sleep(seconds)
            try:
                await work()
            except RoostError as error:
                log.warning("%s: %s", getattr(work, "__qualname__", "loop"), error.message)
            except Exception:  # a service loop must outlive its mistakes
                log.exception("%s failed", getattr(work, "__qualname__", "loop"))

    async def flush(self) -> None:
        """Write down who was heard of since."""
        await self.evidence.flush()

    async def look_back(self) -> None:
        """See whether the ledger can be trusted, and ask hosts what they have while it cannot."""
        await self.lineage.look()
        await self.agents.call_roll()

    async def run_singletons(self) -> None:
        """Do what one process does for all: watch, settle, recover, retry, drain."""
        held = self._keeper.token is not None
        if not await self._keeper.tick():
            return
        if not held:
            self._watcher.forget()
        await self._watcher.watch()
        await self.lineage.look()
        parts = [self._settling.look]
        if self.lineage.sure:
            parts += [self._recover.look, self._queue.look, self._drain.look]
        for part in parts:
            try:
                await part()
            except RoostError as error:
                log.warning("%s: %s", part.__qualname__, error.message)
            except Exception:  # one part's mistake must not keep the others from their work
                log.exception("%s failed", part.__qualname__)

    async def _purge(self) -> None:
        """Delete what is older or more than wanted, piece by piece, until nothing is left."""
        keep = self._settings.retention
        for _ in range(_MOST_PIECES):
            if self._keeper.token is None:
                return
            now = self._clock.wall_ms()
            seen = await self._store.read(lambda connection: surplus(connection, keep))
            gone = await self._store.write(lambda tx: purge(tx, now, keep, seen))  # noqa: B023
            if not gone.more:
                return

    # Answers about itself

    async def doctor(self) -> DoctorBody:
        """Check every invariant on the live database."""
        return await doctor(self._store)

    def readiness(self) -> HealthBody:
        """Say whether requests can be served."""
        if self._status == "ready":
            said = f"an old database was restored: {self.lineage.doubted} VMs are in doubt"
            return HealthBody(status="ready", detail=said if self.lineage.restored else "")
        return HealthBody(status="starting", detail=self._status)

    def metrics_text(self) -> bytes:
        """Return the Prometheus exposition."""
        return self.telemetry.text()

    def require_ready(self) -> None:
        """Refuse while the fleet is not loaded."""
        if self._status != "ready":
            raise FleetUnavailable(f"not ready: {self._status}")
