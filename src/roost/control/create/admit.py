"""Create VMs: place in memory, claim in the ledger, answer. The first step of every VM's life.

    ask -> place on the roster -> claim with all others that wait -> kept: answer
                 ^                        |
                 +--- catch up, release <-+ stale (bounded, then placement_contended)

Everything that arrives while a commit is under way shares the next one. A VM is charged to the
roster when it is proposed, so two asks never see the same room. VMs of groups depend on where the
others are, so they wait until nothing is under way.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from roost.base.clock import Clock
from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    PlacementContended,
    RoostError,
)
from roost.base.ids import IdSource
from roost.control.create.grouping import Grouping
from roost.control.create.pending import (
    MOST_TRIES,
    PendingCreate,
    all_replayed,
    error_json,
    error_of,
    no_fit,
)
from roost.control.create.proposing import counters_of, selected_line
from roost.control.create.routes import create_routes
from roost.control.memory.follower import Follower
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.vms.lookup import find_vm
from roost.control.vms.views import decided_placement, placement_text, vm_body
from roost.fleet.assign import mask_of
from roost.ledger.capacity import RUN, claim_id
from roost.ledger.claims import KEPT, Outcome, Proposal, Verdict
from roost.ledger.retention import DAY_S, Kept, Newest
from roost.ledger.rows import ClaimRow, VMRow, labels_text
from roost.ledger.store import Store
from roost.ledger.tables import decisions
from roost.ledger.transaction import row_json
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.parts.access import Principal
from roost.parts.idempotency import find_keys
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.placement.group import place_group
from roost.placement.strategies import strategy_named
from roost.wire.answers import placement_body, rejection_json
from roost.wire.bodies import BatchBody, BatchItem, CreateVM, CreateVMs, VMBody
from roost.wire.specs import spec_of

log = logging.getLogger("roost.admit")

#: Creates that share a commit.
MOST_TOGETHER = 512
#: VMs of an all-or-none batch that the exact search may take on, and how long (CP-SAT's seconds):
#: nothing else is served meanwhile, no lease is renewed.
MOST_EXACT = 64
EXACT_LIMIT = 1.0
#: Several lines in one record: those of a commit are written together.
LINES = "%s"


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
    ) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._grouping, self._clock, self._ids, self._telemetry = grouping, clock, ids, telemetry
        self._waiting: list[PendingCreate] = []
        self._committer: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._placing = asyncio.Lock()
        self._under_way = 0  # commits whose verdicts are not known yet
        self._idle = asyncio.Event()
        self._idle.set()
        self._refusals: dict[object, Rejection] = {}
        self._refusals_version = -1

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
        self._waiting.append(ask)
        if self._committer is None or self._committer.done():
            self._committer = asyncio.create_task(self._commit_waiting())
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
            await self._commit_atomic(asks)
        else:
            await self._commit_pieces(asks)
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
            ),
            vm_id,
            groups,
            self._roster.rules if body.labels else None,
            key,
            strategy.name,
            self._clock.monotonic(),
            groups_seen,
        )

    # Committing

    async def _commit_waiting(self) -> None:
        """Commit waiting creates, batch after batch, until none waits."""
        while self._waiting:
            if self._answering:  # the more share a commit, the less each costs: 20% at two
                await asyncio.wait(self._answering)
            batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
            task = asyncio.create_task(self._answer(batch))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _commit_pieces(self, asks: list[PendingCreate]) -> None:
        """Commit a batch piece by piece; what was kept before a piece failed is still told."""
        try:
            for start in range(0, len(asks), MOST_TOGETHER):
                await self._commit(asks[start : start + MOST_TOGETHER], one_by_one=False)
        except RoostError as error:
            if not any(ask.kept for ask in asks):
                raise
            for ask in asks:
                if not ask.kept:
                    ask.error = ask.error or error

    async def _answer(self, batch: list[PendingCreate]) -> None:
        """Commit a batch of single creates and resolve their futures."""
        try:
            await self._commit(batch, one_by_one=True)
        except RoostError as error:
            for ask in batch:
                if not ask.kept:  # whoever is in the ledger is, whatever happened afterwards
                    ask.error = ask.error or error
        except BaseException as error:
            for ask in batch:
                if ask.done is not None and not ask.done.done():
                    ask.done.set_exception(error)
            raise
        for ask in batch:
            if ask.done is not None and not ask.done.done():
                ask.done.set_result(None)

    async def _commit(self, batch: list[PendingCreate], *, one_by_one: bool) -> None:
        """Place and claim creates until each has its answer."""
        rest = batch
        while rest:
            alone = any(ask.groups or ask.rules is not None for ask in rest)
            async with self._placing:
                if alone:
                    await self._idle.wait()
                await self._place(rest, one_by_one=one_by_one)
                asks = [ask for ask in rest if not ask.refused and ask.error is None]
                refused, room = [ask for ask in rest if ask.refused], self._roster.room
                proposals = [self._propose(ask) for ask in asks]
                outcomes: list[Outcome] = []
                if asks:
                    self._begin()
                    if alone:
                        outcomes = await self._claim(asks, proposals, atomic=False)
            if asks and not alone:
                outcomes = await self._claim(asks, proposals, atomic=False)
            rest = self._settle(asks, outcomes)
            if refused:
                rest += await self._refuse(refused, room)
            if rest:
                await self._follower.catch_up()
                for ask in rest:
                    self._refresh(ask)

    async def _refuse(self, refused: list[PendingCreate], room: int) -> list[PendingCreate]:
        """Reject creates that fit nowhere; return those for which room has appeared meanwhile.

        What is under way counts as placed, but may lose: only then is it known that nothing fits.
        A key that was used before has its answer, whether there is room by now or not.
        """
        async with self._placing:
            await self._idle.wait()
        again: list[PendingCreate] = []
        if self._roster.room != room:
            again = [ask for ask in refused if ask.tries + 1 < MOST_TRIES]
            for ask in again:
                ask.tries += 1
        finally_refused = [ask for ask in refused if ask not in again]
        await self._find_keys(finally_refused)
        for ask in finally_refused:
            if ask.error is None and not ask.replay:
                assert ask.rejection is not None
                ask.error = no_fit(ask.rejection)
                self._telemetry.placed(ask.strategy, "refused")
        return again

    async def _find_keys(self, asks: list[PendingCreate]) -> None:
        """Answer creates whose idempotency key was used before as they were answered then."""
        keyed = [(ask, ask.key) for ask in asks if ask.key is not None]
        if not keyed:
            return
        known = await find_keys(self._store, [(key[0], key[1]) for _, key in keyed])
        for ask, (scope, name, digest) in keyed:
            if (found := known.get((scope, name))) is None:
                continue
            if found.digest == digest:
                ask.replay = found.answer
            else:
                ask.error = error_of(ask, Outcome(Verdict.KEY_REUSED))

    def _refresh(self, ask: PendingCreate) -> None:
        """Take over label rules that came meanwhile: the VM is in their groups as well."""
        if ask.body.labels:
            ask.rules = self._roster.rules
            matching = self._roster.matching_groups(ask.body.project, ask.body.labels)
            ask.groups = tuple(sorted({*ask.groups, *matching}))
            ask.request = replace(ask.request, groups=ask.groups)

    def _begin(self) -> None:
        self._under_way += 1
        self._idle.clear()

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    async def _claim(
        self, asks: list[PendingCreate], proposals: list[Proposal], *, atomic: bool
    ) -> list[Outcome]:
        try:
            return await self._store.claim(
                proposals, [ask.actor for ask in asks], self._follower.applied, atomic=atomic
            )
        except BaseException:
            # Not kept, or not known: the ledger decides, and its events will charge what is kept.
            for ask in asks:
                self._release(ask)
            raise
        finally:
            self._end()

    async def _place(self, asks: list[PendingCreate], *, one_by_one: bool) -> None:
        """Give every ask a placement or a rejection, and charge the roster; or an error."""
        asks = self._with_groups(asks)
        if one_by_one:
            for ask in asks:
                self._place_one(ask)
        else:
            self._place_all(asks)
        refused = [ask for ask in asks if ask.rejection is not None]
        if refused and self._store.shared and not all(ask.tries for ask in refused):
            # Somebody else may have made room that this process has not heard of yet.
            before = self._roster.room
            try:
                await self._follower.catch_up()
            except BaseException:
                for ask in asks:
                    self._release(ask)
                raise
            refused = self._with_groups(refused)
            if self._roster.room != before:
                for ask in refused:
                    self._place_one(ask)

    def _with_groups(self, asks: list[PendingCreate]) -> list[PendingCreate]:
        """Return those whose groups are still what they asked for; the others have an error."""
        changes = self._roster.group_changes
        for ask in asks:
            if not ask.groups or ask.groups_seen == changes:
                continue
            try:
                ask.groups = self._grouping.still_valid(ask.body, ask.groups)
            except Conflict as error:
                ask.error, ask.placement, ask.rejection = error, None, None
                continue
            ask.request = replace(ask.request, groups=ask.groups)
            ask.groups_seen = changes
        return [ask for ask in asks if ask.error is None]

    def _place_one(self, ask: PendingCreate) -> None:
        roster = self._roster
        ask.rejection = None
        placement = roster.engine.find(ask.request, runners_up=2)
        if placement is None:
            ask.placement, ask.rejection = None, self._reject(ask.request)
            return
        self._take(ask, placement)
        if log.isEnabledFor(logging.INFO):
            row, host = placement.host_row, placement.host
            ask.line = selected_line(roster.fleet, row, host, ask.body.name)

    def _place_all(self, asks: list[PendingCreate]) -> None:
        """Place many creates at once, each on the fleet as the ones before it have left it."""
        answers = self._roster.engine.place_batch([ask.request for ask in asks], self._reject)
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Rejection):
                ask.placement, ask.rejection = None, answer
            else:
                ask.rejection = None
                self._charged(ask, answer)

    def _take(self, ask: PendingCreate, placement: Placement) -> None:
        """Charge the fleet with a placement."""
        self._roster.engine.commit(ask.request, placement)
        self._charged(ask, placement)

    def _charged(self, ask: PendingCreate, placement: Placement) -> None:
        """Note a placement that the fleet is charged with, and what it rests on."""
        ask.placement, ask.charged = placement, True
        self._note_generations(ask)

    def _note_generations(self, ask: PendingCreate) -> None:
        """Note what a placement rests on at once: an event that comes next may change it."""
        assert ask.placement is not None
        ask.entry = self._roster.by_fleet_row[ask.placement.host_row]
        ask.host_generation = ask.entry.generation
        ask.group_generations = self._group_generations(ask)

    def _group_generations(self, ask: PendingCreate) -> tuple[tuple[str, int], ...]:
        return tuple((group, self._roster.groups[group].generation) for group in ask.groups)

    def _reject(self, request: PlaceRequest) -> Rejection:
        """Explain a refusal; the same question on an unchanged fleet has the same answer."""
        engine = self._roster.engine
        if self._refusals_version != engine.fleet.version:
            self._refusals.clear()
            self._refusals_version = engine.fleet.version
        key = (request.demand, request.terms, request.groups, request.strategy)
        found = self._refusals.get(key)
        if found is None:
            found = engine.reject(request)
            # Explaining tries fixes on the fleet and takes them back, which counts as changes.
            self._refusals_version = engine.fleet.version
            self._refusals[key] = found
        message = found.message.replace(repr(found.vm), repr(request.name), 1)
        return replace(found, vm=request.name, message=message)

    def _propose(self, ask: PendingCreate) -> Proposal:
        body, request = ask.body, ask.request
        demand = request.demand
        ask.row = VMRow(
            id=ask.vm_id,
            project=body.project,
            name=body.name,
            labels=labels_text(body.labels) if body.labels else "",
            cpu_milli=demand.cpu_milli,
            memory_bytes=demand.memory_bytes,
            disk_bytes=demand.disk_bytes,
            strategy=ask.strategy,
            priority=body.priority,
            on_no_fit=body.on_no_fit,
            restart=body.restart,
            desired="running" if body.start else "stopped",
            generation=1,
            created_ms=self._clock.wall_ms(),
        )
        if ask.placement is None:
            assert ask.rejection is not None
            ask.row.pending = row_json(rejection_json(ask.rejection))
            groups = self._group_generations(ask)
            return Proposal(ask.row, ask.spec, groups=groups, rules=ask.rules, key=ask.key)
        entry = ask.entry
        assert entry is not None
        ask.row.host = entry.number
        ask.shown = placement_body(ask.placement, entry.number)
        counters = counters_of(demand, ask.placement)
        claim = ClaimRow(
            id=ask.request.key,
            vm=ask.vm_id,
            host=entry.number,
            kind="run",
            cpu_milli=demand.cpu_milli,
            memory_bytes=demand.memory_bytes,
            disk_bytes=demand.disk_bytes,
            counters=row_json(dict(counters)) if counters else "",
            devices=mask_of(ask.placement.devices),
            cells=mask_of(ask.placement.cells),
        )
        return Proposal(
            ask.row,
            ask.spec,
            claim,
            ask.host_generation,
            counters,
            ask.group_generations,
            ask.rules,
            placement_text(ask.shown),
            ask.key,
        )

    def _settle(
        self, asks: list[PendingCreate], outcomes: Sequence[Outcome]
    ) -> list[PendingCreate]:
        """Apply the ledger's verdicts to creates; return those that must be placed again."""
        again = []
        counted: dict[tuple[str, str], int] = {}
        kept: list[PendingCreate] = []
        for ask, outcome in zip(asks, outcomes, strict=True):
            if outcome is KEPT:
                kept.append(ask)
                ask.kept = True
                result = "placed" if ask.placement is not None else "queued"
                counted[ask.strategy, result] = counted.get((ask.strategy, result), 0) + 1
                continue
            self._release(ask)
            if outcome.verdict is Verdict.STALE:
                self._telemetry.conflict(outcome.detail.partition(":")[0])
                ask.tries += 1
                if ask.tries < MOST_TRIES:
                    again.append(ask)
                    continue
            ask.error = error_of(ask, outcome)
            if outcome.verdict is Verdict.REPLAYED:
                ask.replay = outcome.detail
            else:
                self._telemetry.placed(ask.strategy, outcome.verdict.value)
        for (strategy, result), count in counted.items():
            self._telemetry.placed(strategy, result, count)
        if kept and log.isEnabledFor(logging.INFO):
            self._tell(kept, len(asks))
        return again

    def _tell(self, kept: list[PendingCreate], asked: int) -> None:
        """Log what was kept: two lines for a VM that was asked for alone, one for a batch."""
        single = kept[0].done is not None
        lines = []
        for ask in kept:
            if ask.placement is None:
                why = ask.rejection.message if ask.rejection is not None else ""
                lines.append(f"VM '{ask.body.name}' waits: {why}")
                continue
            lines.append(f"Scheduling VM '{ask.body.name}' using {ask.strategy} strategy")
            if ask.line:
                lines.append(ask.line)
            else:
                at, host = ask.placement.host_row, ask.placement.host
                lines.append(selected_line(self._roster.fleet, at, host, ask.body.name))
            if not single and not log.isEnabledFor(logging.DEBUG):
                break  # the lines of a batch are only for those who debug
        if single:
            log.info(LINES, "\n".join(lines))
            return
        log.info("Placed %d of %d VMs of a batch", len(kept), asked)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(LINES, "\n".join(lines))

    def _release(self, ask: PendingCreate) -> None:
        if ask.charged:
            self._roster.release(ask.request.key)
            ask.charged = False

    async def _commit_atomic(self, asks: list[PendingCreate]) -> None:
        """Place all or none, with the exact search where greedy placing fails."""
        async with self._placing:
            await self._idle.wait()
            for _ in range(MOST_TRIES):
                self._with_groups(asks)
                if (wrong := next((ask.error for ask in asks if ask.error), None)) is not None:
                    raise wrong
                answer = place_group(
                    self._roster.engine,
                    [ask.request for ask in asks],
                    most_exact=MOST_EXACT,
                    limit=EXACT_LIMIT,
                )
                if answer.rejection is not None:
                    await self._find_keys(asks)
                    if all_replayed(asks):
                        return
                    raise no_fit(answer.rejection)
                for ask, placement in zip(asks, answer.placements, strict=True):
                    self._take(ask, placement)
                proposals = [self._propose(ask) for ask in asks]
                self._begin()
                outcomes = await self._claim(asks, proposals, atomic=True)
                if all(outcome is KEPT for outcome in outcomes):
                    self._settle(asks, outcomes)
                    return
                for ask in asks:
                    self._release(ask)
                for ask, outcome in zip(asks, outcomes, strict=True):
                    if outcome is not KEPT and outcome.verdict is not Verdict.STALE:
                        if outcome.verdict is Verdict.REPLAYED:
                            ask.replay = outcome.detail
                            continue
                        raise error_of(ask, outcome)
                if all_replayed(asks):
                    return
                await self._follower.catch_up()
                for ask in asks:
                    self._refresh(ask)
            raise PlacementContended("other writers took the room each time")

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
        placement = await self._store.read(lambda found: decided_placement(found, vm.id))
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
