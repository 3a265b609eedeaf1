"""Which machines a pool leaves alone for a while: those refused, and those that never spoke.

    refused once      a second time   a third time ...
    2 s               4 s             8 s             never more than 120 s

    came in vain once a second time   a third time ...
    60 s              120 s           240 s           never more than an hour

What was refused are machines that ended before anything was made: no room, no quota, wrong
credentials, a request that is wrong. That is said of a type in one region; another region or type
of the pool is rented meanwhile, if it may have any. What came in vain was paid for, and its worker
never spoke: its image is dead, or it does not reach the server. That is said of the type wherever
it is, until a later machine of it speaks; one at a time is tried meanwhile. Both are read from the
ledger, so that the next planner knows what the one before it was told.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, or_, select

from roost.base.backoff import BackOff
from roost.jobs.catalogue import regions_for
from roost.jobs.rented import SILENT_FROM_THE_START
from roost.jobs.rows import type_of
from roost.ledger.schema.jobtables import machines
from roost.model.job import MachineType, Market, Pool

#: How long a type is left alone, by how often it was refused within a while, and that while.
AGAIN = BackOff(2.0, 120.0)
REMEMBERED_MS = 1_800_000
#: The same of machines that came and never spoke: each of them was paid for.
SILENT = BackOff(60.0, 3600.0)
SILENCE_REMEMBERED_MS = 12 * 3_600_000
NEVER_SPOKE = "machines come and their workers never speak: is --worker-server reachable?"

_M = machines.c
_REFUSED = (
    select(_M.pool, _M.type, _M.market, _M.region, _M.ended_ms, _M.reason)
    .where(_M.ended_ms > bindparam("since"), _M.state == "failed", _M.cloud_id.is_(None))
    .order_by(_M.ended_ms, _M.id)
)
_IN_VAIN = select(_M.state_ms, _M.id, _M.pool, _M.type, _M.created_ms).where(
    _M.heard == 0, _M.cloud_id.is_not(None), _M.reason == SILENT_FROM_THE_START
)
#: Those given up whose provider has yet to say so, too: nothing is asked for in between.
_ALL_IN_VAIN = (
    _IN_VAIN.where(
        _M.ended_ms.is_(None), _M.state == "returning", _M.state_ms > bindparam("since")
    ),
    _IN_VAIN.where(_M.ended_ms > bindparam("since"), _M.state == "returned"),
)
#: When the newest machine of a type was wanted that has spoken: it forgives those before it.
_SPOKE = (
    select(_M.pool, _M.type, func.max(_M.created_ms))
    .where(_M.heard > 0, or_(_M.ended_ms.is_(None), _M.ended_ms > bindparam("since")))
    .group_by(_M.pool, _M.type)
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a pool does not ask for until then, and what is said of it."""

    until_ms: int
    said: str


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a pool leaves alone now."""

    places: Mapping[tuple[str, Market, str], Refusal]  # by type, market and region
    silent: Mapping[str, Refusal]  # types whose machines came in vain
    doubted: Set[str]  # those, and the ones that may be tried again: one machine at a time


NOTHING_REFUSED = Refusals({}, {}, frozenset())


def read_refusals(connection: Connection, now_ms: int) -> dict[str, Refusals]:
    """Return what every pool leaves alone now."""
    places = _read_refused(connection, now_ms)
    silent = _read_in_vain(connection, now_ms)
    return {
        pool: Refusals(
            {key: each for key, each in places[pool].items() if each.until_ms > now_ms},
            {name: each for name, each in silent[pool].items() if each.until_ms > now_ms},
            silent[pool].keys(),
        )
        for pool in (*places, *(each for each in silent if each not in places))
    }


def _read_refused(
    connection: Connection, now_ms: int
) -> dict[str, dict[tuple[str, Market, str], Refusal]]:
    times: dict[tuple[str, str, Market, str], int] = defaultdict(int)
    found: dict[str, dict[tuple[str, Market, str], Refusal]] = defaultdict(dict)
    for pool, kind, market, region, ended_ms, reason in connection.execute(
        _REFUSED, {"since": now_ms - REMEMBERED_MS}
    ):
        key = (type_of(kind).name, market, str(region))
        times[str(pool), *key] += 1
        until_ms = int(ended_ms) + round(1000 * AGAIN.wait_s(times[str(pool), *key] - 1))
        found[str(pool)][key] = Refusal(until_ms, str(reason))
    return found


def _read_in_vain(connection: Connection, now_ms: int) -> dict[str, dict[str, Refusal]]:
    """Return the types whose machines came in vain, each with its end, however long ago.

    Machines that were wanted before the first of them was given up are one try.
    """
    tries: dict[tuple[str, str], list[int]] = defaultdict(list)
    found: dict[str, dict[str, Refusal]] = defaultdict(dict)
    since = {"since": now_ms - SILENCE_REMEMBERED_MS}
    rows = [tuple(row) for query in _ALL_IN_VAIN for row in connection.execute(query, since)]
    spoke: dict[tuple[str, str], int] = defaultdict(int)
    for pool, kind, newest_ms in connection.execute(_SPOKE, since) if rows else ():
        key = str(pool), type_of(kind).name
        spoke[key] = max(spoke[key], int(newest_ms))
    for ended_ms, _, pool, kind, created_ms in sorted(rows):
        name = type_of(kind).name
        if spoke[str(pool), name] >= created_ms:
            continue
        ends = tries[str(pool), name]
        if not ends or created_ms > ends[-1]:
            ends.append(int(ended_ms))
        until_ms = int(ended_ms) + round(1000 * SILENT.wait_s(len(ends) - 1))
        found[str(pool)][name] = Refusal(until_ms, NEVER_SPOKE)
    return found


def open_regions(
    pool: Pool, kind: MachineType, market: Market, refused: Refusals
) -> tuple[str, ...]:
    """Return where a pool may ask for a type now, in its order; one that is empty: anywhere."""
    if kind.name in refused.silent:
        return ()
    places = regions_for(pool, kind)
    return tuple(each for each in places if (kind.name, market, each) not in refused.places)


def still_offered(
    pool: Pool,
    types: Iterable[MachineType],
    market: Market,
    refused: Refusals,
    coming: Collection[str] = (),
) -> tuple[MachineType, ...]:
    """Return the types that a pool may ask for now, in one of its regions at least.

    `coming` are the types of machines on their way: one of a doubted type is waited for.
    """
    waited = refused.doubted & set(coming)
    return tuple(
        each
        for each in types
        if each.name not in waited and open_regions(pool, each, market, refused)
    )


def one_of_each_doubted(
    wanted: Iterable[tuple[MachineType, Market]], refused: Refusals
) -> list[tuple[MachineType, Market]]:
    """Return what is wanted with one machine at most of each type that came in vain before."""
    found: list[tuple[MachineType, Market]] = []
    seen: set[str] = set()
    for kind, market in wanted:
        if kind.name not in seen:
            found.append((kind, market))
        if kind.name in refused.doubted:
            seen.add(kind.name)
    return found


def what_was_said(types: Sequence[MachineType], market: Market, refused: Refusals) -> str:
    """Return what is said of the types that are left alone; empty when there are none."""
    names = {each.name for each in types}
    held = [each for name, each in refused.silent.items() if name in names]
    held += [each for key, each in refused.places.items() if key[0] in names and key[1] == market]
    if held:
        return max(held, key=lambda each: each.until_ms).said
    return NEVER_SPOKE if refused.doubted & names else ""
