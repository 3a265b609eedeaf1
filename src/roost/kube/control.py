"""The controller: mirrors of a cluster, and what acts on them while this one is the chosen.

    mirrors (vms, pods, nodes, budgets) --> Launching    a pod for every VM
         ^                              --> Migrations   moves instead of evictions
         |                              --> Recounting   budgets that could not be counted
         |                              --> Namespaces   of all: marks those that hold VMs
         +-- the cluster, which is the only memory: whoever comes next goes on from it

Several may run; all follow the mirrors, and one, by its lease, acts.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from roost.base.backoff import BackOff
from roost.base.clock import Clock, RealClock
from roost.base.errors import Forbidden, NotFound, RoostError, Unavailable
from roost.kube.base.client import BUDGETS, NAMESPACES, NODES, PODS, VMS, Kube
from roost.kube.base.lease import Lease, LeaseLost, LeaseSettings, lease_name
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import VMS_NAMESPACE_LABEL
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.base.workqueue import WorkQueue
from roost.kube.vms.crd import install_crd, is_installed
from roost.kube.vms.launchers import LAUNCHERS
from roost.kube.vms.launching import Launching, LaunchSettings

if TYPE_CHECKING:
    from roost.kube.moving.migrating import Migrations, MigrationSettings

log = logging.getLogger("roost.kube")

#: Pauses of one that cannot act; meanwhile another may try.
_WAITS = BackOff(1.0, 30.0)
#: Somebody may take the mark off a namespace: it is looked at so often.
_MARKED_S = 15.0


class Service(Protocol):
    """Something that acts while it runs."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    """How a controller works."""

    launch: LaunchSettings = field(default_factory=LaunchSettings)
    #: None: what migrations do when nothing else is said.
    migration: "MigrationSettings | None" = None
    migrate: bool = True  # False: pods are kept, but VMs stay where they are
    #: None: this is the only one, and nobody is asked.
    lease: LeaseSettings | None = field(default_factory=LeaseSettings)


class Controller:
    """Keeps the VMs of one namespace, or of all."""

    migrations: "Migrations | None" = None
    launching: Launching | None = None

    def __init__(
        self,
        kube: Kube,
        namespace: str | None = None,
        *,
        settings: ControllerSettings | None = None,
        clock: Clock | None = None,
        beside: Sequence[Service] = (),
    ) -> None:
        """Take what is needed; services `beside` it run whenever this one acts, as the webhook."""
        self.kube, self.namespace = kube, namespace
        self._beside = beside
        self.settings, self.clock = settings or ControllerSettings(), clock or RealClock()
        self.vms = Mirror(kube, VMS, namespace, clock=self.clock)
        self.pods = Mirror(kube, PODS, namespace, labels=LAUNCHERS, clock=self.clock)
        self.nodes = Mirror(kube, NODES, clock=self.clock)
        self.budgets = Mirror(kube, BUDGETS, namespace, clock=self.clock)
        self._mirrors = (self.vms, self.pods, self.nodes, self.budgets)
        self._lease: Lease | None = None
        if self.settings.lease is not None:
            name = lease_name(namespace)
            self._lease = Lease(kube, name, self.settings.lease, clock=self.clock)
            self._lease.mirror.troubled = _tell
        for mirror in self._mirrors:
            mirror.troubled = _tell
        self._leads, self._rests = asyncio.Event(), asyncio.Event()
        self._rests.set()
        self._acted = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_leading(self) -> bool:
        """Say whether this one acts."""
        return self._leads.is_set()

    async def until_leading(self) -> None:
        """Wait until this one acts."""
        await self._leads.wait()

    async def until_idle(self) -> None:
        """Wait until this one does not act."""
        await self._rests.wait()

    async def start(self) -> None:
        """Begin: make VMs known to the cluster, read all there is, and act when it is our turn."""
        await self._know_vms()
        try:
            for mirror in self._mirrors:
                await mirror.start()
            if self._lease is not None:
                await self._lease.start()
        except BaseException:
            await self.stop()
            raise
        self._task = asyncio.create_task(self._lead(), name="controller")

    async def stop(self) -> None:
        """End, and let another take over at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for mirror in self._mirrors:
            await mirror.stop()
        if self._lease is not None:
            await self._lease.stop()

    async def _know_vms(self) -> None:
        try:
            await install_crd(self.kube, self.clock)
        except Forbidden:
            # Who may not define objects may well use them.
            if not await is_installed(self.kube):
                raise

    async def _lead(self) -> None:
        failures = 0  # since this one last acted
        while True:
            self._acted = False
            try:
                if self._lease is not None:
                    await self._lease.acquire()
                await self._act()
            except LeaseLost as lost:
                log.warning("stopped acting: %s", lost.message)
                continue
            except RoostError as error:
                log.warning("cannot act: %s", _with_hint(error))
            except Exception:  # a service: it must come back, and its trouble be seen
                log.exception("cannot act: our bug")
            if self._lease is not None:
                await self._lease.give_back()  # another may be able to
            failures = 0 if self._acted else failures
            await self.clock.sleep(_WAITS.wait_s(failures))
            failures += 1

    async def _act(self) -> None:
        async with contextlib.AsyncExitStack() as running:
            self._rests.clear()
            running.callback(self._rests.set)
            try:
                async with asyncio.timeout(self._lease.left_s if self._lease else None):
                    for service in self._services():
                        running.push_async_callback(service.stop)
                        await service.start()
            except TimeoutError:
                raise Unavailable("the lease ended before all had started") from None
            self._acted = True
            self._leads.set()
            running.callback(self._leads.clear)
            log.info("keeping %d VMs in %s", len(self.vms), self.namespace or "all namespaces")
            if self._lease is not None:
                await self._lease.hold()
            else:
                await asyncio.Event().wait()

    def _services(self) -> list[Service]:
        made = self.settings
        self.launching = Launching(
            self.kube, self.vms, self.pods, self.nodes, made.launch, self.clock
        )
        services: list[Service] = [self.launching]
        if self.namespace is None:
            services.insert(0, Namespaces(self.kube, self.vms, self.clock))
        if made.migrate:
            from roost.kube.moving.migrating import Migrations, MigrationSettings
            from roost.kube.moving.recounting import Recounting

            self.migrations = Migrations(
                self.kube, self.vms, self.pods, self.nodes, self.budgets,
                made.migration or MigrationSettings(), self.clock, launchers=made.launch.launcher,
            )  # fmt: skip
            services += [
                self.migrations,
                Recounting(self.kube, self.budgets, self.pods, self.clock),
            ]
        # Stopped from the end: first what writes, and what answers about evictions last.
        return [*self._beside, *services]


