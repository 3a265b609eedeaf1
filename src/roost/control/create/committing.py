"""Commit pending creates: place them in memory, claim them in the ledger, until each has an answer.

    place and charge -> claim with all others that wait -> kept: answer
           ^                        |
           +--- catch up, release <-+ stale (bounded, then placement_contended)

Two commits may be under way; what arrives meanwhile shares the next ones, half of it each. VMs of
groups depend on where the others are, so they wait until nothing is under way.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from roost.base.clock import Clock
from roost.base.errors import PlacementContended, RoostError
from roost.control.create.charging import RUNNERS_UP, FleetCharges
from roost.control.create.living import NO_ROOM, Room, room_of
from roost.control.create.pending import (
    MOST_TRIES,
    PendingCreate,
    all_replayed,
    error_of,
)
from roost.control.create.proposing import propose
from roost.control.create.searches import Searches
from roost.control.create.telling import tell_kept
from roost.control.create.together import Together
from roost.control.memory.follower import Follower
from roost.control.memory.holdings import ORDINARY, Life
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.vms.ruling import reads_amounts, reads_project
from roost.ledger.claims.proposals import KEPT, Outcome, Proposal, Verdict
from roost.ledger.schema.amounts import Amounts
from roost.ledger.store import Store
from roost.model.flow import PlaceRequest, Rejection
from roost.parts.asker import Asker
from roost.parts.idempotency import find_keys
from roost.placement.group import GREEDY, GroupAnswer, place_exactly
from roost.placement.nearness import is_bound
from roost.placement.whatif import WhatIf
from roost.wire.answers import no_fit, no_fit_together

log = logging.getLogger("roost.admit")

#: Creates that share a commit.
MOST_TOGETHER = 512
#: Commits of single creates under way: the next one is ready when the writer is.
MOST_UNDER_WAY = 2
#: Exact searches for one all-or-none batch: the fleet may have moved on while each was under way.
MOST_SEARCHES = 4


class Committer:
    """Commits the creates of one process, those that wait together in one transaction."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        charges: FleetCharges,
        clock: Clock,
        telemetry: Telemetry,
        searches: Searches,
    ) -> None:
        self._searches = searches
        self._store, self._roster, self._follower = store, roster, follower
        self._charges, self._clock, self._telemetry = charges, clock, telemetry
        self._together = Together(roster, charges)
        self._waiting: list[PendingCreate] = []
        self._committing: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._last = 0  # creates in the commit before
        self._placing = asyncio.Lock()
        self._under_way = 0  # commits whose verdicts are not known yet
        self._idle = asyncio.Event()
        self._idle.set()

    def enqueue(self, ask: PendingCreate) -> None:
        """Commit a create with the others that wait; its future is resolved then."""
        self._waiting.append(ask)
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())

    async def _commit_waiting(self) -> None:
        """Commit waiting creates, batch after batch, until none waits."""
        while self._waiting:
            while len(self._answering) >= MOST_UNDER_WAY:
                await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)
            # Clients that were answered just now ask again. Half of those who wait and of those
            # answered go into each commit, so that some are placed and answered while others are
            # written. Taking all who wait settles into commits of one and of all the others in
            # turn, and the event loop is idle while the writer is busy.
            half = (len(self._waiting) + self._last + 1) // 2
            self._last = most = min(half, MOST_TOGETHER, len(self._waiting))
            batch, self._waiting = self._waiting[:most], self._waiting[most:]
            task = asyncio.create_task(self._answer(batch))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, batch: list[PendingCreate]) -> None:
        """Commit a batch of single creates and resolve their futures."""
        try:
            await self._commit(batch, explained=True)
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

    async def commit_pieces(self, asks: list[PendingCreate]) -> None:
        """Commit a batch piece by piece; what was kept before a piece failed is still told."""
        try:
            for start in range(0, len(asks), MOST_TOGETHER):
                await self._commit(asks[start : start + MOST_TOGETHER], explained=False)
        except RoostError as error:
            if not any(ask.kept for ask in asks):
                raise
            for ask in asks:
                if not ask.kept:
                    ask.error = ask.error or error

    async def commit_atomic(self, asks: list[PendingCreate], asker: Asker) -> GroupAnswer | None:
        """Place all or none; return how they were placed, None if an earlier request did it.

        Where greedy placing fails the exact search runs on a copy of the fleet, in a thread, and
        others create meanwhile. What it finds is held against the fleet as it is by then. VMs that
        end or may draw on a reservation see their own room; the exact search sees it where all of
        a batch see the same, else that which is open to all.
        """
        async with AsyncExitStack() as turn:
            return await self._commit_atomic(asks, asker, turn)

    async def _commit_atomic(
        self, asks: list[PendingCreate], asker: Asker, turn: AsyncExitStack
    ) -> GroupAnswer | None:
        searches, may_search = 0, False
        answer: GroupAnswer | None = None
        for _ in range(MOST_TRIES + MOST_SEARCHES + 1):
            async with self._placing:
                await self._idle.wait()
                self._charges.with_groups(asks)
                if (wrong := next((ask.error for ask in asks if ask.error), None)) is not None:
                    raise wrong
                requests = [ask.request for ask in asks]
                lives = [self._charges.life(ask) for ask in asks]
                room = self._same_room(requests, lives)
                rejection: Rejection | None = None
                if answer is None or not await self._together.as_found(asks, answer, room):
                    answer = None
                    rejection = await self._together.in_turn(asks)
                if rejection is None:
                    found = answer or _in_turn(asks)
                    if await self._claim_all(asks):
                        return None if all_replayed(asks) else found
                    answer = None
                    continue
                world = None
                if may_search:
                    world = WhatIf.like(self._roster.engine)
                    world.fleet.keep_free_many(dict(room.kept))
            if world is None:  # there may be room when it is this batch's turn
                await turn.enter_async_context(self._searches.turn(asker))
                may_search = True
                continue
            assert rejection is not None
            if searches == MOST_SEARCHES:
                break
            searches += 1
            ask_exactly = partial(place_exactly, world, requests, rejection)
            answer = await self._searches.run(ask_exactly, asker)
            if not answer.fits:
                await self._find_keys(asks)
                if all_replayed(asks):
                    return None
                raise no_fit_together(answer)
        raise PlacementContended("other writers took the room each time")

    def _same_room(self, requests: Sequence[PlaceRequest], lives: Sequence[Life]) -> Room:
        """Return the room that all VMs of a batch see alike; that of everybody if they do not."""
        if len(set(lives)) != 1 or lives[0] is ORDINARY:
            return NO_ROOM
        return room_of(self._roster, requests[0].demand, lives[0])

    async def _claim_all(self, asks: list[PendingCreate]) -> bool:
        """Claim all of a batch that the fleet is charged with; say whether that is its end."""
        with self._released_on_failure(asks):
            proposals = self._propose_all(asks)
        self._begin()
        outcomes = await self._claim(asks, proposals, atomic=True)
        if all(outcome is KEPT for outcome in outcomes):
            self._settle(asks, outcomes)
            return True
        for ask in asks:
            self._charges.release(ask)
        for ask, outcome in zip(asks, outcomes, strict=True):
            if outcome is not KEPT and outcome.verdict is not Verdict.STALE:
                if outcome.verdict is Verdict.REPLAYED:
                    ask.replay = outcome.detail
                    continue
                raise error_of(ask, outcome)
        if all_replayed(asks):
            return True
        await self._follower.catch_up()
        for ask in asks:
            self._charges.refresh(ask)
        return False

    async def _commit(self, batch: list[PendingCreate], *, explained: bool) -> None:
        """Place and claim creates until each has its answer."""
        rest, engine = batch, self._roster.engine
        while rest:
            ruled = bool(engine.rules)
            alone = any(
                ask.groups
                or ask.rules is not None
                or (ruled and reads_amounts(engine, ask.request))
                or any(map(is_bound, ask.request.talks))
                for ask in rest
            )
            async with self._placing:
                if alone:
                    await self._idle.wait()
                with self._released_on_failure(rest):
                    await self._place(rest, explained=explained)
                    asks = [ask for ask in rest if not ask.refused and ask.error is None]
                    refused, room = [ask for ask in rest if ask.refused], self._roster.room
                    proposals = self._propose_all(asks)
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
                    self._charges.refresh(ask)

    def _propose_all(self, asks: list[PendingCreate]) -> list[Proposal]:
        """Return creates as the ledger takes them, with what their rules have read.

        Who waits counts in a project as well, and was not charged to the fleet.
        """
        proposals = [self._propose(ask) for ask in asks]
        engine = self._roster.engine
        if not engine.reads_projects:
            return proposals
        waiting: dict[str, list[Amounts]] = {}
        for proposal in proposals:
            if proposal.claim is None:
                waiting.setdefault(proposal.vm.project, []).append(proposal.vm.amounts)
        for ask, proposal in zip(asks, proposals, strict=True):
            if ask.placement is not None and reads_project(engine, ask.request):
                more = waiting.get(proposal.vm.project, [])
                use = self._roster.project_use(proposal.vm.project)
                proposal.project_after = use.plus(Amounts.total(more), len(more))
        return proposals

    def _propose(self, ask: PendingCreate) -> Proposal:
        groups = ask.group_generations
        if ask.placement is None:
            groups = self._charges.group_generations(ask)
        proposal = propose(ask, groups, self._clock.wall_ms())
        if ask.placement is not None and reads_amounts(self._roster.engine, ask.request):
            proposal.host_after = self._roster.promised_on(ask.placement.host_row)
        return proposal

    async def _place(self, asks: list[PendingCreate], *, explained: bool) -> None:
        """Give every ask a placement or a rejection, and charge the roster; or an error."""
        asks = self._charges.with_groups(asks)
        if len(asks) == 1 and explained:
            self._charges.place_one(asks[0])
        else:
            self._charges.place_all(asks, runners_up=RUNNERS_UP if explained else 0)
        refused = [ask for ask in asks if ask.rejection is not None]
        if refused and self._store.shared and not all(ask.tries for ask in refused):
            # Somebody else may have made room that this process has not heard of yet.
            before = self._roster.room
            await self._follower.catch_up()
            roomier, engine = self._roster.room != before, self._roster.engine
            # Nor of claims that a rule about amounts must see: what was decided without is undone.
            again = [
                ask
                for ask in asks
                if (roomier and ask.rejection is not None)
                or (ask.charged and reads_amounts(engine, ask.request))
            ]
            for ask in again:
                self._charges.release(ask)
            for ask in self._charges.with_groups(again):
                self._charges.place_one(ask)

    async def _claim(
        self, asks: list[PendingCreate], proposals: list[Proposal], *, atomic: bool
    ) -> list[Outcome]:
        try:
            # Not kept, or not known: the ledger decides, and its events will charge what is kept.
            with self._released_on_failure(asks):
                return await self._store.claim(
                    proposals, [ask.actor for ask in asks], self._follower.applied, atomic=atomic
                )
        finally:
            self._end()

    @contextmanager
    def _released_on_failure(self, asks: list[PendingCreate]) -> Iterator[None]:
        """Take charges back when what follows them fails."""
        try:
            yield
        except BaseException:
            for ask in asks:
                self._charges.release(ask)
            raise

    def _begin(self) -> None:
        self._under_way += 1
        self._idle.clear()

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

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
            self._charges.release(ask)
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
            tell_kept(self._roster.fleet, kept, len(asks))
        return again

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


def _in_turn(asks: Sequence[PendingCreate]) -> GroupAnswer:
    """Return a batch that was placed one VM after the other as an answer."""
    placed = tuple(ask.placement for ask in asks if ask.placement is not None)
    return GroupAnswer(placed, GREEDY, order=tuple(range(len(asks))))
