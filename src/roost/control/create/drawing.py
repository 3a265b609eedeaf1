"""Find a host for a VM that ends, or that may draw on a reservation: it sees more room than others.

An owner's VM goes where its reservation has room left for it, if the engine accepts one of those
hosts; else wherever any VM may go. A VM that ends and fits nowhere so has the room before a
reservation begins. Both are the engine's own decision, on the fleet with so much less held on the
hosts concerned; that is taken back at once, and the commit compares again under the host's lock
(`ledger/claims/holding.py`).
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from roost.base.errors import NotFound
from roost.control.create.ownparts import asks_for, asks_for_parts, but_own
from roost.control.memory.holdings import ORDINARY, Life, may_draw
from roost.control.memory.roster import Roster
from roost.control.memory.rostercopy import Places
from roost.fleet.layout import BASE
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.model.kept import NOTHING_KEPT, Kept
from roost.model.vm import VMSpec

_RUNNERS_UP = 2
NO_PARTS: Mapping[int, frozenset[str]] = {}
#: Hosts whose holds are looked at first.
_FIRST_PIECE = 64


class Found(NamedTuple):
    """A host, or why there is none, and the reservation that the VM draws on there."""

    answer: Placement | Rejection | None
    draws_on: str | None = None


def life_of(roster: Roster, spec: VMSpec, project: str) -> Life:
    """Return how long a VM lives and what it may draw on now; most VMs are ordinary."""
    draws: tuple[str, ...] = ()
    if roster.holdings.reservations:
        named, now_ms = spec.reservation, roster.wall_ms()
        draws = roster.holdings.drawable(project, spec.created_by, named, now_ms)
    return Life(spec.until_ms, draws) if draws or spec.until_ms is not None else ORDINARY


def know_reservation(roster: Roster, named: str, project: str, user: str) -> None:
    """Refuse a reservation that a VM names and may not draw on, in the words for an unknown one.

    Else a mistake in its name would take room that is open to all, without a word.
    """
    row = roster.holdings.reservations.get(named)
    if row is None or not may_draw(row, project, user):
        raise NotFound(
            f"no reservation {named!r} that a VM of project {project!r} may draw on",
            hint="Maybe look at: roost reservation list.",
            reservation=named,
        )


def find_living(
    roster: Places,
    request: PlaceRequest,
    life: Life,
    *,
    without: Collection[str] = (),
    explain: bool = True,
    runners_up: int = _RUNNERS_UP,
) -> Found:
    """Place a VM with this life; claims of its own are left out of account."""
    now_ms = roster.wall_ms()
    for owner in life.draws:
        found = _drawing(
            roster, request, life._replace(draws=(owner,)), now_ms, without, runners_up
        )
        if found is not None:
            return Found(found, owner)
    engine = roster.engine
    open_to_all = life._replace(draws=())
    own = roster.holdings.hosts_of(without)
    with _less_held(roster, own, open_to_all, now_ms, without):
        answer: Placement | Rejection | None = engine.find(request, runners_up=runners_up)
        if answer is None and life.until_ms is not None:
            answer = _before_others(roster, request, open_to_all, now_ms, own, runners_up)
        if answer is None and explain:
            answer = engine.reject(request)
    return Found(answer)


def _before_others(
    roster: Places,
    request: PlaceRequest,
    life: Life,
    now_ms: int,
    seen: Collection[int],
    runners_up: int,
) -> Placement | None:
    """Place a VM that ends where something is held that begins later, if that is what it lacks.

    Hosts are looked at in pieces that grow: most VMs fit in the first.
    """
    demand, fleet = request.demand, roster.fleet
    asked = (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
    held = [n for n in roster.holdings.held_hosts() if n in roster.hosts and n not in seen]
    at = [roster.hosts[number].fleet_row for number in held]
    free = fleet.hosts.arrays.headroom[at, :BASE] + fleet.hosts.held[at, :BASE]
    could = np.all(free >= asked, axis=1)
    for some in _pieces([number for number, fits in zip(held, could, strict=True) if fits]):
        with _less_held(roster, some, life, now_ms, ()):
            found = roster.engine.find(request, runners_up=runners_up)
        if found is not None:
            return found
    return None


def _pieces(hosts: list[int]) -> Iterator[list[int]]:
    """Yield hosts in pieces, each of which is four times as long as the one before."""
    start, size = 0, _FIRST_PIECE
    while start < len(hosts):
        yield hosts[start : start + size]
        start, size = start + size, 4 * size


def _drawing(
    roster: Places,
    request: PlaceRequest,
    life: Life,
    now_ms: int,
    without: Collection[str],
    runners_up: int,
) -> Placement | None:
    """Place a VM where its reservation has something left of what it asks for."""
    owner, demand = life.draws[0], request.demand
    asked = (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes, 0)
    holdings = roster.holdings
    numbers = []
    for host in sorted({hold.host for hold in holdings.of_owner(owner)}):
        left = holdings.left(owner, host, now_ms)
        has_left = any(have and want for have, want in zip(left.limits, asked, strict=True)) or any(
            asks_for(demand, counter) for counter, _ in left.counters
        )
        if host in roster.hosts and (has_left or not holdings.is_live(owner, host, now_ms)):
            numbers.append(host)
    if pinned := request.constraints.pinned:
        numbers = [number for number in numbers if roster.hosts[number].name in pinned]
    own: dict[int, frozenset[str]] = {}
    if asks_for_parts(demand):
        own = {n: parts for n in numbers if (parts := holdings.parts_of(owner, n))}
    for only in (own, {}) if own else ({},):
        for some in _pieces(sorted(only) or numbers):
            names = tuple(roster.hosts[number].name for number in some)
            there = replace(request, constraints=replace(request.constraints, pinned=names))
            with _less_held(roster, some, life, now_ms, without, only):
                found = roster.engine.find(there, runners_up=runners_up)
            if found is not None:
                return found
    return None


@contextmanager
def _less_held(
    roster: Places,
    hosts: list[int],
    life: Life,
    now_ms: int,
    without: Collection[str],
    own: Mapping[int, frozenset[str]] = NO_PARTS,
) -> Iterator[None]:
    """Hold on some hosts only what must be held of a VM with this life, for one decision.

    `own` are devices and cells besides which no others of their hosts are to be had.
    """
    fleet, holdings = roster.fleet, roster.holdings
    if life == ORDINARY and not without:
        yield
        return
    mark, version = fleet.mark(), fleet.version
    try:
        less: dict[int, Kept] = {}
        for number in hosts:
            entry = roster.hosts.get(number)
            if entry is None or not holdings.may_hold_less(number, life, without):
                continue
            held = holdings.held(number, now_ms, life, without)
            if number in own:
                held = but_own(fleet, entry.fleet_row, held, own[number])
            if held != fleet.kept.get(entry.fleet_row, NOTHING_KEPT):
                less[entry.fleet_row] = held
        fleet.keep_free_many(less)
        yield
    finally:
        fleet.undo(mark)
        fleet.version = version
