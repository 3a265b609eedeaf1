"""Reservations as objects: list, show, create, change, delete, calendar.

A reservation is accepted when every unit has a host that keeps it in all of its windows; from then
on the room is held in the ledger, whatever is placed by whichever process. One that cannot be kept
is refused with where or when it could be.
"""

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import Conflict, InvalidRequest, PlacementContended
from roost.base.timestamps import timestamp
from roost.control.memory.follower import Follower
from roost.control.memory.oneatatime import OneAtATime
from roost.control.memory.roster import Roster
from roost.control.reservations import writing
from roost.control.reservations.asks import demand_of_unit
from roost.control.reservations.calendar import read_moment
from roost.control.reservations.reading import (
    calendar,
    detail,
    listed,
    reservation_row,
)
from roost.control.reservations.routes import reservation_routes
from roost.control.reservations.seeking import (
    Board,
    Elsewhere,
    UnitPlace,
    find_units,
    look_elsewhere,
)
from roost.control.reservations.wishing import copied, row_of, timed, wish_of
from roost.ledger.claims.holding import holds_of
from roost.ledger.claims.holdsums import windows_of
from roost.ledger.schema.rows import HoldRow, ReservationRow
from roost.ledger.schema.tables import holds, reservations
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.idempotency import find_keys, use_key
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.reservations import (
    AskCalendar,
    CalendarBody,
    ChangeReservation,
    CreateReservation,
    ListReservations,
    ReservationDetail,
    ReservationPage,
)

T = TypeVar("T")

_MOST_TRIES = 8
#: Other hosts that a refusal names in its hint, and rules that it names.
_MOST_TOLD = 5
_encode = msgspec.json.Encoder(order="sorted").encode