class Namespaces:
    """Marks every namespace that holds VMs: only there the webhook of all namespaces is asked.

    That of one namespace is registered by its name, so its controller marks nothing.
    """

    def __init__(
        self, kube: Kube, vms: Mirror, clock: Clock, *, again_s: float = _MARKED_S
    ) -> None:
        self._kube, self._vms, self._again_s = kube, vms, again_s
        self._forbidden: set[str] = set()  # those of which that was told
        self._queue = WorkQueue(self._mark, clock, kube.random, what="namespace", at_once=1)

    async def start(self) -> None:
        """Start marking namespaces as VMs appear."""
        self._queue.start()
        self._vms.listen(self._heard)

    async def stop(self) -> None:
        """Stop marking namespaces."""
        self._vms.forget(self._heard)
        await self._queue.stop()

    def _heard(self, before: Object | None, after: Object | None) -> None:
        if before is None and after is not None:
            self._queue.add(("", key_of(after)[0]))

    async def _mark(self, key: Key) -> float | None:
        name = key[1]
        if not any(namespace == name for namespace, _ in self._vms.objects):
            return None  # the next VM brings it back
        try:
            await mark_namespace(self._kube, name)
            self._forbidden.discard(name)
        except NotFound:
            pass  # it is made again, or its VMs are soon heard to be gone
        except Forbidden as error:
            if name not in self._forbidden:
                self._forbidden.add(name)
                log.warning("evictions in %s do not become migrations: %s", name, _with_hint(error))
        return self._again_s


def _tell(mirror: Mirror) -> None:
    if mirror.trouble is not None:
        log.warning("%s are not up to date: %s", mirror.resource.plural, _with_hint(mirror.trouble))
    else:
        log.info("%s are up to date again", mirror.resource.plural)


def _with_hint(error: RoostError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


async def mark_namespace(kube: Kube, name: str) -> None:
    """Say of a namespace that it holds VMs."""
    found = await kube.get(NAMESPACES, name)
    if (found["metadata"].get("labels") or {}).get(VMS_NAMESPACE_LABEL) != "true":
        await kube.patch(NAMESPACES, name, {"metadata": {"labels": {VMS_NAMESPACE_LABEL: "true"}}})
