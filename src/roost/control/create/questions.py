"""What would happen: dry runs and capacity, on a copy of the fleet. Nothing is kept."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from roost.base.errors import NotFound
from roost.control.create.grouping import Grouping
from roost.control.create.questionroutes import question_routes
from roost.control.memory.roster import Roster
from roost.control.rules.judging import requests_of_placed
from roost.control.vms.views import answer_body
from roost.ledger.rows import GroupRow
from roost.ledger.store import Store
from roost.model.flow import PlaceRequest
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.placement.capacity import capacity
from roost.placement.strategies import STRATEGIES, strategy_named
from roost.placement.whatif import WhatIf
from roost.wire.answers import capacity_body
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
from roost.wire.translate import constraints_of, demand_of, group_spec, scope_named

T = TypeVar("T")


class Questions(Part):
    """Answers dry runs and capacity questions on a copy of the fleet."""

    def __init__(self, store: Store, roster: Roster, grouping: Grouping) -> None:
        self._store, self._roster, self._grouping = store, roster, grouping
        self._long = asyncio.Lock()  # one long question at a time: each copies the whole fleet

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return question_routes(self)

    async def dry_run(self, body: DryRun, who: Principal) -> PlacementBody | RejectionBody:
        """Say where a VM would go now, or why nowhere."""
        request, new = self._request(body, who)
        if not new:
            engine = self._roster.engine
            answer = engine.place(request, runners_up=body.runners_up)
            return answer_body(answer, self._roster.by_fleet_row)
        by_row = dict(self._roster.by_fleet_row)  # of the copy: rows may change hands meanwhile

        def ask(world: WhatIf) -> PlacementBody | RejectionBody:
            return answer_body(world.place(request, runners_up=body.runners_up), by_row)

        return await self._on_copy(new, ask)

    async def dry_run_many(self, body: DryRunBatch, who: Principal) -> AnswersBody:
        """Say where VMs would go one after the other."""
        requests = []
        new: dict[str, GroupRow] = {}
        for index, vm in enumerate(body.vms):
            request, groups = self._request(vm, who)
            requests.append(replace(request, name=f"{index} {request.name}"))
            new.update({row.id: row for row in groups})
        by_row = dict(self._roster.by_fleet_row)

        def ask(world: WhatIf) -> AnswersBody:
            answers = [answer_body(answer, by_row) for answer in world.place_batch(requests)]
            for answer in answers:
                answer.vm = answer.vm.partition(" ")[2]
            return AnswersBody(answers=answers)

        return await self._on_copy(list(new.values()), ask)

    async def capacity(self, body: CapacityQuestion, who: Principal) -> CapacityBody:
        """Say how many more copies of a VM fit."""
        request, new = self._request(body, who)
        survive = scope_named(body.survive) if body.survive is not None else None

        placed: list[PlaceRequest] = []
        if survive is not None and self._roster.engine.rules:
            found = await requests_of_placed(self._store, self._roster)
            placed = [asked for _, asked in found]

        def ask(world: WhatIf) -> CapacityBody:
            return capacity_body(capacity(world, request, survive, body.losses, placed))

        return await self._on_copy(new, ask)

    async def strategies(self) -> StrategiesBody:
        """Name all strategies."""
        return StrategiesBody(
            default=self._roster.engine.default_strategy,
            strategies=[
                StrategyBody(name=each.name, summary=each.summary) for each in STRATEGIES.values()
            ],
        )

    def _request(self, body: CreateVM, who: Principal) -> tuple[PlaceRequest, list[GroupRow]]:
        """Return the place request of a body, and the groups that it would define."""
        if who.project is not None and body.project != who.project:
            raise NotFound(f"no project {body.project!r}", project=body.project)
        strategy = strategy_named(body.strategy or self._roster.engine.default_strategy)
        new, groups = self._grouping.groups_if_known(body)
        request = PlaceRequest(
            body.name,
            demand_of(body.demand),
            constraints_of(body.constraints),
            groups,
            strategy.name,
            None,
            body.priority,
            body.project,
            labels=tuple(sorted(body.labels.items())),
            restart=body.restart,
        )
        return request, new

    async def _on_copy(self, new: list[GroupRow], ask: Callable[[WhatIf], T]) -> T:
        """Run a question on a copy of the fleet, in a thread: kernels release the GIL."""
        async with self._long:
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
            return await asyncio.to_thread(ask, world)
