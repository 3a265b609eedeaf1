"""Admit creates: a request becomes a pending create, its outcome an answer.

    body -> PendingCreate -> committing (with all others that wait) -> VM or error

The first step of every VM's life. What is wrong with a request is refused here, before it is
placed; `committing` decides with the ledger what becomes of it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from roost.base.clock import Clock
from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NoFit,
    NotFound,
    RoostError,
    Unavailable,
)
from roost.base.ids import IdSource
from roost.control.create.charging import FleetCharges
from roost.control.create.committing import Committer
from roost.control.create.drawing import find_living, know_reservation, life_of
from roost.control.create.grouping import Grouping
from roost.control.create.making_room import MakesRoom
from roost.control.create.pending import (
    PendingCreate,
    all_replayed,
    error_json,
)
from roost.control.create.routes import create_routes
from roost.control.create.searches import Searches
from roost.control.create.underlying import in_own_project, spread_of, under
from roost.control.memory.displacing import may_displace
from roost.control.memory.expecting import Traits
from roost.control.memory.follower import Follower
from roost.control.memory.holdings import ORDINARY
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.vms.idle import with_idle
from roost.control.vms.lookup import find_vm
from roost.control.vms.nearby import with_near_found
from roost.control.vms.views import decided_placement, vm_body
from roost.ledger.claims.capacity import RUN, claim_id
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import decisions
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import DAY_S, Kept, Newest
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.model.outlook import Expected
from roost.model.rules import NO_CHOICE, Choice
from roost.model.vm import VMSpec, image_of
from roost.parts.access import Principal
from roost.parts.asker import Asker
from roost.parts.idempotency import find_keys
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.parts.sealing import Seal
from roost.placement.strategies import strategy_named
from roost.wire.answers import no_fit, together_body
from roost.wire.bodies import BatchBody, BatchItem, CreateVM, CreateVMs, VMBody
from roost.wire.specs import NO_POLICY, Under, spec_of
from roost.wire.spectext import spec_text


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
        searches: Searches,
        makes_room: MakesRoom | None = None,
        *,
        members_priority: int = 0,
    ) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._grouping, self._clock, self._ids, self._telemetry = grouping, clock, ids, telemetry
        self._seal, self.makes_room = seal, makes_room
        self._members_priority = members_priority
        charges = FleetCharges(roster, grouping)
        self._committer = Committer(store, roster, follower, charges, clock, telemetry, searches)

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return create_routes(self)

    # Asking

    async def create(
        self, body: CreateVM, who: Principal, key: str | None, digest: bytes
    ) -> Created:
        """Create one VM."""
        body = in_own_project(body, who)
        ask = await self._prepare(body, who, self._scoped(who, key, digest), self._ids.new("vm"))
        if ask.body.on_no_fit == "preempt":
            await self._refuse_if_nobody_leaves(ask, who)
        ask.done = asyncio.get_running_loop().create_future()
        self._roster.asked.note(ask.request.demand)
        self._committer.enqueue(ask)
        await ask.done
        self._telemetry.latency.observe(self._clock.monotonic() - ask.begun)
        if ask.replay:
            return Created(await self._replayed(ask), replayed=True)
        if isinstance(ask.error, NoFit):
            raise await with_idle(ask.error, self._store, who)
        if ask.error is not None:
            raise ask.error
        assert ask.row is not None
        if ask.row.pending is not None and ask.body.on_no_fit == "preempt":
            await self._make_room(ask.row)
        return Created(vm_body(ask.row, ask.spec.spec, self._roster, ask.shown), replayed=False)

    async def _refuse_if_nobody_leaves(self, ask: PendingCreate, who: Principal) -> None:
        """Refuse a create that fits nowhere, and for which nobody can make room."""
        if self.makes_room is None:
            return
        engine = self._roster.engine
        life = life_of(self._roster, ask.spec.spec, ask.body.project)
        answer: Placement | Rejection | None
        if life is ORDINARY:
            answer = engine.find(ask.request)
        else:  # it may see room that others do not
            answer = find_living(self._roster, ask.request, life).answer
        if isinstance(answer, Placement):
            return
        if ask.key is not None and await find_keys(self._store, [ask.key[:2]]):
            return  # it was answered before
        # For VMs that end, or that draw on a reservation, nobody makes room.
        if life is not ORDINARY or await self.makes_room.planned(ask.request, who) is None:
            self._telemetry.placed(ask.strategy, "refused")
            refused = no_fit(answer or engine.reject(ask.request))
            raise await with_idle(refused, self._store, who)

    async def _make_room(self, row: VMRow) -> None:
        """Let others make room for a VM that was just queued; if that fails, it waits its turn."""
        if self.makes_room is not None:
            await self._follower.catch_up()
            # It was made, whatever becomes of it: somebody may have deleted it by now.
            with suppress(Conflict, NotFound, Unavailable):
                await self.makes_room.begin_for(row)

    async def create_many(
        self,
        body: CreateVMs,
        who: Principal,
        key: str | None,
        digest: bytes,
        asker: Asker | None = None,
    ) -> CreatedMany:
        """Create many VMs, each by itself or all or none of them."""
        vms = [in_own_project(vm, who) for vm in body.vms]
        if len({(vm.project, vm.name) for vm in vms}) != len(vms):
            raise InvalidRequest("a VM's name is in the batch twice")
        ids = self._ids.many("vm", len(vms))
        asks: list[PendingCreate] = []
        items: list[PendingCreate | RoostError] = []
        for index, (vm, vm_id) in enumerate(zip(vms, ids, strict=True)):
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
        together = None
        self._roster.asked.note_all(ask.request.demand for ask in asks)
        if body.atomic:
            found = await self._committer.commit_atomic(asks, asker or Asker())
            together = together_body(found) if found is not None else None
        else:
            await self._committer.commit_pieces(asks)
        answer = await self._batch_body(body, items)
        answer.together = together
        return CreatedMany(answer, all_replayed(asks))

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
        if body.demand is None or body.flavor is not None:
            if body.flavor is not None and body.flavor not in self._roster.flavors.rows:
                await self._follower.catch_up()  # another process may have just made it
            body = self._roster.flavors.sized(body)
        if body.priority_class is not None or self._roster.classes.default is not None:
            body = await self._with_class(body)
        if who.role == "member":
            self._refuse_above_members(body)
        if body.reservation:
            if body.reservation not in self._roster.holdings.reservations:
                await self._follower.catch_up()  # another process may have just made it
            know_reservation(self._roster, body.reservation, body.project, who.name)
        policy, choice = NO_POLICY, NO_CHOICE
        if body.policy is not None or body.project in self._roster.rulebook.defaults:
            policy, choice = await self._policy(body)
        if body.on_no_fit == "preempt" and not may_displace(
            self._roster, body.priority_class or "", policy.policy
        ):
            raise _displaces_nobody(body, self._roster.rulebook.preemption_of(policy.policy))
        strategy = strategy_named(
            body.strategy or choice.strategy or self._roster.engine.default_strategy
        )
        # First, so that a body with a mistake in it defines no groups.
        new = spec_of(body, policy, who.name)
        if new.spec.constraints.near:
            near = new.spec.constraints
            near = await with_near_found(
                self._store, self._roster, near, body.project, who, kept=True
            )
            spec = replace(new.spec, constraints=near)
            new = new._replace(spec=spec, text=spec_text(spec))
        if new.spec.until_ms is not None and new.spec.until_ms <= self._clock.wall_ms():
            raise InvalidRequest(f"until {body.until!r} is in the past", vm=body.name)
        if new.user_data:
            new = new._replace(user_data=self._seal.close(vm_id, new.user_data))
        if new.spec.demand.extended or new.spec.demand.devices is not None:
            self._roster.fleet.hosts.admit_demand(new.spec.demand)
        groups: tuple[str, ...] = ()
        groups_seen = self._roster.group_changes
        spread = spread_of(self._roster, policy.policy) if policy.policy else None
        if body.groups or body.affinity or body.labels or spread is not None:
            groups = await self._grouping.groups_for(body, who.name, policy.policy, spread)
        expected = self._expected(vm_id, body.project, new.spec)
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
                tuple(sorted(body.labels.items())) if body.labels else (),
                body.restart or policy.restart,
                policy=policy.policy,
                expected=expected,
                talks=self._roster.talkers.of(
                    vm_id, f"{body.project}/{body.name}", new.spec.constraints.near, groups
                ),
                day=strategy.day_for(expected),
            ),
            vm_id,
            groups,
            self._roster.rules if body.labels else None,
            key,
            strategy.name,
            self._clock.monotonic(),
            groups_seen,
        )

    def _expected(self, vm_id: str, project: str, spec: VMSpec) -> Expected:
        cpu, memory = spec.demand.cpu_milli, spec.demand.memory_bytes
        traits = Traits(cpu, memory, project, image_of(spec), spec.until_ms, spec.flavor)
        return self._roster.expectations.of(vm_id, traits)

    async def _policy(self, body: CreateVM) -> tuple[Under, Choice]:
        """Return the policy that a VM is created under; another process may have just made it."""
        if body.policy is not None and body.policy not in self._roster.rulebook.policies:
            await self._follower.catch_up()
        return under(self._roster, body)

    async def _with_class(self, body: CreateVM) -> CreateVM:
        """Return a body with the priority that its class gives it, or the default class."""
        classes = self._roster.classes
        if body.priority_class is not None and body.priority_class not in classes.rows:
            await self._follower.catch_up()  # another process may have just made it
        priority, name = classes.given(body.priority_class, body.priority)
        return structs.replace(body, priority=priority, priority_class=name or None)

    def _refuse_above_members(self, body: CreateVM) -> None:
        """Refuse a member a priority above that of members: it would displace others' VMs.

        The default class is everybody's, whatever its value.
        """
        most, default = self._members_priority, self._roster.classes.default
        if default is not None:
            most = max(most, default.value)
        if body.priority > most:
            raise Forbidden(
                f"a member may give a VM a priority of {most} at most, and {body.name!r} would "
                f"have {body.priority}",
                hint="Maybe ask an operator to create it.",
                vm=body.name,
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


def _displaces_nobody(body: CreateVM, said: str | None) -> InvalidRequest:
    """Say what keeps a VM from displacing others: what its policy said, or its class."""
    if said == "never":
        return InvalidRequest(
            f"VM {body.name!r} is to displace others, but its policy lets it displace nobody",
            hint="Maybe let it wait instead.",
            vm=body.name,
        )
    return InvalidRequest(
        f"VM {body.name!r} is to displace others, but has no priority class that does",
        hint="Maybe name a priority class that preempts lower ones.",
        vm=body.name,
    )
