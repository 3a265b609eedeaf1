"""Draft plans on a copy of the fleet, in a thread: nothing else waits, and nothing is changed.

Both who asks for a plan and who plans the rest of one anew come here; one draft at a time, because
each copies the whole fleet twice.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from roost.base.clock import Clock
from roost.control.memory.oneatatime import OneAtATime, to_the_end
from roost.control.memory.roster import Roster
from roost.control.plans.gathering import Gathering
from roost.control.plans.record import PLANNED, Asked, Numbers, cost_text, numbers_of
from roost.ledger.schema.rows import PlanMoveRow
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.planner.board import Board, Limits
from roost.planner.cost import MemoryRead
from roost.planner.drafting import (
    Draft,
    Wish,
    draft,
    picture,
    vetoes_as_read,
    with_readings,
    with_vetoes,
)
from roost.planner.guards import Guard, Veto
from roost.planner.rolling import Rolling, roll

T = TypeVar("T")

#: The name under which room for a VM that is not there yet is looked for.
NEWCOMER = "the new VM"
#: VMs whose memory is read before a draft that is made again.
_MOST_READ_FIRST = 500


class Planning:
    """Drafts plans; knows which VMs other plans have in hand."""

    def __init__(self, gathering: Gathering, roster: Roster, clock: Clock) -> None:
        self._gathering, self._roster, self._clock = gathering, roster, clock
        self._long = OneAtATime("plans")

    @property
    def busy(self) -> bool:
        """Say whether somebody drafts a plan now."""
        return self._long.busy

    async def draft(
        self,
        asked: Asked,
        *,
        taken: Collection[str] = (),
        held: Mapping[str, str] | None = None,
        failed: Collection[str] = (),
        at_ms: int | None = None,
        refusable: bool = True,
        own: str = "",
    ) -> Draft:
        """Draft a plan; VMs of other plans stay, those that are held, and those that failed.

        `own` is the plan that is drafted anew: the room that is held for it is free to it.
        """
        tired = dict.fromkeys(failed, "it has failed to move twice in this plan")
        stay = {**(held or {}), **tired, **dict.fromkeys(taken, "another plan moves it")}
        async with self._long.turn(refusable=refusable):
            found, refused, guessed = await self._draft(asked, stay, at_ms, own)
            if not refused and not guessed:
                return found
            # What was measured says no to moves of this draft, and waves rest on one another. In
            # the place of their VMs others of the same hosts are asked first.
            no = {each.vm: each.why for each in refused}
            hosts = guessed | {each.who.host for each in found.moves if each.who.vm in no}
            found, _, _ = await self._draft(asked, {**no, **stay}, at_ms, own, hosts)
            return with_vetoes(found, refused)

    async def _draft(
        self,
        asked: Asked,
        stay: Mapping[str, str],
        at_ms: int | None,
        own: str,
        read_first: Collection[int] = (),
    ) -> tuple[Draft, tuple[Veto, ...], set[int]]:
        """Return a draft, and what guards say of its moves by what was measured of memory.

        The memory of VMs on some hosts, by number, is read before guards are asked at all. Beside
        them stand the hosts of VMs that a guess of what they write has kept where they are.
        """
        limits = Limits(
            asked.per_host,
            asked.at_once,
            asked.most,
            asked.per_link,
            not_converging=asked.not_converging,
        )
        board = _holding(await self._gathering.board(limits, at_ms, own), stay)
        if read_first:
            vms = [vm for vm, who in board.candidates.items() if who.host in read_first]
            board = _as_read(board, await self._gathering.memory_read(vms[:_MOST_READ_FIRST]))
        unwanted = asyncio.Event()
        board.given_up = unwanted.is_set
        found = await to_the_end(lambda: draft(board, wish_of(asked)), unwanted.set)
        guessed = {
            board.candidates[each.vm].host
            for each in (*found.blockers, *found.vetoes)
            if each.guard is Guard.CONVERGENCE
        }
        # Of those that move alone: a fleet has more VMs than anybody would read samples of.
        read = await self._gathering.memory_read([each.who.vm for each in found.moves])
        if not read:
            return found, (), guessed

        def as_read() -> tuple[Draft, tuple[Veto, ...], set[int]]:
            return with_readings(board, found, read), vetoes_as_read(board, found, read), guessed

        return await to_the_end(as_read, unwanted.set)

    async def ask(
        self, question: Callable[[Board], T], most: int, taken: Collection[str] = ()
    ) -> T:
        """Ask a question of a board of now, on which VMs of other plans stay."""
        async with self._long.turn():
            board = await self._gathering.board(Limits(most=most))
            board = _holding(board, dict.fromkeys(taken, "another plan moves it"))
            unwanted = asyncio.Event()
            board.given_up = unwanted.is_set
            return await to_the_end(lambda: question(board), unwanted.set)

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
    hosts, vms = tuple(asked.hosts), tuple(asked.vms)
    return Wish(asked.goal, hosts, vms, asked.to, request, asked.urgent, asked.spare)


def _as_read(board: Board, read: Mapping[str, MemoryRead]) -> Board:
    """Return a board on which guards go by what was measured of the memory of some VMs."""
    known = {vm: board.candidates[vm] for vm in read}
    board.candidates = {
        **board.candidates,
        **{vm: replace(who, load=who.load.as_read(read[vm])) for vm, who in known.items()},
    }
    return board


def _holding(board: Board, vms: Mapping[str, str]) -> Board:
    """Return a board on which some VMs stay where they are, and why."""
    held = {vm: board.candidates[vm] for vm in vms if vm in board.candidates}
    if held:
        stay = {vm: replace(who, stays=who.stays or vms[vm]) for vm, who in held.items()}
        board.candidates = {**board.candidates, **stay}
    return board
