"""Write reservations: the row, the holds of its units, and the event, in one transaction.

Holds are put under the locks of their hosts (`ledger/claims/holding.py`); one that does not fit any
more makes the whole transaction stale, and whoever proposed it looks for hosts anew.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import func, select

from roost.base.errors import Conflict, NotFound
from roost.control.reservations.seeking import UnitPlace
from roost.ledger.claims.holding import changed_holds, drop_holds, holds_of, lock_hosts, put_holds
from roost.ledger.schema.rows import Changes, HoldRow, ReservationRow
from roost.ledger.schema.tables import projects, reservations
from roost.ledger.upgrade.older import (
    counters_held_may_be_unknown,
    release_before_may_be_here,
)
from roost.ledger.writes.transaction import Tx, row_json
from roost.wire.reservations import MOST_RESERVATIONS

KIND = "reservation"
_COUNT = select(func.count()).select_from(reservations)


class Overtaken(Exception):
    """Other commits have taken the room that units were to have: look for hosts again."""


def refuse_beside_older(tx: Tx) -> None:
    """Refuse while processes may be there that would give away what is held."""
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "nothing can be reserved while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def refuse_counters_beside_older(tx: Tx, units: Sequence[HoldRow]) -> None:
    """Refuse units with counters while processes may be there that do not compare those."""
    if any(unit.counters for unit in units) and counters_held_may_be_unknown(tx.connection):
        raise Conflict(
            "no device, NUMA cell or extended resource can be reserved while older processes may "
            "run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def units_at(row: ReservationRow, places: Sequence[UnitPlace], first: int = 0) -> list[HoldRow]:
    """Return the holds of units in these places, numbered from `first` on."""
    return [
        HoldRow(
            id=f"{row.id}/{number:04d}",
            host=place.host,
            kind=KIND,
            owner=row.holder,
            **row.amounts._asdict(),
            vms=1,
            windows=row.windows,
            counters=row_json(dict(place.counters)) if place.counters else None,
        )
        for number, place in enumerate(places, first)
    ]


def free_numbers(units: Sequence[HoldRow], count: int) -> list[int]:
    """Return so many numbers that none of the units has."""
    used = {int(unit.id.rpartition("/")[2]) for unit in units}
    found = (number for number in range(len(used) + count) if number not in used)
    return [number for number, _ in zip(found, range(count), strict=False)]


def insert(tx: Tx, row: ReservationRow, places: Sequence[UnitPlace]) -> None:
    """Keep a new reservation with its units."""
    refuse_beside_older(tx)
    # Before the project, as whoever creates VMs does.
    lock_hosts(tx, [place.host for place in places])
    if tx.find(reservations, id=row.id) is not None:
        raise Conflict(f"there is a reservation {row.id!r} already", reservation=row.id)
    if row.owner_kind == "project":
        known = select(projects.c.name).where(projects.c.name == row.owner)
        if tx.row(known.with_for_update(read=True)) is None:
            raise NotFound(f"no project {row.owner!r}", project=row.owner)
    if int(tx.connection.execute(_COUNT).scalar_one()) >= MOST_RESERVATIONS:
        raise Conflict(f"there are {MOST_RESERVATIONS} reservations already, and no more are taken")
    # VMs run on that drew on an earlier one of this name: they must not count as drawing on it.
    row.held_as = f"{row.id}/{tx.name}"
    tx.insert(reservations, msgspec.structs.asdict(row))
    units = units_at(row, places)
    refuse_counters_beside_older(tx, units)
    if not put_holds(tx, units):
        raise Overtaken
    _say(tx, "reservation.created", row, {"holds": changed_holds(units)})


def change(
    tx: Tx,
    row: ReservationRow,
    put: Sequence[HoldRow],
    dropped: Sequence[HoldRow],
    event: str = "reservation.changed",
    note: str = "",
) -> ReservationRow:
    """Write a locked reservation anew, and other holds for some of its units."""
    refuse_beside_older(tx)
    refuse_counters_beside_older(tx, put)
    lock_hosts(tx, [unit.host for unit in (*put, *dropped)])
    drop_holds(tx, dropped)
    if put and not put_holds(tx, put):
        raise Overtaken
    row.version, row.changed_ms, row.changed_by = row.version + 1, tx.at_ms, tx.actor
    values = msgspec.structs.asdict(row)
    tx.change(reservations, {"id": values.pop("id")}, **values)
    _say(tx, event, row, {"holds": changed_holds(put, dropped)}, note)
    return row


def remove(tx: Tx, row: ReservationRow) -> None:
    """Delete a locked reservation; VMs that draw on it run on."""
    units = holds_of(tx, row.holder)
    drop_holds(tx, units)
    tx.remove(reservations, id=row.id)
    changes: Changes = {
        "reservations": {row.id: None},
        "holds": changed_holds(dropped=units),
    }
    tx.event("reservation.deleted", f"reservation/{row.id}", changes, project=_project(row))


def _say(tx: Tx, kind: str, row: ReservationRow, changes: Changes, note: str = "") -> None:
    changes["reservations"] = {row.id: row}
    tx.event(kind, f"reservation/{row.id}", changes, project=_project(row), note=note)


def _project(row: ReservationRow) -> str | None:
    return row.owner if row.owner_kind == "project" else None
