"""Read reservations from one view of the ledger, as users see them."""

import heapq
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    bindparam,
    func,
    or_,
    select,
)

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.control.reservations.asks import demand_of_unit, places_of
from roost.ledger.claims.holdsums import Window, windows_of
from roost.ledger.schema.rows import HoldRow, ReservationRow
from roost.ledger.schema.tables import claims, holds, hosts, reservations
from roost.ledger.writes.statements import find_row
from roost.parts.access import Principal
from roost.wire.reservations import (
    MOST_PLACES,
    AskCalendar,
    CalendarBody,
    CalendarLine,
    KeptDevices,
    ListReservations,
    ReservationBody,
    ReservationDetail,
    ReservationPage,
    UnitBody,
    WindowBody,
)

_names = msgspec.json.Decoder(list[str])
_UNITS = (
    select(holds, hosts.c.name.label("host_name"))
    .outerjoin(hosts, hosts.c.number == holds.c.host)
    .where(holds.c.owner == bindparam("owner"))
    .order_by(holds.c.id)
)
_PLACES = (
    select(holds.c.owner, hosts.c.name)
    .join(hosts, hosts.c.number == holds.c.host)
    .where(holds.c.owner.in_(bindparam("owners", expanding=True)))
    .distinct()
    .order_by(holds.c.owner, hosts.c.name)
)
_HOLDER = func.coalesce(reservations.c.held_as, reservations.c.id)  # as `ReservationRow.holder`
_DRAWN = (
    select(claims.c.draws_on, func.count(claims.c.vm.distinct()))
    .where(claims.c.draws_on.in_(bindparam("owners", expanding=True)))
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


def _seen_by(who: Principal) -> list[ColumnElement[bool]]:
    """Return the condition for what somebody may see, as `may_see` says it."""
    if who.project is None:
        return []
    kind, owner = reservations.c.owner_kind, reservations.c.owner
    project = and_(kind == "project", owner == who.project)
    return [or_(project, and_(kind == "user", owner == who.name))]


def _kept_on(host: str) -> ColumnElement[bool]:
    on = select(holds.c.owner).join(hosts, hosts.c.number == holds.c.host)
    return _HOLDER.in_(on.where(hosts.c.name == host))


def listed(
    connection: Connection, asked: ListReservations, who: Principal, now_ms: int
) -> ReservationPage:
    """Return reservations in the order of their names."""
    where = _seen_by(who)
    if asked.owner is not None:
        where.append(reservations.c.owner == asked.owner)
    if asked.after is not None:
        where.append(reservations.c.id > asked.after)
    if asked.host is not None:
        where.append(_kept_on(asked.host))
    query = select(reservations).where(*where).order_by(reservations.c.id).limit(asked.limit + 1)
    found = [ReservationRow(**row) for row in connection.execute(query).mappings()]
    page = found[: asked.limit]
    drawn = _drawn(connection, [row.holder for row in page])
    return ReservationPage(
        reservations=[ReservationBody(**_shown(row, now_ms, drawn)) for row in page],
        next=page[-1].id if len(found) > asked.limit else None,
    )


def detail(connection: Connection, row: ReservationRow, now_ms: int) -> ReservationDetail:
    """Return a reservation with its units and windows."""
    units = connection.execute(_UNITS, {"owner": row.holder}).mappings().all()
    placed = [_unit(dict(each)) for each in units]
    missing = row.units - len(units) if state_of(row, now_ms) != "ended" else 0
    placed += [UnitBody(unit=f"{row.id}/?", host=None)] * missing
    return ReservationDetail(
        **_shown(row, now_ms, _drawn(connection, [row.holder])),
        placed=placed,
        windows=[_window(each) for each in windows_of(row.windows)],
    )


def _unit(found: dict[str, Any]) -> UnitBody:
    name = found.pop("host_name")
    unit = HoldRow(**found)
    devices, cells = places_of(unit)
    return UnitBody(unit=unit.id, host=name, devices=devices, cells=cells)


def _drawn(connection: Connection, holders: list[str]) -> dict[str, int]:
    found = connection.execute(_DRAWN, {"owners": holders})
    return {owner: int(count) for owner, count in found}


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
        **_beside_amounts(row),
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


def _beside_amounts(row: ReservationRow) -> dict[str, Any]:
    """Return what one unit keeps beside its amounts, for a body."""
    demand = demand_of_unit(row)
    devices = demand.devices
    gpu = None
    if devices is not None:
        gpu = KeptDevices(
            count=devices.count,
            share_milli=devices.milli,
            models=list(devices.models),
            memory_bytes=devices.memory_bytes,
        )
    return {"gpu": gpu, "extended": dict(demand.extended), "numa": demand.numa.value}


def calendar(
    connection: Connection, who: Principal, start_ms: int, end_ms: int | None, asked: AskCalendar
) -> CalendarBody:
    """Return the windows of reservations that are not over at a moment, as they begin.

    Of all windows only one page is kept while they are read, and hosts are looked up for it alone.
    """
    where = _seen_by(who)
    if asked.host is not None:
        where.append(_kept_on(asked.host))
    after = _after(asked.after)
    query = select(reservations).where(*where)
    found = heapq.nsmallest(
        asked.limit + 1,
        (
            _Begin(window[0], row.id, row, window)
            for row in map(_row, connection.execute(query).mappings())
            for window in windows_of(row.windows)
            if _is_within(window, start_ms, end_ms) and (window[0], row.id) > after
        ),
        key=lambda begin: (begin.start_ms, begin.name),
    )
    page = found[: asked.limit]
    places = _places(connection, {begin.row.holder for begin in page})
    more = len(found) > asked.limit
    return CalendarBody(
        lines=[
            _line(each.row, each.window, *places.get(each.row.holder, ([], 0))) for each in page
        ],
        more=more,
        next=f"{page[-1].start_ms}|{page[-1].name}" if more else None,
    )


class _Begin(NamedTuple):
    """A window with what it is sorted by."""

    start_ms: int
    name: str
    row: ReservationRow
    window: Window


def _row(found: RowMapping) -> ReservationRow:
    return ReservationRow(**found)


def _is_within(window: Window, start_ms: int, end_ms: int | None) -> bool:
    start, end = window
    return (end is None or end > start_ms) and (end_ms is None or start < end_ms)


def _after(text: str | None) -> tuple[int, str]:
    """Read where a page begins: behind the last window of the one before."""
    if text is None:
        return -1, ""
    start, _, name = text.partition("|")
    if not (start.isascii() and start.isdigit()):
        raise InvalidRequest(f"{text!r} is not the `next` of a page of the calendar")
    return int(start), name


def _places(connection: Connection, holders: set[str]) -> dict[str, tuple[list[str], int]]:
    """Return the first hosts that keep each, by name, and how many others do."""
    found: dict[str, tuple[list[str], int]] = {}
    for owner, name in connection.execute(_PLACES, {"owners": sorted(holders)}):
        names, more = found.get(owner, ([], 0))
        if len(names) < MOST_PLACES:
            names.append(name)
        else:
            more += 1
        found[owner] = names, more
    return found


def _line(row: ReservationRow, window: Window, on: list[str], more: int) -> CalendarLine:
    shown, demand = _window(window), demand_of_unit(row)
    return CalendarLine(
        start=shown.start,
        end=shown.end,
        reservation=row.id,
        owner_kind=row.owner_kind,
        owner=row.owner,
        units=row.units,
        hosts=on,
        more_hosts=more,
        **{name: row.units * amount for name, amount in row.amounts._asdict().items()},
        gpus=row.units * (0 if demand.devices is None else demand.devices.count),
        extended={name: row.units * amount for name, amount in demand.extended},
    )
