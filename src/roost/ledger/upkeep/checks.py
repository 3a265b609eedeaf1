"""What must hold of the ledger as a whole, restated as questions about its rows.

The sums that the claim path keeps are those of its claims, events have no gaps, and folding them
yields the rows of every table: nobody but the ledger writes or could answer for these. What must
hold of the rows of one noun is asked by the part that has it (`Part.examine`).
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, func, or_, select

from roost.ledger.claims.holding import HELD, held_limits
from roost.ledger.claims.holdsums import Held, Living, counters_held, owed
from roost.ledger.schema.amounts import AMOUNTS, LIMITS
from roost.ledger.schema.rows import ClaimRow, HoldRow
from roost.ledger.schema.tables import (
    SPECIAL_CLAIM,
    claims,
    counters,
    events,
    holds,
    host_amounts,
    host_counters,
)
from roost.ledger.upkeep.base import read_base
from roost.ledger.upkeep.examination import MOST_TOLD, Examination
from roost.ledger.upkeep.fold import Pages, compare
from roost.ledger.writes.statements import count_rows

_amounts: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])


def examine(connection: Connection) -> Examination:
    """Run every check on one view of the ledger."""
    found = Examination()
    for check in CHECKS:
        check(connection, found)
    return found


@cache
def _wrong_amounts() -> Select[Any]:
    sums = (
        select(
            claims.c.host.label("host"),
            *(func.sum(claims.c[name]).label(name) for name in AMOUNTS),
            func.count().label("vms"),
        )
        .group_by(claims.c.host)
        .subquery()
    )
    query = select(
        host_amounts,
        *(func.coalesce(sums.c[name], 0).label(f"{name}_claimed") for name in LIMITS),
    ).outerjoin(sums, sums.c.host == host_amounts.c.host)
    wrong = or_(
        *(
            or_(
                host_amounts.c[f"{name}_committed"] != func.coalesce(sums.c[name], 0),
                host_amounts.c[f"{name}_committed"] > host_amounts.c[f"{name}_capacity"],
            )
            for name in LIMITS
        )
    )
    return query.where(wrong).order_by(host_amounts.c.host).limit(MOST_TOLD + 1)


def _committed(connection: Connection, found: Examination) -> None:
    """What a host has promised is the sum of its claims, and within its capacity."""
    found.count("committed", count_rows(connection, host_amounts))
    for row in connection.execute(_wrong_amounts()).mappings():
        for name in LIMITS:
            committed, capacity = row[f"{name}_committed"], row[f"{name}_capacity"]
            claimed = int(row[f"{name}_claimed"])
            if committed != claimed:
                found.find(
                    "committed",
                    f"host {row['host']} has promised {committed} {name}, its claims {claimed}",
                )
            if committed > capacity:
                found.find(
                    "over_capacity",
                    f"host {row['host']} has promised {committed} {name} of {capacity}",
                )


_HELD = select(host_amounts).where(
    or_(
        *(host_amounts.c[name] != 0 for name in HELD),
        host_amounts.c.host.in_(select(holds.c.host)),
    )
)
_LAST = select(events.c.at_ms).order_by(events.c.seq.desc()).limit(1000).subquery()
_LAST_MS = select(func.max(_LAST.c.at_ms))  # a clock may have gone back since
_ALL_HOLDS = select(holds)
_SPECIAL = select(claims).where(SPECIAL_CLAIM)
_COUNTERS_HELD = select(host_counters.c.host, host_counters.c.counter, host_counters.c.held).where(
    host_counters.c.held != 0
)


def _held(connection: Connection, found: Examination) -> None:
    """Check that hosts keep free what they owe to their holds, at the time of the last events.

    More than that is no mistake: a window may have passed since it was written.
    """
    now_ms = connection.execute(_LAST_MS).scalar()
    kept: dict[int, list[Held]] = defaultdict(list)
    for row in connection.execute(_ALL_HOLDS).mappings():
        kept[row["host"]].append(Held.of(HoldRow(**row)))
    living: dict[int, list[Living]] = defaultdict(list)
    for row in connection.execute(_SPECIAL).mappings():
        living[row["host"]].append(Living.of(ClaimRow(**row)))
    of_counters: dict[int, dict[str, int]] = defaultdict(dict)
    for host, counter, held in connection.execute(_COUNTERS_HELD):
        of_counters[host][counter] = held
    for row in connection.execute(_HELD).mappings():
        found.count("held", 1)
        host, holds_here = row["host"], kept.pop(row["host"], [])
        needed = owed(holds_here, living[host], now_ms or 0)
        for name, held, least in zip(LIMITS, held_limits(row), needed.limits, strict=True):
            if held < least or (held and not holds_here):
                found.find("held", f"host {host} keeps {held} {name} free, its holds {least}")
        counted, names = of_counters.pop(host, {}), counters_held(holds_here)
        for name in sorted({*counted, *names}):
            held, least = counted.get(name, 0), dict(needed.counters).get(name, 0)
            if held < least or (held and name not in names):
                found.find("held", f"host {host} keeps {held} {name} free, its holds {least}")
    for host in kept:
        found.find("held", f"room is held on host {host}: no such host")


_CLAIMED = Pages(
    [claims.c.id, claims.c.host, claims.c.counters], [claims.c.id], claims.c.counters != ""
)
_COUNTERS = Pages(list(host_counters.c), [host_counters.c.host, host_counters.c.counter])


def _counters(connection: Connection, found: Examination) -> None:
    """Check that counters of devices, cells and extended resources are the sums of claims."""
    claimed: dict[tuple[int, str], int] = defaultdict(int)
    for page in _CLAIMED.read(connection):
        for _, host, text in page:
            for counter, amount in _amounts.decode(text).items():
                claimed[host, counter] += amount
    for page in _COUNTERS.read(connection):
        found.count("counters", len(page))
        for host, counter, capacity, committed, _ in page:
            expected = claimed.pop((host, counter), 0)
            if committed != expected:
                found.find(
                    "counters",
                    f"host {host} has promised {committed} of {counter}, its claims {expected}",
                )
            if committed > capacity:
                found.find(
                    "over_capacity",
                    f"host {host} has promised {committed} of {counter} of {capacity}",
                )
    for (host, counter), amount in claimed.items():
        found.find("counters", f"claims ask {amount} of {counter} of host {host}: no such counter")


_NUMBERED = select(func.count(), func.min(events.c.seq), func.max(events.c.seq))
_HEAD = select(counters.c.value).where(counters.c.name == "events")


def _sequence(connection: Connection, found: Examination) -> None:
    """Events are numbered from the base on without a gap, up to the counter."""
    number, first, last = connection.execute(_NUMBERED).one()
    head, base = connection.execute(_HEAD).scalar_one(), read_base(connection)
    found.count("sequence", number)
    if (number, first or base + 1, last or base) != (head - base, base + 1, head):
        found.find(
            "sequence",
            f"{number} events are numbered {first} to {last}, the counter is at {head}, and those "
            f"up to {base} are folded",
        )


def _fold(connection: Connection, found: Examination) -> None:
    """Folding the events yields the rows."""
    number, differences = compare(connection, MOST_TOLD + 1)
    found.count("fold", number)
    for difference in differences:
        found.find("fold", difference)


CHECKS: tuple[Callable[[Connection, Examination], None], ...] = (
    _committed,
    _held,
    _counters,
    _sequence,
    _fold,
)
