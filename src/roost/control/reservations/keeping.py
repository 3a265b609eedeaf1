"""Keep reservations: one process ends them, expands them, and finds their units other hosts.

A unit whose host is gone, offline, closed or too small by now is moved to one that has room for it.
A host that was silent for a moment keeps its units, and a unit that VMs draw on stays where they
stay: it is kept for them, and moved it would be kept twice. While there is no other host the
reservation says that it is not honoured, in an event and to the doctor, and it is tried again when
room appears, and every minute. What hosts hold for windows that have passed is let
go, and what a clock that was wrong gave away is held again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from roost.base.clock import Clock
from roost.base.steady import SteadyWall
from roost.control.memory.follower import Follower
from roost.control.memory.roster import Roster
from roost.control.reservations import writing
from roost.control.reservations.asks import demand_of_unit, places_of, suits
from roost.control.reservations.calendar import (
    DAY_MS,
    LEAST_AHEAD_MS,
    Times,
    expand,
    reaches_further,
)
from roost.control.reservations.reading import state_of
from roost.control.reservations.seeking import Board, find_units
from roost.control.reservations.wishing import copied, recurrence_of, wish_of, with_times
from roost.ledger.claims.holding import holds_of, settle
from roost.ledger.schema.rows import HoldRow, ReservationRow
from roost.ledger.schema.tables import reservations
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.transaction import Tx
from roost.model.kept import Kept
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.reservations")

_LOOK_S = 5.0
#: Reservations and hosts that one look changes.
_PIECE = 50
#: How long a reservation that has ended is still shown.
_SHOWN_MS = 7 * DAY_MS
#: How long hosts are not looked for again for a reservation that had none, unless room appears.
_AGAIN_S = 60.0
#: What an operator has said of hosts whose VMs go elsewhere.
_VMS_LEAVE = ("draining", "maintenance")


class KeptReservations(Part):
    """Ends, expands and moves reservations, under one lease."""

    singleton: Singleton
    look_s = _LOOK_S

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        clock: Clock,
        steady: SteadyWall,
        singleton: Singleton,
    ) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._clock, self._steady, self.singleton = clock, steady, singleton
        #: Reservations that no host was found for: how much room had changed by then, and when.
        self._in_vain: dict[str, tuple[int, float]] = {}

    async def may_look(self) -> bool:
        """Allow looking only while the wall clock can be believed: what has ended is given away."""
        return self._steady.is_steady()

    async def look(self) -> None:
        """See to the reservations that time or hosts have changed, some of them at once."""
        now = self._clock.wall_ms()
        if not self._roster.holdings.reservations:
            return
        await self._follower.catch_up()
        seen_to = 0
        rows = self._roster.holdings.reservations
        self._in_vain = {key: tried for key, tried in self._in_vain.items() if key in rows}
        for row in sorted(rows.values(), key=lambda row: row.id):
            if seen_to < _PIECE and await self._see_to(copied(row), now):
                seen_to += 1
        await self._settle(now)

    async def _see_to(self, row: ReservationRow, now: int) -> bool:
        """Do what one reservation needs; say whether that was something."""
        if state_of(row, now) == "ended":
            return await self._end(row, now)
        if row.expanded_ms is not None and row.expanded_ms - now < LEAST_AHEAD_MS:
            times = await asyncio.to_thread(expand, recurrence_of(row), now)
            if reaches_further(times, row.expanded_ms, now):
                await self._write(row, lambda tx, found: self._expand(tx, found, times))
                return True
        units = self._roster.holdings.of_owner(row.holder)
        lost = self._lost(units)
        missing = row.units - len(units)
        if lost or missing > 0:
            return await self._move(row, units, lost, missing)
        if row.unhonoured:
            await self._write(row, lambda tx, found: self._say(tx, found, "", ""))
            return True
        return False

    # Time

    async def _end(self, row: ReservationRow, now: int) -> bool:
        # No window is left of a recurrence that ended while nobody looked.
        windows = msgspec.json.decode(row.windows)
        last = max((end or now for _, end in windows), default=row.changed_ms)
        if self._roster.holdings.of_owner(row.holder):
            await self._write(row, self._drop)
            return True
        if now - last >= _SHOWN_MS:
            await self._write(row, writing.remove)
            return True
        return False

    @staticmethod
    def _drop(tx: Tx, row: ReservationRow) -> None:
        row.unhonoured = ""
        units = holds_of(tx, row.holder)
        note = "its last window is over; VMs that draw on it run on"
        writing.change(tx, row, (), units, "reservation.ended", note)

    @staticmethod
    def _expand(tx: Tx, row: ReservationRow, times: Times) -> None:
        with_times(row, times)
        units = holds_of(tx, row.holder)
        put = [msgspec.structs.replace(unit, windows=row.windows) for unit in units]
        writing.change(tx, row, put, units, "reservation.expanded")

    async def _settle(self, now: int) -> None:
        """Let hosts hold what they must from now on: no more, and no less.

        Less is held where a process settled a host by a clock that was ahead. What was given away
        then is held again though it is not there: its units have no room, and are moved.
        """
        holdings = self._roster.holdings
        stale = [
            number
            for number in holdings.held_hosts()
            if self._is_stale(number, self._roster.held_on(number), now)
        ]

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            for number in sorted(stale[:_PIECE]):
                settle(tx, number)

        if stale:
            await self._store.write(change)

    def _is_stale(self, number: int, kept: Kept, now: int) -> bool:
        """Say whether a host holds more than it needs, or less than it owes.

        Between the two are VMs that are over and about to leave.
        """
        holdings = self._roster.holdings
        needed = holdings.held(number, now)
        if needed.is_within(kept):
            return needed != kept
        return not holdings.owed(number, now).is_within(kept)

    # Hosts

    def _lost(self, units: Iterable[HoldRow]) -> list[HoldRow]:
        """Return the units whose hosts cannot give their room to the owner any more."""
        by_host: dict[int, list[HoldRow]] = defaultdict(list)
        for unit in units:
            by_host[unit.host].append(unit)
        found: list[HoldRow] = []
        for host, there in sorted(by_host.items()):
            if not self._can_keep(host):
                found += there[self._drawn_and_staying(there[0]) :]
            else:
                found += [unit for unit in there if not self._has_parts(unit)]
        return found

    def _has_parts(self, unit: HoldRow) -> bool:
        """Say whether a host still has the devices and cells that a unit is of, and they suit."""
        if not unit.counters:
            return True
        entry, row = self._roster.hosts[unit.host], self._roster.holdings.reservation_of(unit)
        spec = self._roster.fleet.hosts.spec(entry.fleet_row)
        devices, cells = places_of(unit)
        ask = None if row is None else demand_of_unit(row).devices
        return all(at < len(spec.cells) for at in cells) and all(
            at < len(spec.devices)
            and (ask is None or suits(spec.devices[at], ask.models, ask.memory_bytes, ask.milli))
            for at in devices
        )

    def _drawn_and_staying(self, unit: HoldRow) -> int:
        """Return how many units like this one are drawn on, wholly or not, by VMs that stay."""
        entry = self._roster.hosts.get(unit.host)
        if entry is None or entry.row.health == "offline" or entry.row.admin in _VMS_LEAVE:
            return 0
        living = self._roster.holdings.living.get(unit.host, {}).values()
        # A unit is for one VM, but smaller ones may share it: they are not counted.
        drawn = [each.limits[:-1] for each in living if each.draws_on == unit.owner]
        return max(
            (
                -(-sum(amounts) // of_unit)
                for *amounts, of_unit in zip(*drawn, unit.limits[:-1], strict=True)
                if of_unit
            ),
            default=0,
        )

    def _promises_no_more(self, host: int, row: int) -> bool:
        """Say whether a host has what it has promised and holds, of all that is counted."""
        hosts = self._roster.fleet.hosts
        if not (hosts.arrays.headroom[row, : len(hosts.resources)] >= 0).all():
            return False
        # Of a device or a cell no more is taken off than is free: less than is held is too little.
        parts = self._roster.held_on(host).parts
        return all(hosts.kept_of(row, counter) >= amount for counter, amount in parts)

    def _can_keep(self, host: int) -> bool:
        """Say whether a host can still give what it holds to the owners; a suspect one may."""
        entry = self._roster.hosts.get(host)
        if entry is None or entry.aside:
            return False
        row, fleet = entry.fleet_row, self._roster.fleet
        if entry.row.health == "offline" or entry.row.admin != "open":
            return False
        if not fleet.hosts.known[row]:
            return False
        now = self._clock.wall_ms()
        leaving = any(
            each.until_ms <= now for each in self._roster.holdings.living.get(host, {}).values()
        )
        # What a VM leaves that is over is free in a moment.
        return leaving or self._promises_no_more(host, row)

    async def _move(
        self, row: ReservationRow, units: Sequence[HoldRow], lost: list[HoldRow], missing: int
    ) -> bool:
        """Find other hosts for units that have none, or none that keeps them."""
        never = sorted(
            {e.name for unit in lost if (e := self._roster.hosts.get(unit.host)) is not None}
        )
        wanted = len(lost) + missing
        now_s, tried = self._clock.monotonic(), self._in_vain.get(row.id)
        if tried and tried[0] == self._roster.room and now_s - tried[1] < _AGAIN_S:
            return False
        board = Board.of(self._roster)
        places = await asyncio.to_thread(
            lambda: find_units(board, wish_of(row, board, wanted, never))
        )
        if places:
            self._in_vain.pop(row.id, None)
        else:
            self._in_vain[row.id] = (self._roster.room, now_s)
        if not places:
            why = f"{wanted} of {row.units} units have no host that can keep them"
            if row.unhonoured == why:
                return False
            log.error("reservation %s is not honoured: %s", row.id, why)
            await self._write(
                row, lambda tx, found: self._say(tx, found, why, why, "reservation.unhonoured")
            )
            return True
        gone = lost[: len(places)]

        def change(tx: Tx, found: ReservationRow) -> None:
            there = {unit.id: unit for unit in holds_of(tx, found.holder)}
            dropped = [there[unit.id] for unit in gone if unit.id in there]
            left = [unit for key, unit in there.items() if key not in {u.id for u in dropped}]
            most = max(0, found.units - len(left))
            put: list[HoldRow] = []
            numbers = writing.free_numbers(left, len(places))
            for number, place in list(zip(numbers, places, strict=True))[:most]:
                put += writing.units_at(found, [place], number)
            still = wanted - len(places)
            found.unhonoured = (
                f"{still} of {found.units} units have no host that can keep them" if still else ""
            )
            note = f"{len(put)} units have another host"
            writing.change(tx, found, put, dropped, "reservation.moved", note)

        await self._write(row, change)
        return True

    @staticmethod
    def _say(
        tx: Tx, row: ReservationRow, why: str, note: str, event: str = "reservation.honoured"
    ) -> None:
        row.unhonoured = why
        writing.change(tx, row, (), (), event, note)

    async def _write(
        self, row: ReservationRow, change: Callable[[Tx, ReservationRow], None]
    ) -> None:
        """Change one reservation that is still as it was seen; else it is looked at again."""

        def locked(tx: Tx) -> None:
            self.singleton.check(tx)
            if release_before_may_be_here(tx.connection):
                return
            found = tx.find(reservations, lock=True, id=row.id)
            if found is not None and found["version"] == row.version:
                change(tx, ReservationRow(**found))

        try:
            await self._store.write(locked)
        except writing.Overtaken:
            log.info("reservation %s is looked at again: others took the room", row.id)
