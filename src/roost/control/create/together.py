"""Charge an all-or-none batch to the fleet in slices: all of its creates, or none of them.

Thousands of VMs take seconds to place one after the other. The event loop serves others after each
slice; what was placed until then stays charged, like creates whose commit is under way, so nobody
takes that room meanwhile. When one does not fit, all of it is given back.

`committing` holds its lock, so no other create is placed in between; events may come, and what has
changed by them is found by the claim statement, or here by the next slice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from roost.control.create.charging import FleetCharges
from roost.control.create.drawing import find_living
from roost.control.create.living import Room, seeing
from roost.control.create.pending import PendingCreate
from roost.control.memory.holdings import ORDINARY
from roost.control.memory.roster import Roster
from roost.model.flow import Placement, Rejection
from roost.placement.group import GroupAnswer
from roost.placement.solver.checking import passes

#: VMs that are placed before others are served.
SLICE = 32


class Together:
    """Charges all VMs of a batch or none; must not run twice at a time."""

    def __init__(
        self,
        roster: Roster,
        charges: FleetCharges,
        rest: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
    ) -> None:
        self._roster, self._charges, self._rest = roster, charges, rest

    async def in_turn(self, asks: Sequence[PendingCreate]) -> Rejection | None:
        """Place one VM after the other; return why one fits nowhere, and nothing is charged then.

        Raises what a create is refused with whose policy or groups go meanwhile.
        """
        cursor = self._roster.engine.cursor
        done = False
        try:
            for at, ask in enumerate(asks):
                if at and at % SLICE == 0:
                    await self._rest_before(asks[at:])
                refused = self._place(ask)
                if refused is not None:
                    return refused
            done = True
        finally:
            if not done:
                self.give_back(asks)
                self._roster.engine.cursor = cursor
        return None

    async def as_found(self, asks: Sequence[PendingCreate], found: GroupAnswer, room: Room) -> bool:
        """Place VMs as they were placed on a copy; False, with nothing charged, if they cannot be.

        Each goes as soon as every filter lets it be there, as in `order_that_fits`.
        """
        names = self._roster.fleet.hosts.names
        if any(names[each.host_row] != each.host for each in found.placements):
            return False  # a row has changed hands
        left, looked, done = list(found.order), 0, False
        try:
            while left:
                waiting = []
                for at in left:
                    looked += 1
                    if looked % SLICE == 0:
                        await self._rest_before([ask for ask in asks if not ask.charged])
                    if not self._put(asks[at], found.placements[at], room):
                        waiting.append(at)
                if len(waiting) == len(left):
                    return False
                left = waiting
            done = True
        finally:
            if not done:
                self.give_back(asks)
        return True

    def give_back(self, asks: Sequence[PendingCreate]) -> None:
        """Give back what a batch was charged with."""
        for ask in asks:
            self._charges.release(ask)

    def _place(self, ask: PendingCreate) -> Rejection | None:
        """Place and charge one VM on the fleet as it is; return why it fits nowhere."""
        engine, life = self._roster.engine, self._charges.life(ask)
        answer: Placement | Rejection | None
        if life is ORDINARY:
            answer, draws_on = engine.find(ask.request) or engine.reject(ask.request), None
        else:
            answer, draws_on = find_living(self._roster, ask.request, life)
        if not isinstance(answer, Placement):
            assert answer is not None
            return answer
        self._charges.take(ask, answer, draws_on)
        return None

    def _put(self, ask: PendingCreate, placement: Placement, room: Room) -> bool:
        """Charge one VM where it was put, if every filter lets it be there."""
        row = placement.host_row
        if self._roster.fleet.hosts.names[row] != placement.host:
            return False  # it has changed hands since the last slice
        kept = {row: room.kept[row]} if row in room.kept else {}
        with seeing(self._roster.engine, kept):
            fits = passes(self._roster.engine, ask.request, placement)
        if fits:
            self._charges.take(ask, placement, room.draws_on.get(row))
        return fits

    async def _rest_before(self, rest: Sequence[PendingCreate]) -> None:
        """Let others be served, then look whether policies and groups of the rest still stand."""
        await self._rest()
        self._charges.with_groups(list(rest))
        if (wrong := next((ask.error for ask in rest if ask.error), None)) is not None:
            raise wrong
