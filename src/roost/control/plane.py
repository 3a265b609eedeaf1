"""The control plane of one process: every use case, built from what it was given, and its loops.

Nothing here or below reads a clock, opens a socket or draws a number by itself: clock, ids, store
and fence command are handed in by whoever composes the process.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from roost.analysis.store import SeriesReader, SeriesStore
from roost.base.clock import Clock
from roost.base.errors import FleetUnavailable
from roost.base.ids import IdSource
from roost.base.steady import SteadyWall
from roost.control.admin.doctor import doctor
from roost.control.admin.health import Health
from roost.control.admin.host_admin import Hosts
from roost.control.admin.projects import Projects
from roost.control.admin.upgrade import Upgrade
from roost.control.agents.consoles import Consoles
from roost.control.agents.dispatch import Dispatch
from roost.control.agents.intake import Intake
from roost.control.agents.sessions import Agents
from roost.control.create.admit import Admit
from roost.control.create.grouping import Grouping
from roost.control.create.mixing import KeptMix
from roost.control.create.placing import Placing
from roost.control.create.questions import Questions
from roost.control.create.queueing import Queue
from roost.control.create.searches import Searches
from roost.control.flavors.flavors import FlavorAdmin
from roost.control.groups.ending import EmptyRules
from roost.control.groups.groups import Groups
from roost.control.learning.learning import Learning
from roost.control.memory.eventlog import EventLog
from roost.control.memory.exposition import Exposition
from roost.control.memory.fleet_check import FleetCheck
from roost.control.memory.follower import Follower
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Gauge, Telemetry, Words
from roost.control.moves import handover
from roost.control.moves.draining import Drain
from roost.control.moves.limits import MoveLimits
from roost.control.moves.moving import Moving
from roost.control.plans.aftermoves import AfterMoves
from roost.control.plans.continuous import Continuous
from roost.control.plans.continuouslimits import ContinuousLimits
from roost.control.plans.executing import PlanRunner
from roost.control.plans.gathering import Gathering
from roost.control.plans.planning import Planning
from roost.control.plans.plans import Plans
from roost.control.plans.windowing import Windowing
from roost.control.policies.policies import Policies
from roost.control.preempt.asking import Asking
from roost.control.preempt.choosing import Choosing
from roost.control.preempt.tending import Preempting
from roost.control.priorities.classes import Priorities
from roost.control.reservations.keeping import KeptReservations
from roost.control.reservations.reservations import Reservations
from roost.control.rules.constraints import Constraints
from roost.control.rules.expiring import ExpiredRules
from roost.control.rules.switching import SwitchedRules
from roost.control.rules.watching import WatchedPlaces
from roost.control.series.keeping import KeptSeries
from roost.control.series.reading import Series
from roost.control.series.recording import Readings
from roost.control.survive.liveness import Evidence, Watcher
from roost.control.survive.recover import FenceCommand, Recover, RecoverLimits
from roost.control.survive.rehoming import Rehoming
from roost.control.survive.remains import Remains
from roost.control.survive.requested import RequestedRecovery
from roost.control.survive.restore_judge import Settling
from roost.control.timers import Timers
from roost.control.topology.flows import LearntTraffic
from roost.control.topology.measuring import Measuring
from roost.control.topology.topology import Topology
from roost.control.vms.counting import StateCounts
from roost.control.vms.expiring import ExpiredVMs
from roost.control.vms.lifecycle import Lifecycle
from roost.ledger.store import Store
from roost.ledger.upkeep.base import EventsKept
from roost.ledger.upkeep.retention import Kept
from roost.model.series import Kept as SeriesKept
from roost.parts.access import Access
from roost.parts.idempotency import Keys
from roost.parts.part import Part
from roost.parts.resting import Resting
from roost.parts.retention import Purge
from roost.parts.running import Runner
from roost.parts.sealedrows import SealedRows
from roost.parts.sealing import Seal
from roost.parts.sharing import Bring, Shared
from roost.parts.singleton import HOLDER, Leases
from roost.parts.watched_store import WatchedStore
from roost.placement.kernels.running import is_interpreting
from roost.series.opening import memory_series
from roost.wire.bodies import DoctorBody, HealthBody


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """What an operator may set."""

    strategy: str = "least_loaded"
    release: str = ""  # of the program, for metrics
    timers: Timers = field(default_factory=Timers)
    patience_s: float = 600.0
    recover: RecoverLimits = field(default_factory=RecoverLimits)
    events: EventsKept = field(default_factory=EventsKept)
    search_limit_s: float = 5.0  # of the exact search for an all-or-none batch
    members_priority: int = 0  # the greatest that a member may give a VM
    series: SeriesKept = field(default_factory=SeriesKept)
    pressure_bounds: Mapping[str, float] = field(default_factory=dict)  # percent, by resource
    overload_bound: float = 0.01  # of a safe level: how likely a host may be short
    predict_quantile: float = 0.9  # at which use is predicted
    predict_hours: int = 4  # for how long ahead
    continuous: ContinuousLimits = field(default_factory=ContinuousLimits)  # planning by itself


class Plane:
    """The control plane of one process: all parts over one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        settings: PlaneSettings,
        fence_command: FenceCommand | None = None,
        seal: Seal | None = None,
        series: SeriesStore | None = None,
        series_reader: SeriesReader | None = None,
        bring: Bring | None = None,
    ) -> None:
        self.telemetry = Telemetry(settings.release)
        store = self._store = WatchedStore(store, clock, self.telemetry.database())
        self._clock, self._settings = clock, settings
        timers = settings.timers
        self.roster = Roster(settings.strategy, clock.wall_ms)
        self.fleet_check = FleetCheck(self.roster)
        self.mix = KeptMix(store, self.roster)
        self.follower = Follower(store, clock)
        self.telemetry.words(
            Words(
                "roost_events", "Events of the ledger by kind, whichever process made them.",
                "kind", lambda: self.follower.counted,
            ),
            grow=True,
        )  # fmt: skip
        self._states = StateCounts(store, self.follower, clock)
        self.telemetry.words(
            Words("roost_vms", "VMs by what they are shown as.", "state", self._states.values),
            grow=False,
        )
        self.metrics = Exposition(self.telemetry, self.roster, clock, self._states.refresh)
        self.access = Access(store, clock, ids)
        self.lineage = Lineage(store, self.roster, clock, timers)
        grouping = Grouping(store, self.roster, self.follower, self.lineage)
        seal = seal or Seal()  # in simulations nobody looks at the file
        self._searches = Searches(clock, settings.search_limit_s)
        self.admit = Admit(
            store, self.roster, self.follower, grouping, clock, ids, self.telemetry, seal,
            self._searches,
            members_priority=settings.members_priority,
        )  # fmt: skip
        placing = Placing(store, self.roster, self.follower)
        rehoming = Rehoming(store, self.roster, placing)
        self.moves = Moving(store, self.roster, placing, self.lineage)
        self.dispatch = Dispatch(self.roster, self.lineage, seal)
        self.intake = Intake(store, clock)
        series = series or memory_series(settings.series)
        self.readings = Readings(series, self.roster, clock, self.telemetry)
        self.evidence = Evidence(store, timers)
        self.topology = Topology(store, self.roster, self.follower, clock)
        self.flows = LearntTraffic(store, self.roster, self.topology.matrix, clock, self.telemetry)
        self.agents = Agents(
            store, self.roster, self.follower, self.dispatch, self.intake, self.readings,
            self.flows, self.evidence, self.lineage, clock, timers, self.telemetry,
        )  # fmt: skip
        self.vms = Lifecycle(
            store, self.roster, self.follower, handover.delete, series, self.lineage
        )
        self.consoles = Consoles(store, self.roster, self.agents)
        self.hosts = Hosts(store, self.roster, self.agents, self.lineage)
        self.questions = Questions(store, self.roster, self.follower, grouping, self._searches)
        self.groups = Groups(store, self.lineage)
        self.constraints = Constraints(
            store, self.roster, self.follower, clock, series, settings.pressure_bounds
        )
        self.policies = Policies(store, self.roster, self.follower, clock)
        self.reservations = Reservations(store, self.roster, self.follower, clock)
        self.priorities = Priorities(store, self.roster)
        self.flavors = FlavorAdmin(store, self.roster)
        self.series = Series(
            series, store, self.roster, clock, settings.series, series_reader or series
        )
        self.learning = Learning(
            series_reader or series, store, self.roster, clock, settings.overload_bound,
            quantile=settings.predict_quantile, hours=settings.predict_hours,
            noted=None if series_reader else series,
        )  # fmt: skip
        self.series.brought = self.learning.hurry
        self.measuring = Measuring(self.roster, self.agents, self.topology, ids)
        self.gathering = Gathering(
            store, self.roster, series_reader or series, clock, self.topology.bandwidth,
            self.topology.known, self.topology.links,
        )  # fmt: skip
        planning = Planning(self.gathering, self.roster, clock)
        windowing = Windowing(series_reader or series, self.roster, clock)
        self.plans = Plans(store, self.roster, planning, windowing, clock, ids)
        self.questions.names_moves = self.vms.names_moves = AfterMoves(store, self.roster, planning)
        self.projects = Projects(store)
        self.events = EventLog(store)
        steady = SteadyWall(clock)
        choosing = Choosing(store, self.roster, self.follower)
        leases = self.leases = Leases(store, clock, ids.new(HOLDER), length_s=timers.singleton_s)
        watcher = Watcher(store, self.roster, clock, timers, leases.singleton("watch"))
        self.preempting = Preempting(
            store, self.roster, choosing, placing, self.moves, self.lineage,
            leases.singleton("preempt"), clock, timers,
        )  # fmt: skip
        self.asking = Asking(store, self.roster, choosing, self.preempting)
        self.admit.makes_room = self.questions.makes_room = self.asking
        shared = Shared(store, clock, ids, self.access, leases, seal, self._may_act)
        brought = tuple(bring(shared)) if bring is not None else ()
        #: Loaded, told of events, run, examined and asked in this order.
        self.parts: tuple[Part, ...] = (
            self.follower,  # first of all, how far the view is that the others are loaded from
            self.lineage,  # how far the ledger has come, before anybody speaks of it to a host
            self.roster,
            self.fleet_check,
            self.mix,
            self.dispatch,
            self.admit,
            self.vms,
            self.moves,
            self.consoles,
            self.hosts,
            self.questions,
            self.groups,
            self.constraints,
            self.policies,
            self.reservations,
            self.priorities,
            self.flavors,
            self.asking,
            self.topology,
            self.measuring,
            self.plans,
            self.projects,
            self.access,
            self.events,  # readers are told last, when everybody else knows
            self.intake,
            self.readings,
            self.series,
            self.learning,
            self.learning.lives,
            self.flows,
            self.evidence,
            self.agents,
            watcher,
            Settling(store, self.lineage, leases.singleton("settle")),
            Remains(store, self.roster, self.lineage, leases.singleton("settle")),
            Recover(
                store, self.roster, rehoming, watcher, self.lineage, timers, settings.recover,
                fence_command,
            ),
            RequestedRecovery(store, self.roster, rehoming, self.lineage),
            Queue(
                store, self.roster, placing, self.lineage, clock, leases.singleton("queue"),
                patience_s=settings.patience_s,
            ),
            self.preempting,
            Drain(store, self.roster, self.moves, self.lineage, leases.singleton("drain"), clock),
            PlanRunner(
                store, self.roster, self.moves, planning, self.lineage, leases.singleton("plans"),
                clock, timers.plan_s, limits=settings.continuous,
            ),
            Continuous(
                store, planning, self.lineage, leases.singleton("continuous"), clock, ids,
                settings.continuous,
            ),
            MoveLimits(
                store, self.roster, self.lineage, leases.singleton("moves"), clock, timers
            ),
            Keys(),
            EmptyRules(store, clock, leases.singleton("rules")),
            ExpiredRules(store, clock, leases.singleton("constraints")),
            SwitchedRules(store, self.roster, clock, leases.singleton("constraints")),
            WatchedPlaces(
                store, self.roster, self.constraints.judge, clock, leases.singleton("violations")
            ),
            KeptReservations(
                store, self.roster, self.follower, clock, steady,
                leases.singleton("reservations"),
            ),
            ExpiredVMs(
                store, self.roster, clock, steady, self.lineage, leases.singleton("lives"),
                handover.delete,
            ),
            KeptSeries(series, clock, leases.singleton("series"), settings.series),
            *brought,
            Purge(
                store, clock, self._kept, leases.singleton("purge"), events=settings.events,
                look_s=timers.purge_s,
            ),
            SealedRows(seal),
            Upgrade(store, seal),
            Health(self.doctor, self.readiness, self.metrics.shared),
        )  # fmt: skip
        resting = Resting(self.parts, clock, self._is_certain)
        self.parts += (resting,)
        self.routes = tuple(route for part in self.parts for route in part.routes())
        self._runner = Runner(
            self.parts, leases, clock, timers.watch_s, resting,
            able=self._may_act,
        )  # fmt: skip
        self._status = "loading the fleet"

    # Beginning and end

    async def start(self, warm_up: Callable[[], Awaitable[None]] | None = None) -> None:
        """Load the fleet, make the kernels ready and begin the loops."""
        await self.load(warm_up)
        self._runner.start()

    async def load(self, warm_up: Callable[[], Awaitable[None]] | None = None) -> None:
        """Load the fleet and follow events from there; no loop runs yet."""
        await self._store.read(self._load)
        self.follower.changed = self._open_or_shut
        self.follower.start(self.parts)
        self.telemetry.watch(self.roster, *self._gauges())
        await self.follower.catch_up()
        if warm_up is not None:
            self._status = "compiling kernels"
            await warm_up()
        self._status = "ready"
        self._open_or_shut()

    def _gauges(self) -> Iterator[Gauge]:
        yield Gauge(
            "roost_agents_online", "Agents connected to this process.", lambda: self.agents.online
        )
        yield Gauge(
            "roost_vms_in_doubt",
            "VMs whose host is not known after an old database was restored.",
            lambda: self.lineage.doubted,
        )
        yield Gauge(
            "roost_hosts_set_aside",
            "Hosts whose registration cannot be loaded; they take nothing.",
            lambda: len(self.roster.set_aside()),
        )
        yield Gauge(
            "roost_follower_stuck",
            "1 while an event of the ledger cannot be taken and requests are refused.",
            lambda: bool(self.follower.trouble),
        )
        yield Gauge(
            "roost_database_unusable",
            "1 while the database does not take what it is asked.",
            lambda: bool(self._store.trouble),
        )
        yield Gauge(
            "roost_series_unusable",
            "1 while the store of series does not take readings.",
            lambda: bool(self.readings.trouble),
        )
        yield Gauge(
            "roost_kernels_compiled",
            "0 while kernels are being compiled and run as Python: the same answers, slower.",
            lambda: not is_interpreting(),
        )
        yield Gauge(
            "roost_fleet_wrong",
            "Hosts and groups whose sums in memory are not those of their VMs: a bug.",
            lambda: len(self.fleet_check.wrong),
        )
        yield Gauge(
            "roost_leases_held",
            "Tasks that one process does for all which this process has the lease of.",
            lambda: self.leases.held,
        )
        yield Gauge(
            "roost_event_readers", "Streams of events that are read.", lambda: self.events.readers
        )

    def _load(self, connection: Connection) -> None:
        for part in self.parts:
            part.load(connection)

    def _kept(self) -> list[Kept]:
        return [kept for part in self.parts for kept in part.keeps]

    def _open_or_shut(self) -> None:
        """Admit agents while the fleet in memory can be trusted; those connected stay."""
        if self._status == "ready" and not self.follower.trouble:
            self.agents.ready.set()
        else:
            self.agents.ready.clear()

    def _may_act(self) -> bool:
        """Say whether this process may do what one does for all."""
        return not self.follower.trouble

    def _is_certain(self) -> bool:
        """Say whether events tell all that happens: nobody rests while they may not."""
        return self.lineage.sure and not self.lineage.restored and not self.follower.lags

    async def stop(self) -> None:
        """End the loops and the connections; the store is whoever's opened it."""
        self._status = "stopping"
        self._searches.stop()
        await self.measuring.close()
        await self._states.close()
        await self.agents.close()
        await self._runner.stop()

    async def run_singletons(self) -> None:
        """Run each singleton part once whose lease this process holds."""
        await self._runner.run_singletons()

    # Answers about itself

    async def doctor(self) -> DoctorBody:
        """Check every invariant on the live database."""
        await self.readings.see_store()
        return await doctor(self._store, self.parts)

    def readiness(self) -> HealthBody:
        """Report whether this process can serve requests, and what it waits for."""
        if self._status != "ready":
            return HealthBody(status="starting", detail=self._status)
        if self.follower.trouble:
            return HealthBody(status="stuck", detail=self.follower.trouble)
        if self._store.trouble:
            return HealthBody(status="no database", detail=self._store.trouble)
        said = []
        if self.lineage.restored:
            in_doubt = self.lineage.doubted
            counted = "1 VM is" if in_doubt == 1 else f"{in_doubt} VMs are"
            said.append(f"an old database was restored: {counted} in doubt")
        if aside := sorted(self.roster.set_aside()):
            said.append(f"{len(aside)} hosts are set aside: {', '.join(aside[:10])}")
        if is_interpreting():
            said.append("kernels are being compiled and run as Python meanwhile: slower answers")
        if self.readings.trouble:
            said.append(f"series are not kept: {self.readings.trouble}")
        return HealthBody(status="ready", detail="; ".join(said))

    def require_ready(self) -> None:
        """Raise FleetUnavailable while the fleet is not loaded, or not followed."""
        if self._status != "ready" or self.follower.trouble:
            raise FleetUnavailable(f"not ready: {self.follower.trouble or self._status}")
