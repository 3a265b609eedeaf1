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
from roost.control.reservations.calendar import read_moment
from roost.control.reservations.reading import (
    calendar,
    detail,
    listed,
    reservation_row,
)
from roost.control.reservations.routes import reservation_routes
from roost.control.reservations.seeking import Board, Elsewhere, find_units, look_elsewhere
from roost.control.reservations.wishing import copied, row_of, timed, wish_of
from roost.ledger.examination import Examination
from roost.ledger.holding import holds_of
from roost.ledger.holdsums import windows_of
from roost.ledger.rows import HoldRow, ReservationRow
from roost.ledger.statements import find_row, find_rows
from roost.ledger.store import Store
from roost.ledger.tables import holds, reservations
from roost.ledger.transaction import Tx
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
        body = self._roster.flavors.sized(body)
        # That a recurrence never happens is found after a long look at the calendar.
        row = await asyncio.to_thread(row_of, body, who.name, self._clock.wall_ms())
        for name in body.hosts:
            if self._roster.entry(name) is None:
                raise InvalidRequest(f"there is no host {name!r} to reserve on", host=name)

        def change(tx: Tx, hosts: Sequence[int]) -> ReservationDetail:
            if use_key(tx, scope, key, digest, row.id) is None:
                writing.insert(tx, row, hosts)
            return self._made(tx.connection, row.id)

        return await self._with_hosts(row, row.units, who, change)

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

        def change(tx: Tx, hosts: Sequence[int]) -> ReservationDetail:
            found = reservation_row(tx.connection, name, who, lock=True)
            if found.version != before.version:
                raise Conflict(f"reservation {name!r} was changed meanwhile", reservation=name)
            there = holds_of(tx, found.holder)
            put = [
                msgspec.structs.replace(unit, windows=row.windows) for unit in there[: row.units]
            ]
            for number, host in zip(writing.free_numbers(there, len(hosts)), hosts, strict=True):
                put += writing.units_on(row, [host], number)
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
        change: Callable[[Tx, Sequence[int]], ReservationDetail],
    ) -> ReservationDetail:
        """Find hosts for units and write them; find them anew when others were faster."""
        for _ in range(_MOST_TRIES):
            await self._follower.catch_up()
            hosts = await self._ask(lambda board: self._hosts(board, row, units))
            try:
                return await self._store.write(lambda tx: change(tx, hosts), who.name)  # noqa: B023
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
    def _hosts(board: Board, row: ReservationRow, units: int) -> Sequence[int]:
        """Return hosts for so many units; refuses what cannot be honoured."""
        if units <= 0:
            return ()
        wish = wish_of(row, board, units)
        hosts = find_units(board, wish)
        if len(hosts) < units:
            raise _refusal(row, units, look_elsewhere(board, wish))
        return hosts

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
    if found.later_ms is not None:
        hints.append(f"from {timestamp(found.later_ms)} on")
    if found.anywhere is not None and found.anywhere >= units:
        hints.append("on other hosts, as it is")
    if found.fits:
        hints.append(f"with {found.fits} of {units} units")
    return Conflict(
        f"reservation {row.id!r} cannot be honoured: {found.fits} of {units} units fit",
        hint=f"Maybe {', or '.join(hints)}." if hints else None,
        reservation=row.id,
        fits=found.fits,
        units=units,
        later=None if found.later_ms is None else timestamp(found.later_ms),
        elsewhere=found.anywhere,
    )
