"""The agent of one host, put together: clock, transport, driver, store and chance are handed in.

Several agents live side by side in one process without knowing of each other; a simulation hands
in a virtual clock and an in-memory transport and runs this very code.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NoReturn

from roost import __version__
from roost.agent.budget import Budgets
from roost.agent.drivers.base import Driver
from roost.agent.fencing.lease import Lease
from roost.agent.fencing.recipes import GuardHandle, NoGuard
from roost.agent.reconciler import Reconciler, ReconcilerSettings
from roost.agent.store import Store
from roost.agent.talk.probing import ProbeSettings, Probing
from roost.agent.talk.registering import HostFacts, Registering
from roost.agent.talk.session import FLOWS_S, RETRY, Session, SessionSettings
from roost.base.backoff import BackOff
from roost.base.clock import Clock, first_of
from roost.base.errors import InvalidRequest
from roost.base.ids import IdSource
from roost.hostkit.lanes import LaneBackOff
from roost.hostkit.talk.link import Transport
from roost.wire.agentlink import TaintInfo

log = logging.getLogger("roost.agent")

_GUARD_STARTS_S = 3.0
_STILL_THERE_S = 1.0  # how often it is looked whether a control plane that answered still does


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """All that can be set about one agent."""

    name: str
    servers: tuple[str, ...]
    zone: str = ""
    rack: str = ""
    site: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[TaintInfo, ...] = ()
    capabilities: tuple[str, ...] = ()
    architecture: str = "x86_64"
    max_vms: int | None = None
    #: By resource (cpu_milli, memory_bytes, disk_bytes, ...): kept by the host; overcommit ratio.
    reserve: Mapping[str, int] = field(default_factory=dict)
    ratio_milli: Mapping[str, int] = field(default_factory=dict)
    observe_s: float = 5.0  # how often the driver is asked what is here
    sample_s: float = 15.0
    flows_s: float = FLOWS_S  # how often it is told who talks, where that is counted
    report_within_s: float = 0.05
    retry: BackOff = RETRY  # of lost connections
    stop_grace_s: float = 30.0
    #: After a boot of the machine, how long VMs wait while no control plane answers.
    start_alone_after_s: float = 60.0
    max_destroy: int | None = None
    back_off: LaneBackOff = field(default_factory=LaneBackOff)
    budgets: Budgets = field(default_factory=Budgets)
    probe: ProbeSettings | None = None  # None: it neither probes nor is probed


class Agent:
    """The agent of one host: runs until cancelled; its VMs run on."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        clock: Clock,
        transport: Transport,
        driver: Driver,
        store: Store,
        random: Random,
        ids: IdSource,
        guard: GuardHandle | None = None,
    ) -> None:
        if not settings.servers:
            raise InvalidRequest(f"the agent of {settings.name} has no server to connect to")
        self.settings = settings
        self._clock = clock
        self._store = store
        self._driver = driver
        self._guard = guard or NoGuard()
        self._lease = Lease()
        self.reconciler = Reconciler(
            ReconcilerSettings(
                settings.stop_grace_s, settings.max_destroy, settings.back_off, settings.budgets
            ),
            driver=driver,
            store=store,
            lease=self._lease,
            clock=clock,
            random=random,
        )
        self._registering = Registering(
            _facts(settings), driver=driver, reconciler=self.reconciler, guard=self._guard
        )
        self._probing = Probing(settings.probe, clock)
        self.session = Session(
            SessionSettings(
                host=settings.name,
                servers=settings.servers,
                instance=ids.new("agent"),
                version=__version__,
                sample_s=settings.sample_s,
                flows_s=settings.flows_s,
                report_within_s=settings.report_within_s,
                retry=settings.retry,
            ),
            transport=transport,
            reconciler=self.reconciler,
            registering=self._registering,
            probing=self._probing,
            lease=self._lease,
            store=store,
            clock=clock,
            random=random,
        )

    async def run(self) -> NoReturn:
        """Converge, report and renew the lease until cancelled."""
        self._store.open()
        try:
            # A lease of an earlier life still holds: what runs may go on until it ends.
            lease = self._lease.deadline = self._store.lease()
            self.reconciler.open()
            if lease is None:  # none of this boot: whoever was elsewhere meanwhile is not known
                self.reconciler.await_list()
            await self._await_guard()
            # The books first: a host that does not know its room yet would refuse every VM.
            await self._registering.inventory()
            await self.reconciler.observe()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_lease())
                group.create_task(self._start_alone())
                group.create_task(self._observe())
                group.create_task(self.reconciler.save_lists())
                group.create_task(self.session.run())
        finally:
            await self._probing.close()
            await self.reconciler.close()
            await self._driver.close()
            self._store.close()
        raise AssertionError("unreachable: the tasks above end only by an exception")

    async def _await_guard(self) -> None:
        """Wait a moment for the fence guard to start, so that the host is registered with it."""
        waited_s = 0.0
        while self._guard.ensure() and waited_s < _GUARD_STARTS_S:
            await self._clock.sleep(0.1)
            waited_s += 0.1

    async def _observe(self) -> None:
        while True:
            await self._clock.sleep(self.settings.observe_s)
            self._guard.ensure()
            await self.reconciler.observe()

    async def _start_alone(self) -> None:
        """Start VMs without any control plane, in the end: it may be one of them itself.

        The time counts only while none answers. One that answers and cannot confirm its list is
        waited for, however long: it knows that a VM may run elsewhere.
        """
        clock, limit_s = self._clock, self.settings.start_alone_after_s
        alone_at = clock.monotonic() + limit_s
        while self.reconciler.awaits_list:
            if self.session.connected.is_set():
                await clock.sleep(_STILL_THERE_S)
                alone_at = clock.monotonic() + limit_s
            elif (left_s := alone_at - clock.monotonic()) > 0:
                await first_of(clock, left_s, self.session.connected)
            else:
                text = "no control plane has welcomed this host for %g s; VMs start without one"
                log.warning(text, limit_s)
                self.reconciler.start_vms()

    async def _watch_lease(self) -> None:
        """Stop VMs that may run elsewhere when the lease is over, until it is renewed."""
        while True:
            now = self._clock.monotonic()
            if self._lease.deadline is not None and now < self._lease.deadline:
                await self._clock.sleep(self._lease.deadline - now)
            else:
                self.reconciler.fence()
                await self._clock.sleep(1.0)


def _facts(settings: AgentSettings) -> HostFacts:
    return HostFacts(
        settings.zone,
        settings.rack,
        settings.site,
        settings.labels,
        settings.taints,
        settings.capabilities,
        settings.architecture,
        settings.max_vms,
        settings.reserve,
        settings.ratio_milli,
    )
