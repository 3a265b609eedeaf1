"""Reservations as they are asked for: a body checked, its times expanded, its row made."""

from collections.abc import Sequence

import msgspec

from roost.base.errors import InvalidRequest
from roost.control.reservations.asks import asks_of, demand_of_unit
from roost.control.reservations.calendar import (
    Recurrence,
    Times,
    check_recurrence,
    expand,
    read_moment,
    times_once,
    zone_named,
)
from roost.control.reservations.reading import names_of
from roost.control.reservations.seeking import Board, Wish
from roost.ledger.claims.holdsums import windows_of
from roost.ledger.schema.rows import ReservationRow
from roost.ledger.writes.transaction import row_json
from roost.model.constraints import Constraints
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.model.rules import Rule, RuleSet
from roost.placement.rules.columns import HOLDS
from roost.wire.reservations import CreateReservation
from roost.wire.translate import demand_of, demand_said

#: How far in the past a start may lie that was meant as now: clocks differ.
_GRACE_MS = 60_000


def row_of(body: CreateReservation, who: str, now_ms: int) -> ReservationRow:
    """Return the row of a reservation that is asked for; refuses what is wrong with it."""
    kind, owner = _owner(body)
    demand = demand_of(demand_said(body))
    zone_named(body.timezone)
    start = now_ms if body.start is None else read_moment(body.start, body.timezone, "start")
    end = None if body.end is None else read_moment(body.end, body.timezone, "end")
    if end is not None and end <= now_ms:
        raise InvalidRequest(f"a reservation that ends at {body.end!r} is in the past")
    if end is not None and end <= start:
        raise InvalidRequest(f"the end {body.end!r} is not after the start")
    if start < now_ms - _GRACE_MS and body.recurrence is None:
        raise InvalidRequest(
            f"a reservation that starts at {body.start!r} is in the past",
            hint="Maybe leave the start out: it begins now.",
        )
    row = ReservationRow(
        id=body.name,
        description=body.description,
        owner_kind=kind,
        owner=owner,
        cpu_milli=demand.cpu_milli,
        memory_bytes=demand.memory_bytes,
        disk_bytes=demand.disk_bytes,
        units=body.units,
        hosts=row_json(sorted(set(body.hosts))) if body.hosts else "",
        zones=row_json(sorted(set(body.zones))) if body.zones else "",
        rule=body.rule or "",
        from_ms=start,
        until_ms=end,
        recurrence=body.recurrence or "",
        lasts_ms=None if body.lasts_s is None else 1000 * body.lasts_s,
        timezone=body.timezone,
        windows="",
        created_ms=now_ms,
        created_by=who,
        changed_ms=now_ms,
        changed_by=who,
        asks=asks_of(demand),
    )
    if bool(row.recurrence) != (row.lasts_ms is not None):
        raise InvalidRequest("a reservation that recurs, and no other, says how long it lasts_s")
    if row.recurrence:
        check_recurrence(recurrence_of(row))
    timed(row, now_ms)
    if not windows_of(row.windows):
        raise InvalidRequest(f"all occurrences of {body.recurrence!r} are in the past")
    return row


def _owner(body: CreateReservation) -> tuple[str, str]:
    given = [
        (kind, owner)
        for kind, owner in (
            ("project", body.project),
            ("user", body.user),
            ("purpose", body.purpose),
        )
        if owner
    ]
    if len(given) != 1:
        raise InvalidRequest("a reservation is for a project, for a user, or for a purpose: one")
    return given[0]


def recurrence_of(row: ReservationRow) -> Recurrence:
    """Return the recurrence of a row that has one."""
    assert row.lasts_ms is not None
    return Recurrence(row.recurrence, row.from_ms, row.lasts_ms, row.until_ms, row.timezone)


def timed(row: ReservationRow, now_ms: int) -> ReservationRow:
    """Give a row its windows as of a moment, and return it."""
    if row.recurrence:
        times = expand(recurrence_of(row), now_ms)
    else:
        times = times_once(row.from_ms, row.until_ms)
    return with_times(row, times)


def with_times(row: ReservationRow, times: Times) -> ReservationRow:
    """Write the windows of a row."""
    row.windows = row_json([list(window) for window in times.windows])
    row.expanded_ms = times.expanded_ms
    return row


def wish_of(row: ReservationRow, board: Board, units: int, never: Sequence[str] = ()) -> Wish:
    """Return what the engine is asked for so many units of a reservation."""
    pinned = tuple(names_of(row.hosts))
    if row.rule:
        passing = hosts_that_pass(board, row.rule)
        pinned = tuple(name for name in passing if not pinned or name in pinned) or ("",)
    constraints = Constraints(
        zones=tuple(names_of(row.zones)), pinned=pinned, excluded=tuple(never)
    )
    project = row.owner if row.owner_kind == "project" else ""
    policy = board.defaults.get(project, "")
    windows = windows_of(row.windows)
    return Wish(row.id, demand_of_unit(row), units, windows, constraints, project, policy)


def hosts_that_pass(board: Board, expression: str) -> list[str]:
    """Return the hosts on which a condition of the rule language holds now."""
    world = board.engine
    rules = world.rules
    world.set_rules(RuleSet((Rule("where", expression),), rules.generation), world.clock)
    try:
        request = PlaceRequest("reservation", Demand(1, 1))
        rows = world.fleet.present_rows()
        bound = next(iter(world.terms_of(request).rules), None)
        if bound is not None:
            rows = rows[world.question(request).rules.rule(bound, rows) == HOLDS]
        return [world.fleet.hosts.names[row] for row in rows.tolist()]
    finally:
        world.set_rules(rules, world.clock)


def copied(row: ReservationRow) -> ReservationRow:
    """Return a copy of a row, to be changed."""
    return msgspec.structs.replace(row)
