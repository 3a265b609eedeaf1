"""What would happen: dry runs, capacity, recommendations, on a copy of the fleet.

Nothing is kept.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import read_timestamp
from roost.control.create.drawing import find_living, know_reservation, life_of
from roost.control.create.grouping import Grouping
from roost.control.create.living import Room, place_seeing, place_turns, room_of
from roost.control.create.making_room import MakesRoom
from roost.control.create.questionroutes import question_routes
from roost.control.create.recommending import recommend_existing, recommend_new
from roost.control.create.searches import Searches
from roost.control.create.stranding import as_seen
from roost.control.create.underlying import are_known, in_own_project, spread_of, under
from roost.control.memory.displacing import may_displace
from roost.control.memory.expecting import Traits
from roost.control.memory.follower import Follower
from roost.control.memory.holdings import ORDINARY, Life
from roost.control.memory.oneatatime import OneAtATime
from roost.control.memory.roster import Roster
from roost.control.memory.rostercopy import RosterCopy
from roost.control.rules.judging import requests_of_placed
from roost.control.vms.idle import tell_idle
from roost.control.vms.lookup import require_projects, vm_row
from roost.control.vms.naming_moves import NamesMoves
from roost.control.vms.nearby import with_near_found
from roost.control.vms.requests import request_of
from roost.control.vms.views import answer_body
from roost.fleet.projects import NO_USE
from roost.ledger.claims.capacity import MIGRATE_IN, RUN, claim_id
from roost.ledger.schema.rows import GroupRow, VMRow
from roost.ledger.store import Store
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.model.vm import VMSpec
from roost.parts.access import Principal
from roost.parts.asker import Asker
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.placement.capacity import CapacityAnswer, capacity
from roost.placement.effort import Effort
from roost.placement.group import GREEDY, GroupAnswer, place_group
from roost.placement.strategies import STRATEGIES, strategy_named
from roost.placement.whatif import WhatIf
from roost.wire.answers import capacity_body, together_body
from roost.wire.bodies import (
    AnswersBody,
    CapacityBody,
    CapacityQuestion,
    CreateVM,
    DryRun,
    DryRunBatch,
    PlacementBody,
    RejectionBody,
    StrategiesBody,
    StrategyBody,
)
from roost.wire.bodies.words import DEFAULT_PROJECT
from roost.wire.recommendations import AskRecommendations, RecommendationsBody
from roost.wire.specs import asked_image, spec_of
from roost.wire.translate import constraints_of, demand_of, demand_said, group_spec, scope_named

B = TypeVar("B", bound=CreateVM)
S = TypeVar("S")
T = TypeVar("T")


class Questions(Part):
    """Answers dry runs, capacity questions and recommendations on a copy of the fleet."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        grouping: Grouping,
        searches: Searches,
        makes_room: MakesRoom | None = None,
    ) -> None:
        self._searches = searches
        self._store, self._roster, self._grouping = store, roster, grouping
        self._follower = follower
        self.makes_room = makes_room
        self.names_moves: NamesMoves | None = None
        self._long = OneAtATime("questions about the fleet")

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return question_routes(self)

    async def dry_run(self, body: DryRun, who: Principal) -> PlacementBody | RejectionBody:
        """Say where a VM would go now, or why nowhere."""
        [body] = await self._sized([body], who)
        request, new = await self._request(body, who)
        if not new:
            life = self._life(body, who)
            found = None
            if life is not ORDINARY:
                found = find_living(self._roster, request, life, runners_up=body.runners_up).answer
            answer = found or self._roster.engine.place(request, runners_up=body.runners_up)
            shown = answer_body(answer, self._roster.by_fleet_row)
            if isinstance(shown, RejectionBody):
                if self._may_displace(body, request.policy):
                    shown.preemption = await self.makes_room.planned(request, who)  # type: ignore[union-attr]
                await tell_idle(shown, self._store, who)
                if body.moves and life is ORDINARY and self.names_moves is not None:
                    await self.names_moves.tell_moves(shown, request, who)
            return shown
        by_row = dict(self._roster.by_fleet_row)  # of the copy: rows may change hands meanwhile

        def ask(world: WhatIf, room: Room) -> PlacementBody | RejectionBody:
            return answer_body(place_seeing(world, request, room, body.runners_up), by_row)

        told = await self._on_copy(new, ask, self._seen(request, self._life(body, who)))
        if isinstance(told, RejectionBody):
            await tell_idle(told, self._store, who)
        return told

    async def _sized(self, bodies: Sequence[B], who: Principal) -> list[B]:
        """Return bodies with the demands of their flavors, once all that they name was heard of."""
        await self._know_projects({body.project or who.home for body in bodies}, who)
        if not are_known(self._roster, bodies):
            await self._follower.catch_up()
        return [self._roster.flavors.sized(body) for body in bodies]

    async def _know_projects(self, names: set[str], who: Principal) -> None:
        """Refuse projects that are not there: one without VMs is looked up in the ledger."""
        accounts = self._roster.fleet.projects
        unsure = {name for name in names - {DEFAULT_PROJECT} if accounts.use(name) == NO_USE}
        if unsure and who.project is None:
            await self._store.read(lambda connection: require_projects(connection, sorted(unsure)))

    def _life(self, body: CreateVM, who: Principal) -> Life:
        """Return how long a VM would live, and what it might draw on."""
        return life_of(self._roster, spec_of(body, by=who.name).spec, body.project or who.home)

    def _may_displace(self, body: CreateVM, policy: str) -> bool:
        """Say whether a VM might displace others: its policy or its class says so."""
        if self.makes_room is None or body.on_no_fit == "fail":
            return False
        _, name = self._roster.classes.given(body.priority_class, body.priority)
        return may_displace(self._roster, name, policy)

    async def dry_run_many(
        self, body: DryRunBatch, who: Principal, asker: Asker | None = None
    ) -> AnswersBody:
        """Say where VMs would go one after the other, or all together."""
        requests = []
        new: dict[str, GroupRow] = {}
        vms = await self._sized(body.vms, who)
        for index, vm in enumerate(vms):
            request, groups = await self._request(vm, who)
            requests.append(replace(request, key=f"{index} {request.name}"))
            new.update({row.id: row for row in groups})
        by_row = dict(self._roster.by_fleet_row)
        lives = [self._life(vm, who) for vm in vms]
        asked = list(zip(requests, lives, strict=True))
        room_seen = self._seen(requests[0], lives[0] if len(set(lives)) == 1 else ORDINARY)

        def seen(world: WhatIf) -> tuple[Room, RosterCopy | None]:
            in_turn = any(life is not ORDINARY for life in lives) and not new
            return room_seen(world), RosterCopy.of(self._roster, world) if in_turn else None

        def ask(
            world: WhatIf, seen: tuple[Room, RosterCopy | None], effort: Effort | None = None
        ) -> AnswersBody:
            room, copy = seen
            turns, together = None, None
            if copy is not None:
                turns = [each.answer for each in place_turns(copy, asked, whole=body.atomic)]
            if body.atomic:
                found = _in_turn(turns)
                if found is None:
                    world.fleet.keep_free_many(dict(room.kept))
                    found = place_group(world, requests, effort=effort)
                together = together_body(found)
                answers = [answer_body(each, by_row) for each in found.placements]
                if found.rejection is not None:
                    answers = [answer_body(found.rejection, by_row)]
            else:
                told = world.place_batch(requests) if turns is None else turns
                answers = [answer_body(answer, by_row) for answer in told if answer is not None]
            return AnswersBody(answers=answers, together=together)

        groups = list(new.values())
        if not body.atomic:
            return await self._on_copy(groups, ask, seen)
        asker = asker or Asker()
        async with self._searches.turn(asker):
            world = self._copy(groups)
            return await self._searches.run(partial(ask, world, seen(world)), asker)

    async def capacity(self, body: CapacityQuestion, who: Principal) -> CapacityBody:
        """Say how many more copies of a VM fit."""
        [body] = await self._sized([body], who)
        request, new = await self._request(body, who)
        survive = scope_named(body.survive) if body.survive is not None else None

        placed: list[PlaceRequest] = []
        if survive is not None and self._roster.engine.rules:
            there = await requests_of_placed(self._store, self._roster)
            placed = [asked for _, asked in there]
        # What is lost is restarted in the room that is open to all.
        life = self._life(body, who) if survive is None else ORDINARY

        def ask(world: WhatIf, room: Room) -> CapacityAnswer:
            world.fleet.keep_free_many(dict(room.kept))
            return capacity(world, request, survive, body.losses, placed)

        found = await self._on_copy(new, ask, self._seen(request, life))
        if found.stranded is not None:
            found = replace(found, stranded=await as_seen(found.stranded, self._store, who))
        return capacity_body(found)

    async def recommend(self, body: AskRecommendations, who: Principal) -> RecommendationsBody:
        """Rank the hosts for a VM that exists, or for one that does not."""
        if (body.vm is None) == (body.new is None):
            raise InvalidRequest(
                "recommendations are for `vm`, which exists, or for `new`, which does not"
            )
        if body.new is not None:
            [asked] = await self._sized([body.new], who)
            request, new = await self._request(asked, who)
            return await self._on_copy(
                new,
                lambda world, room: recommend_new(world, request, body.most, room),
                self._seen(request, self._life(asked, who)),
            )
        assert body.vm is not None
        ref, project = body.vm, body.project

        def question(connection: Connection) -> tuple[VMRow, VMSpec | None]:
            vm = vm_row(connection, ref, project, who)
            return vm, self._roster.specs.read(connection, [vm]).get(vm.id)

        vm, spec = await self._store.read(question)
        request = request_of(vm, self._roster, spec)
        life = life_of(self._roster, spec or self._roster.specs.of(vm), vm.project)
        own = [claim_id(vm.id, kind) for kind in (RUN, MIGRATE_IN)]
        return await self._on_copy(
            [],
            lambda world, room: recommend_existing(world, vm, request, body.most, room),
            self._seen(request, life, own),
        )

    async def strategies(self) -> StrategiesBody:
        """Name all strategies."""
        return StrategiesBody(
            default=self._roster.engine.default_strategy,
            strategies=[
                StrategyBody(name=each.name, summary=each.summary) for each in STRATEGIES.values()
            ],
        )

    async def _request(self, body: CreateVM, who: Principal) -> tuple[PlaceRequest, list[GroupRow]]:
        """Return the place request of a body, and the groups that it would define."""
        body = in_own_project(body, who)
        if who.project is not None and body.project != who.project:
            raise NotFound(f"no project {body.project!r}", project=body.project)
        if body.reservation:
            know_reservation(self._roster, body.reservation, body.project, who.name)
        policy, choice = under(self._roster, body)
        default = choice.strategy or self._roster.engine.default_strategy
        strategy = strategy_named(body.strategy or default)
        new, groups = self._grouping.groups_if_known(
            body, policy.policy, spread_of(self._roster, policy.policy)
        )
        priority, _ = self._roster.classes.given(body.priority_class, body.priority)
        demand = demand_of(demand_said(body))
        constraints = constraints_of(body.constraints)
        constraints = await with_near_found(
            self._store, self._roster, constraints, body.project, who
        )
        expected = self._roster.expectations.of(
            "",
            Traits(
                demand.cpu_milli,
                demand.memory_bytes,
                body.project,
                asked_image(body),
                None if body.until is None else read_timestamp(body.until, "until"),
                body.flavor or "",
            ),
        )
        request = PlaceRequest(
            body.name,
            demand,
            constraints,
            groups,
            strategy.name,
            None,
            priority,
            body.project,
            labels=tuple(sorted(body.labels.items())),
            restart=body.restart or policy.restart,
            policy=policy.policy,
            expected=expected,
            talks=self._roster.talkers.of(
                "", f"{body.project}/{body.name}", constraints.near, groups
            ),
            day=strategy.day_for(expected),
        )
        return request, new

    def _seen(
        self, request: PlaceRequest, life: Life, without: Sequence[str] = ()
    ) -> Callable[[WhatIf], Room]:
        """Return how to ask for the room that VMs of a life see: of the same moment as a copy."""
        return lambda world: room_of(self._roster, request.demand, life, without)

    async def _on_copy(
        self, new: list[GroupRow], ask: Callable[[WhatIf, S], T], seen: Callable[[WhatIf], S]
    ) -> T:
        """Run a question on a copy of the fleet, in a thread: kernels release the GIL."""
        async with self._long.turn():
            world = self._copy(new)
            return await asyncio.to_thread(ask, world, seen(world))

    def _copy(self, new: list[GroupRow]) -> WhatIf:
        """Return a copy of the fleet that also knows some new groups."""
        world = WhatIf.like(self._roster.engine)
        for row in new:
            world.fleet.add_group(
                group_spec(
                    row.id,
                    row.rule,
                    row.scope,
                    hard=row.hard,
                    max_skew=row.max_skew,
                    weight=row.weight,
                )
            )
        return world


def _in_turn(turns: Sequence[Placement | Rejection | None] | None) -> GroupAnswer | None:
    """Return a batch that was placed one VM after the other, if all of it was."""
    if turns is None or not all(isinstance(each, Placement) for each in turns):
        return None
    placed = tuple(each for each in turns if isinstance(each, Placement))
    return GroupAnswer(placed, GREEDY, order=tuple(range(len(placed))))
