"""Draft plans on a copy of the fleet, in a thread: nothing else waits, and nothing is changed.

Both who asks for a plan and who plans the rest of one anew come here; one draft at a time, because
each copies the whole fleet twice.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from roost.base.clock import Clock
from roost.control.memory.oneatatime import OneAtATime, to_the_end
from roost.control.memory.roster import Roster
from roost.control.plans.gathering import Gathering
from roost.control.plans.record import PLANNED, Asked, Numbers, cost_text, numbers_of
from roost.ledger.rows import PlanMoveRow
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.planner.board import Board, Limits
from roost.planner.drafting import Draft, Wish, draft, picture, with_rates
from roost.planner.rolling import Rolling, roll

#: The name under which room for a VM that is not there yet is looked for.
NEWCOMER = "the new VM"


class Planning:
    """Drafts plans; knows which VMs other plans have in hand."""

    def __init__(self, gathering: Gathering, roster: Roster, clock: Clock) -> None:
        self._gathering, self._roster, self._clock = gathering, roster, clock
        self._long = OneAtATime("plans")

    async def draft(
        self,
        asked: Asked,
        *,
        taken: Collection[str] = (),
        held: Mapping[str, str] | None = None,
        failed: Collection[str] = (),
        at_ms: int | None = None,
        refusable: bool = True,
    ) -> Draft:
        """Draft a plan; VMs of other plans stay, those that are held, and those that failed."""
        async with self._long.turn(refusable=refusable):
            limits = Limits(asked.per_host, asked.at_once, asked.most)
            board = await self._gathering.board(limits, at_ms)
            board = _holding(board, dict.fromkeys(taken, "another plan moves it"))
            tired = "it has failed to move twice in this plan"
            board = _holding(board, {**(held or {}), **dict.fromkeys(failed, tired)})
            unwanted = asyncio.Event()
            board.given_up = unwanted.is_set
            found = await to_the_end(lambda: draft(board, wish_of(asked)), unwanted.set)
            # Of those that move alone: a fleet has more VMs than anybody would read samples of.
            rates = await self._gathering.dirty_rates([each.who.vm for each in found.moves])
            if not rates:
                return found
            return await to_the_end(lambda: with_rates(board, found, rates), unwanted.set)

    async def roll(self, rows: Sequence[int], most: int, *, spare: bool) -> Rolling:
        """Put hosts, by fleet row, into groups that may be away together."""
        async with self._long.turn():
            board = await self._gathering.board(Limits())
            unwanted = asyncio.Event()
            board.given_up = unwanted.is_set
            return await to_the_end(lambda: roll(board, rows, most, spare=spare), unwanted.set)

    async def numbers(self) -> Numbers:
        """Return the fleet in numbers as it is now."""
        async with self._long.turn(refusable=False):
            board = await self._gathering.board(Limits())
            return numbers_of(await to_the_end(lambda: picture(board), lambda: None))

    def rows(
        self, plan: str, found: Draft, first: int = 1, after: int = 0, draft: int = 0
    ) -> list[PlanMoveRow]:
        """Return the moves of a draft as rows, numbered from `first`, in waves behind `after`."""
        hosts = self._roster.by_fleet_row
        return [
            PlanMoveRow(
                plan=plan,
                number=number,
                wave=after + each.wave,
                vm=each.who.vm,
                name=each.who.name,
                source=hosts[each.source].number,
                target=hosts[each.target].number,
                state=PLANNED,
                why=each.why,
                draft=draft,
                predicted=cost_text(each.cost),
                actual="",
                begun_ms=None,
                ended_ms=None,
            )
            for number, each in enumerate(found.moves, first)
            if each.source in hosts and each.target in hosts
        ]

    def host_names(self) -> list[str]:
        """Return the names of hosts by fleet row."""
        return self._roster.fleet.hosts.names


def wish_of(asked: Asked) -> Wish:
    """Return what a plan is for, as the planner takes it."""
    request = None
    if asked.size is not None:
        size = asked.size
        request = PlaceRequest(NEWCOMER, Demand(size.cpu_milli, size.memory_bytes, size.disk_bytes))
    return Wish(asked.goal, tuple(asked.hosts), tuple(asked.vms), asked.to, request, asked.urgent)


def _holding(board: Board, vms: Mapping[str, str]) -> Board:
    """Return a board on which some VMs stay where they are, and why."""
    held = {vm: board.candidates[vm] for vm in vms if vm in board.candidates}
    if held:
        stay = {vm: replace(who, stays=who.stays or vms[vm]) for vm, who in held.items()}
        board.candidates = {**board.candidates, **stay}
    return board
