"""Read reservations from one view of the ledger, as users see them."""

from collections import Counter
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from roost.base.errors import NotFound
from roost.base.timestamps import timestamp
from roost.ledger.holdsums import Window, windows_of
from roost.ledger.rows import HoldRow, ReservationRow
from roost.ledger.statements import find_row, find_rows
from roost.ledger.tables import claims, holds, hosts, reservations
from roost.parts.access import Principal
from roost.wire.reservations import (
    MOST_LINES,
    CalendarBody,
    CalendarLine,
    ListReservations,
    ReservationBody,
    ReservationDetail,
    ReservationPage,
    UnitBody,
    WindowBody,
)

_names = msgspec.json.Decoder(list[str])
_HOST_NAMES = select(hosts.c.number, hosts.c.name)
_HOLDER = func.coalesce(reservations.c.held_as, reservations.c.id)  # as `ReservationRow.holder`
_DRAWN = (
    select(claims.c.draws_on, func.count(claims.c.vm.distinct()))
    .where(claims.c.draws_on.is_not(None))
    .group_by(claims.c.draws_on)
)


def names_of(text: str) -> list[str]:
    """Read a list of names as a row has it."""
    return _names.decode(text) if text else []


def may_see(who: Principal, row: ReservationRow) -> bool:
    """Say whether somebody may see a reservation: a member sees those of its project, and its own.

    A purpose is known to whoever was told, so members see none of those.
    """
    if who.project is None:
        return True
    owner = (row.owner_kind, row.owner)
    return owner in (("project", who.project), ("user", who.name))


def reservation_row(
    connection: Connection, name: str, who: Principal, *, lock: bool = False
) -> ReservationRow:
    """Return the reservation of this name; one that somebody may not see is not found."""
    found = find_row(connection, reservations, {"id": name}, lock=lock)
    row = None if found is None else ReservationRow(**found)
    if row is None or not may_see(who, row):
        raise NotFound(f"there is no reservation {name!r}", reservation=name)
    return row


def state_of(row: ReservationRow, now_ms: int) -> str:
    """Return what a reservation is at a moment."""
    windows = windows_of(row.windows)
    if all(end is not None and end <= now_ms for _, end in windows):
        return "ended"
    if row.unhonoured:
        return "unhonoured"
    live = any(start <= now_ms and (end is None or now_ms < end) for start, end in windows)
    return "live" if live else "waiting"


def listed(
    connection: Connection, asked: ListReservations, who: Principal, now_ms: int
) -> ReservationPage:
    """Return reservations in the order of their names."""
    where = []
    if asked.owner is not None:
        where.append(reservations.c.owner == asked.owner)
    if asked.after is not None:
        where.append(reservations.c.id > asked.after)
    if asked.host is not None:
        on = select(holds.c.owner).join(hosts, hosts.c.number == holds.c.host)
        where.append(_HOLDER.in_(on.where(hosts.c.name == asked.host)))
    query = select(reservations).where(*where).order_by(reservations.c.id)
    found = [ReservationRow(**row) for row in connection.execute(query).mappings()]
    found = [row for row in found if may_see(who, row)]
    page = found[: asked.limit]
    drawn = _drawn(connection)
    return ReservationPage(
        reservations=[ReservationBody(**_shown(row, now_ms, drawn)) for row in page],
        next=page[-1].id if len(found) > asked.limit else None,
    )


def detail(connection: Connection, row: ReservationRow, now_ms: int) -> ReservationDetail:
    """Return a reservation with its units and windows."""
    names = _host_names(connection)
    units = [HoldRow(**found) for found in find_rows(connection, holds, {"owner": row.holder})]
    placed = [UnitBody(unit=unit.id, host=names.get(unit.host)) for unit in units]
    missing = row.units - len(units) if state_of(row, now_ms) != "ended" else 0
    placed += [UnitBody(unit=f"{row.id}/?", host=None)] * missing
    return ReservationDetail(
        **_shown(row, now_ms, _drawn(connection)),
        placed=placed,
        windows=[_window(each) for each in windows_of(row.windows)],
    )


def _host_names(connection: Connection) -> dict[int, str]:
    return {row.number: row.name for row in connection.execute(_HOST_NAMES)}


def _drawn(connection: Connection) -> dict[str, int]:
    return {owner: int(count) for owner, count in connection.execute(_DRAWN)}


def _window(window: Window) -> WindowBody:
    start, end = window
    return WindowBody(start=timestamp(start), end=None if end is None else timestamp(end))


def _shown(row: ReservationRow, now_ms: int, drawn: dict[str, int]) -> dict[str, Any]:
    return {
        "name": row.id,
        "state": state_of(row, now_ms),
        "unhonoured": row.unhonoured,
        "description": row.description,
        "owner_kind": row.owner_kind,
        "owner": row.owner,
        **row.amounts._asdict(),
        "units": row.units,
        "hosts": names_of(row.hosts),
        "zones": names_of(row.zones),
        "rule": row.rule or None,
        "start": timestamp(row.from_ms),
        "end": None if row.until_ms is None else timestamp(row.until_ms),
        "recurrence": row.recurrence or None,
        "lasts_s": None if row.lasts_ms is None else row.lasts_ms // 1000,
        "timezone": row.timezone,
        "version": row.version,
        "created_at": timestamp(row.created_ms),
        "created_by": row.created_by,
        "changed_at": timestamp(row.changed_ms),
        "changed_by": row.changed_by,
        "drawn": drawn.get(row.holder, 0),
    }


def calendar(
    connection: Connection, who: Principal, start_ms: int, end_ms: int | None, host: str | None
) -> CalendarBody:
    """Return the windows of all reservations that are not over at a moment, as they begin."""
    names = _host_names(connection)
    places: dict[str, Counter[str]] = {}
    for found in find_rows(connection, holds, {}):
        place = names.get(found["host"], "?")
        places.setdefault(found["owner"], Counter())[place] += 1
    lines: list[tuple[int, str, CalendarLine]] = []
    for found in find_rows(connection, reservations, {}):
        row = ReservationRow(**found)
        on = places.get(row.holder, Counter())
        if not may_see(who, row) or (host is not None and host not in on):
            continue
        for start, end in windows_of(row.windows):
            if (end is not None and end <= start_ms) or (end_ms is not None and start >= end_ms):
                continue
            lines.append((start, row.id, _line(row, (start, end), sorted(on))))
    lines.sort(key=lambda line: line[:2])
    return CalendarBody(
        lines=[line for _, _, line in lines[:MOST_LINES]], more=len(lines) > MOST_LINES
    )


def _line(row: ReservationRow, window: Window, on: list[str]) -> CalendarLine:
    shown = _window(window)
    return CalendarLine(
        start=shown.start,
        end=shown.end,
        reservation=row.id,
        owner_kind=row.owner_kind,
        owner=row.owner,
        units=row.units,
        hosts=on,
        **{name: row.units * amount for name, amount in row.amounts._asdict().items()},
    )
