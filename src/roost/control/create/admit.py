"""Admit creates: a request becomes a pending create, its outcome an answer.

    body -> PendingCreate -> committing (with all others that wait) -> VM or error

The first step of every VM's life. What is wrong with a request is refused here, before it is
placed; `committing` decides with the ledger what becomes of it.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from roost.base.clock import Clock
from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RoostError,
)
from roost.base.ids import IdSource
from roost.control.create.charging import FleetCharges
from roost.control.create.committing import Committer
from roost.control.create.grouping import Grouping
from roost.control.create.pending import (
    PendingCreate,
    all_replayed,
    error_json,
)
from roost.control.create.routes import create_routes
from roost.control.memory.follower import Follower
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.vms.lookup import find_vm
from roost.control.vms.views import decided_placement, vm_body
from roost.ledger.capacity import RUN, claim_id
from roost.ledger.retention import DAY_S, Kept, Newest
from roost.ledger.store import Store
from roost.ledger.tables import decisions
from roost.model.flow import PlaceRequest
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.parts.sealing import Seal
from roost.placement.strategies import strategy_named
from roost.wire.bodies import BatchBody, BatchItem, CreateVM, CreateVMs, VMBody
from roost.wire.specs import spec_of


class Created(NamedTuple):
    """A VM that exists now, or that the same idempotency key made before."""

    vm: VMBody
    replayed: bool


class CreatedMany(NamedTuple):
    """The outcomes of a batch of creates."""

    batch: BatchBody
    replayed: bool


class Admit(Part):
    """Admits creates of one process: places them in memory, claims them in the ledger."""

    #: Why VMs are where they are: the last decisions about each, and none for ever.
    keeps = (
        Kept(decisions, "at_ms", seconds=30 * DAY_S, newest=Newest("vm", "snapshot", most=20)),
    )

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        grouping: Grouping,
        clock: Clock,
        ids: IdSource,
        telemetry: Telemetry,
        seal: Seal,
    ) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._grouping, self._clock, self._ids, self._telemetry = grouping, clock, ids, telemetry
        self._seal = seal
        charges = FleetCharges(roster, grouping)
        self._committer = Committer(store, roster, follower, charges, clock, telemetry)

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return create_routes(self)

    # Asking

    async def create(
        self, body: CreateVM, who: Principal, key: str | None, digest: bytes
    ) -> Created:
        """Create one VM."""
        ask = await self._prepare(body, who, self._scoped(who, key, digest), self._ids.new("vm"))
        ask.done = asyncio.get_running_loop().create_future()
        self._committer.enqueue(ask)
        await ask.done
        self._telemetry.latency.observe(self._clock.monotonic() - ask.begun)
        if ask.replay:
            return Created(await self._replayed(ask), replayed=True)
        if ask.error is not None:
            raise ask.error
        assert ask.row is not None
        return Created(vm_body(ask.row, ask.spec.spec, self._roster, ask.shown), replayed=False)

    async def create_many(
        self, body: CreateVMs, who: Principal, key: str | None, digest: bytes
    ) -> CreatedMany:
        """Create many VMs, each by itself or all or none of them."""
        names = {(vm.project, vm.name) for vm in body.vms}
        if len(names) != len(body.vms):
            raise InvalidRequest("a VM's name is in the batch twice")
        ids = self._ids.many("vm", len(body.vms))
        asks: list[PendingCreate] = []
        items: list[PendingCreate | RoostError] = []
        for index, (vm, vm_id) in enumerate(zip(body.vms, ids, strict=True)):
            scoped = self._scoped(who, f"{key}#{index}" if key else None, digest)
            try:
                ask = await self._prepare(vm, who, scoped, vm_id)
            except RoostError as error:
                if body.atomic:
                    raise
                items.append(error)
                continue
            items.append(ask)
            asks.append(ask)
        if body.atomic:
            await self._committer.commit_atomic(asks)
        else:
            await self._committer.commit_pieces(asks)
        return CreatedMany(await self._batch_body(body, items), all_replayed(asks))

    def _scoped(
        self, who: Principal, key: str | None, digest: bytes
    ) -> tuple[str, str, str] | None:
        return None if key is None else (f"vm:{who.project or who.name}", key, digest.hex())

    async def _prepare(
        self, body: CreateVM, who: Principal, key: tuple[str, str, str] | None, vm_id: str
    ) -> PendingCreate:
        """Translate a body to a pending create; refuse what is wrong with it."""
        if who.project is not None and body.project != who.project:
            raise NotFound(f"no project {body.project!r}", project=body.project)
        if who.role == "viewer":
            raise Forbidden("a viewer cannot create VMs")
        strategy = strategy_named(body.strategy or self._roster.engine.default_strategy)
        # First, so that a body with a mistake in it defines no groups.
        new = spec_of(body)
        if new.user_data:
            new = new._replace(user_data=self._seal.close(vm_id, new.user_data))
        if new.spec.demand.extended or new.spec.demand.devices is not None:
            self._roster.fleet.hosts.admit_demand(new.spec.demand)
        groups: tuple[str, ...] = ()
        groups_seen = self._roster.group_changes
        if body.groups or body.affinity or body.labels:
            groups = await self._grouping.groups_for(body, who.name)
        return PendingCreate(
            body,
            new,
            who.name,
            PlaceRequest(
                body.name,
                new.spec.demand,
                new.spec.constraints,
                groups,
                strategy.name,
                None,
                body.priority,
                body.project,
                claim_id(vm_id, RUN),
                tuple(sorted(body.labels.items())),
                body.restart,
            ),
            vm_id,
            groups,
            self._roster.rules if body.labels else None,
            key,
            strategy.name,
            self._clock.monotonic(),
            groups_seen,
        )

    # Answers

    async def _replayed(self, ask: PendingCreate) -> VMBody:
        vm = await find_vm(self._store, ask.replay)
        if vm is None:
            raise Conflict(
                f"the idempotency key made VM {ask.replay!r}, which was deleted since",
                vm=ask.replay,
            )
        if vm.id not in self._roster.specs:
            await self._follower.catch_up()
        placement = await self._store.read(lambda found: decided_placement(found, vm))
        return vm_body(vm, self._roster.specs.get(vm.id), self._roster, placement)

    async def _batch_body(
        self, body: CreateVMs, items: list[PendingCreate | RoostError]
    ) -> BatchBody:
        results = []
        created = queued = 0
        for vm, item in zip(body.vms, items, strict=True):
            if isinstance(item, RoostError):
                results.append(BatchItem(name=vm.name, error=error_json(item)))
            elif item.replay:
                found = await find_vm(self._store, item.replay)
                host = self._roster.host_name(found.host) if found is not None else None
                results.append(BatchItem(name=vm.name, id=item.replay, host=host))
                created += 1
            elif item.error is not None:
                results.append(BatchItem(name=vm.name, error=error_json(item.error)))
            elif item.placement is not None:
                host = item.placement.host
                results.append(BatchItem(name=vm.name, id=item.vm_id, host=host, state="starting"))
                created += 1
            else:
                results.append(BatchItem(name=vm.name, id=item.vm_id, state="pending"))
                queued += 1
        failed = len(results) - created - queued
        return BatchBody(results=results, created=created, queued=queued, failed=failed)
