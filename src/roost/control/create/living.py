"""Room as VMs of one life see it, for questions about many of them at once.

`drawing` places one VM that ends, or that may draw on a reservation. Whoever asks how many fit, for
a ranking of hosts, or for hosts of a whole batch asks the engine on columns in which each host
holds only what must be held of such VMs:

    room_of(...)         what every host holds of them, and which reservation they draw on there
    seeing(world, ...)   a world with so much held, for as long as it is asked
    look_ahead(...)      the hosts that a ranking begins with
    place_turns(...)     VMs placed one after the other, as their creates would be; nothing changes

On a host with units of two reservations that a VM may draw on, the one that makes more room counts.
Creates draw on both, one after the other, so there may be more room than is said, and never less.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from roost.control.create.drawing import Found, find_living
from roost.control.create.ownparts import asks_for_parts, but_own
from roost.control.memory.holdings import ORDINARY, Life
from roost.control.memory.roster import Roster
from roost.control.memory.rostercopy import Places
from roost.fleet.fleet import Fleet
from roost.fleet.layout import BASE
from roost.ledger.claims.holdsums import FOREVER, Living
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.model.kept import NOTHING_KEPT, Kept, counters_of
from roost.model.resources import Demand
from roost.placement.engine import NO_FIT, Engine
from roost.placement.recommending import NOTHING_AHEAD, Ahead, anywhere_but
from roost.placement.whatif import WhatIf


class Room(NamedTuple):
    """What hosts hold of VMs with one life, and what these draw on there; by row of the fleet."""

    kept: Mapping[int, Kept] = {}
    draws_on: Mapping[int, str] = {}
    draws: tuple[str, ...] = ()  # in the order in which they are drawn on
    own: Mapping[int, frozenset[str]] = {}  # devices and cells that are taken first


NO_ROOM = Room()


def room_of(roster: Roster, demand: Demand, life: Life, without: Collection[str] = ()) -> Room:
    """Return the room that VMs of this life and demand see; claims `without` are left out."""
    if life == ORDINARY and not without:
        return NO_ROOM
    holdings, now_ms = roster.holdings, roster.wall_ms()
    kept: dict[int, Kept] = {}
    draws_on: dict[int, str] = {}
    own: dict[int, frozenset[str]] = {}
    for number in holdings.held_hosts():
        entry = roster.hosts.get(number)
        if entry is None:
            continue
        row = entry.fleet_row
        before = roster.fleet.kept.get(row, NOTHING_KEPT)
        best, most, owner = before, -1, None
        for draws in (*_drawn_there(roster, number, life, now_ms, without), None):
            asked = life._replace(draws=() if draws is None else (draws,))
            held = before
            if holdings.may_hold_less(number, asked, without):
                held = holdings.held(number, now_ms, asked, without)
            copies = _copies(roster.fleet, row, demand, before, held)
            if copies > most:
                best, most, owner = held, copies, draws
        if owner is not None:
            draws_on[row] = owner
            if asks_for_parts(demand) and (parts := holdings.parts_of(owner, number)):
                own[row] = parts
        if best != before:
            kept[row] = best
    return Room(kept, draws_on, life.draws, own)


def _drawn_there(
    roster: Roster, host: int, life: Life, now_ms: int, without: Collection[str]
) -> Iterator[str]:
    """Yield the reservations of which a host has something left for such VMs, or will have."""
    for owner in life.draws:
        if not any(hold.owner == owner for hold in roster.holdings.holds[host].values()):
            continue
        live = roster.holdings.is_live(owner, host, now_ms)
        left = roster.holdings.left(owner, host, now_ms, without)
        if not live or any(left.limits[:BASE]) or left.counters:
            yield owner


def _copies(fleet: Fleet, row: int, demand: Demand, before: Kept, held: Kept) -> int:
    """Count the VMs that a host has amounts for if it holds so much instead of what it does."""
    asked = (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
    free = fleet.hosts.arrays.headroom[row, :BASE].tolist()
    return min(
        (
            max(0, int(have) + had - keeps) // want
            for want, have, had, keeps in zip(asked, free, before.limits, held.limits, strict=False)
            if want
        ),
        default=1,
    )


@contextmanager
def seeing(engine: Engine, kept: Mapping[int, Kept]) -> Iterator[None]:
    """Hold on hosts only what they hold of some VMs, as long as it is asked; nothing stays so."""
    if not kept:
        yield
        return
    fleet = engine.fleet
    mark, version = fleet.mark(), fleet.version
    try:
        fleet.keep_free_many(dict(kept))
        yield
    finally:
        fleet.undo(mark)
        fleet.version = version


def place_seeing(
    world: Engine, request: PlaceRequest, room: Room, runners_up: int
) -> Placement | Rejection:
    """Place one VM on a copy of the fleet, in the order in which its create would look."""
    own = {row: kept for row, kept in room.kept.items() if row in room.draws_on}
    with seeing(world, own):
        for owner in room.draws:
            found = _find_drawing(world, request, room, owner, runners_up)
            if found is not None:
                return found
    found = world.find(request, runners_up=runners_up)
    if found is not None:
        return found
    with seeing(world, room.kept):
        return world.place(request, runners_up=runners_up)


def look_ahead(
    world: WhatIf, request: PlaceRequest, room: Room, most: int, here: str | None = None
) -> Ahead:
    """Return the hosts at which a create would look first; the world sees the room from then on.

    First where the VM draws on a reservation, then what is open to all, then what is open to VMs
    that end as early. `here` is where it is: it goes anywhere else.
    """
    if not room.kept and not room.draws_on:
        return NOTHING_AHEAD
    asked = anywhere_but(request, here)
    fits = world.scores(request) != NO_FIT
    open_to_all = _rows(world, world.find(asked, runners_up=most))
    world.fleet.keep_free_many(
        {row: kept for row, kept in room.kept.items() if row in room.draws_on or not fits[row]}
    )
    tiers = np.where(fits, len(room.draws), len(room.draws) + 1)
    rows: list[int] = []
    for tier, owner in enumerate(room.draws):
        tiers[[row for row, of in room.draws_on.items() if of == owner]] = tier
        rows += _rows(world, _find_drawing(world, asked, room, owner, most))
    rows += [row for row in open_to_all if row not in room.draws_on]
    return Ahead(tuple(rows), tiers)


def _rows(world: Engine, found: Placement | None) -> list[int]:
    if found is None:
        return []
    return [found.host_row, *(world.fleet.row(each.host) for each in found.runners_up)]


def _find_drawing(
    world: Engine, request: PlaceRequest, room: Room, owner: str, runners_up: int
) -> Placement | None:
    """Place a VM where it draws on one reservation, as far as it may go there."""
    names, pinned = world.fleet.hosts.names, request.constraints.pinned
    mine = (names[row] for row, of in room.draws_on.items() if of == owner)
    there = tuple(name for name in mine if not pinned or name in pinned)
    if not there:
        return None
    asked = replace(request, constraints=replace(request.constraints, pinned=there))
    fleet = world.fleet
    only = {
        row: but_own(fleet, row, fleet.kept.get(row, NOTHING_KEPT), parts)
        for row, parts in room.own.items()
        if room.draws_on[row] == owner
    }
    if only:
        first = tuple(name for name in there if fleet.row(name) in only)
        with seeing(world, only):
            mine_first = replace(request, constraints=replace(asked.constraints, pinned=first))
            found = world.find(mine_first, runners_up=runners_up) if first else None
        if found is not None:
            return found
    return world.find(asked, runners_up=runners_up)


def place_turns(
    roster: Places,
    asked: Sequence[tuple[PlaceRequest, Life]],
    *,
    whole: bool = False,
) -> list[Found]:
    """Place VMs one after the other, as creates would be; `whole` ends with the first refusal.

    Nothing changes: what each takes is charged for those after it, and taken back in the end.
    """
    fleet, engine, holdings = roster.fleet, roster.engine, roster.holdings
    mark, version, cursor, room = fleet.mark(), fleet.version, engine.cursor, roster.room
    found: list[Found] = []
    charged: list[str] = []
    try:
        for index, (request, life) in enumerate(asked):
            if life is ORDINARY:
                each = Found(engine.find(request) or engine.reject(request))
            else:
                each = find_living(roster, request, life)
            found.append(each)
            if not isinstance(each.answer, Placement):
                if whole:
                    break
                continue
            key = request.key or f"turn {index}"
            engine.commit(replace(request, key=key), each.answer)
            if life.until_ms is not None or each.draws_on is not None:
                number = roster.by_fleet_row[each.answer.host_row].number
                charged.append(key)
                living = living_of(request.demand, each.answer, life, each.draws_on)
                roster.charge_living(key, number, living)
        return found
    finally:
        for key in charged:
            holdings.release(key)
        fleet.undo(mark)
        fleet.version, engine.cursor, roster.room = version, cursor, room


def living_of(demand: Demand, placement: Placement, life: Life, draws_on: str | None) -> Living:
    """Return the claim that a VM of this life would have, as numbers."""
    limits = (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes, 1)
    counters = counters_of(demand, placement.devices, placement.cells)
    return Living(limits, FOREVER if life.until_ms is None else life.until_ms, draws_on, counters)