class Reservations(Part):
    """Reservations as objects: listed, made, changed, deleted."""

    def __init__(self, store: Store, roster: Roster, follower: Follower, clock: Clock) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._clock = clock
        self._long = OneAtATime("reservations")

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return reservation_routes(self)

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor reservations that are not honoured, and units without one."""
        rows = {row["id"]: ReservationRow(**row) for row in find_rows(connection, reservations, {})}
        found.count("reservations", len(rows))
        for row in rows.values():
            if row.unhonoured:
                said = f"reservation {row.id!r} is not honoured: {row.unhonoured}"
                found.trouble("reservations", said)

    # Reading

    async def list(self, asked: ListReservations, who: Principal) -> ReservationPage:
        """Return reservations in the order of their names."""
        now = self._clock.wall_ms()
        return await self._store.read(lambda connection: listed(connection, asked, who, now))

    async def get(self, name: str, who: Principal) -> ReservationDetail:
        """Return one reservation with its units and windows."""
        now = self._clock.wall_ms()

        def question(connection: Connection) -> ReservationDetail:
            return detail(connection, reservation_row(connection, name, who), now)

        return await self._store.read(question)

    async def calendar(self, asked: AskCalendar, who: Principal) -> CalendarBody:
        """Return windows in the order of their starts, from now on unless said otherwise."""
        start = self._clock.wall_ms()
        if asked.start is not None:
            start = read_moment(asked.start, "UTC", "start")
        end = None if asked.end is None else read_moment(asked.end, "UTC", "end")
        return await self._store.read(
            lambda connection: calendar(connection, who, start, end, asked)
        )

    # Changing

    async def create(
        self, body: CreateReservation, who: Principal, key: str | None = None
    ) -> ReservationDetail:
        """Reserve capacity; the same key with the same body gives the first answer."""
        scope, digest = f"reservation:{who.name}", sha256(_encode(body)).hexdigest()
        if key is not None:
            # Before it is tried: the room may be taken by now, by itself.
            used = (await find_keys(self._store, [(scope, key)])).get((scope, key))
            if used is not None and used.digest == digest:
                return await self._store.read(lambda found: self._made(found, used.answer))
            if used is not None:
                raise Conflict("this idempotency key was used for another request", key=key)
        if body.name in self._roster.holdings.reservations:
            raise Conflict(f"there is a reservation {body.name!r} already", reservation=body.name)
        if not self._knows(body):
            await self._follower.catch_up()  # another process may have just made what it names
        body = self._roster.flavors.sized(body)
        # That a recurrence never happens is found after a long look at the calendar.
        row = await asyncio.to_thread(row_of, body, who.name, self._clock.wall_ms())
        self._roster.fleet.hosts.admit_demand(demand_of_unit(row))
        for name in body.hosts:
            if self._roster.entry(name) is None:
                raise InvalidRequest(f"there is no host {name!r} to reserve on", host=name)

        def change(tx: Tx, places: Sequence[UnitPlace]) -> ReservationDetail:
            if use_key(tx, scope, key, digest, row.id) is None:
                writing.insert(tx, row, places)
            return self._made(tx.connection, row.id)

        return await self._with_hosts(row, row.units, who, change)

    def _knows(self, body: CreateReservation) -> bool:
        """Say whether this process has heard of the flavor and the hosts that a body names."""
        flavor = body.flavor is None or body.flavor in self._roster.flavors.rows
        return flavor and all(self._roster.entry(name) is not None for name in body.hosts)

    async def change(self, name: str, body: ChangeReservation, who: Principal) -> ReservationDetail:
        """Change a reservation; it stays what it was when that cannot be honoured."""
        now = self._clock.wall_ms()

        def look(connection: Connection) -> tuple[ReservationRow, Sequence[HoldRow]]:
            found = reservation_row(connection, name, who)
            return found, self._units(connection, found.holder)

        before, units = await self._store.read(look)
        row = copied(before)
        if body.version not in (row.version, msgspec.UNSET):
            raise Conflict(
                f"reservation {name!r} is at version {row.version}, not {body.version}",
                hint="Maybe look at it again, then change it.",
                reservation=name,
                version=row.version,
            )
        if not isinstance(body.description, UnsetType):
            row.description = body.description
        if not isinstance(body.units, UnsetType):
            row.units = body.units
        if not isinstance(body.end, UnsetType):
            row.until_ms = _new_end(row, body.end, now)
            timed(row, now)
            if not windows_of(row.windows):
                raise InvalidRequest(f"reservation {name!r} would have no window left")
        kept = units[: row.units]
        more = row.units - len(kept)

        def change(tx: Tx, places: Sequence[UnitPlace]) -> ReservationDetail:
            found = reservation_row(tx.connection, name, who, lock=True)
            if found.version != before.version:
                raise Conflict(f"reservation {name!r} was changed meanwhile", reservation=name)
            there = holds_of(tx, found.holder)
            put = [
                msgspec.structs.replace(unit, windows=row.windows) for unit in there[: row.units]
            ]
            for number, place in zip(writing.free_numbers(there, len(places)), places, strict=True):
                put += writing.units_at(row, [place], number)
            row.unhonoured = row.unhonoured if len(put) < row.units else ""
            return detail(tx.connection, writing.change(tx, copied(row), put, there), now)

        return await self._with_hosts(row, more, who, change)

    async def delete(self, name: str, who: Principal) -> None:
        """Delete a reservation; VMs that draw on it run on."""

        def change(tx: Tx) -> None:
            writing.remove(tx, reservation_row(tx.connection, name, who, lock=True))

        await self._store.write(change, who.name)

    # How

    async def _with_hosts(
        self,
        row: ReservationRow,
        units: int,
        who: Principal,
        change: Callable[[Tx, Sequence[UnitPlace]], ReservationDetail],
    ) -> ReservationDetail:
        """Find hosts for units and write them; find them anew when others were faster."""
        for _ in range(_MOST_TRIES):
            await self._follower.catch_up()
            places = await self._ask(lambda board: self._places(board, row, units))
            try:
                return await self._store.write(lambda tx: change(tx, places), who.name)  # noqa: B023
            except writing.Overtaken:
                continue
        if units <= 0:
            raise Conflict(
                f"reservation {row.id!r} cannot be honoured so: its hosts have no room then",
                hint="Maybe make another one for the time that is to be added.",
                reservation=row.id,
            )
        raise PlacementContended(f"other writers took the room for {row.id!r} each time")

    async def _ask(self, question: Callable[[Board], T]) -> T:
        """Ask a copy of the fleet, in a thread: one question at a time, each copies all of it."""
        async with self._long.turn():
            return await asyncio.to_thread(question, Board.of(self._roster))

    @staticmethod
    def _places(board: Board, row: ReservationRow, units: int) -> Sequence[UnitPlace]:
        """Return places for so many units; refuses what cannot be honoured."""
        if units <= 0:
            return ()
        wish = wish_of(row, board, units)
        places = find_units(board, wish)
        if len(places) < units:
            raise _refusal(row, units, look_elsewhere(board, wish))
        return places

    def _made(self, connection: Connection, name: str) -> ReservationDetail:
        found = find_row(connection, reservations, {"id": name})
        if found is None:
            raise Conflict(
                f"the idempotency key made reservation {name!r}, which was deleted since",
                reservation=name,
            )
        return detail(connection, ReservationRow(**found), self._clock.wall_ms())

    def _units(self, connection: Connection, holder: str) -> Sequence[HoldRow]:
        return [HoldRow(**row) for row in find_rows(connection, holds, {"owner": holder})]


def _new_end(row: ReservationRow, end: str | None, now_ms: int) -> int | None:
    if end is None:
        return None
    found = read_moment(end, row.timezone, "end")
    if found <= max(now_ms, row.from_ms):
        raise InvalidRequest(f"the end {end!r} is in the past, or not after the start")
    return found


def _refusal(row: ReservationRow, units: int, found: Elsewhere) -> Conflict:
    """Say that a reservation cannot be honoured, and where or when it could."""
    hints = []
    start = None if found.start_ms is None else timestamp(found.start_ms)
    if start is not None:
        hints.append(f"from {start} on")
    if found.hosts:
        told = ", ".join(found.hosts[:_MOST_TOLD])
        more = len(found.hosts) - _MOST_TOLD
        hints.append(f"on other hosts, as it is: {told}{f' and {more} more' if more > 0 else ''}")
    if found.fits:
        hints.append(f"with {found.fits} of {units} units")
    rules = "".join(
        f"; rule {rule!r} does not hold on {hosts} host{'s' * (hosts != 1)}"
        for rule, hosts in found.rules[:_MOST_TOLD]
    )
    return Conflict(
        f"reservation {row.id!r} cannot be honoured: {found.fits} of {units} units fit{rules}",
        hint=f"Maybe {', or '.join(hints)}." if hints else None,
        reservation=row.id,
        fits=found.fits,
        units=units,
        start=start,
        later=start if (found.start_ms or 0) > row.from_ms else None,
        elsewhere=found.anywhere,
        hosts=list(found.hosts),
        rules=[rule for rule, _ in found.rules],
    )
