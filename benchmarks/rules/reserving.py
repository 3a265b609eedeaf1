"""Rows: a decision on a fleet with a thousand live and future reservations, over one without.

An ordinary VM is compared with one number more, so it should cost nothing. Beside it, in the note,
is what a VM that ends and an owner's VM cost: they look at every host that holds something. Before
anything is timed, answers are compared with a plain scan of what fits beside what must be held.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.results import Result, at_most
from benchmarks.rules.decisions import fleet_of, plain_requests
from roost.control.create.drawing import find_living
from roost.control.memory.holdings import Holdings, Life
from roost.control.memory.roster import Roster
from roost.ledger.schema.rows import HoldRow, ReservationRow
from roost.placement.engine import NO_FIT, Engine

_HOSTS = 10_000
_RESERVATIONS = 1_000
_ROUNDS = 15
_NOW = 1_000_000
_LATER = 3_600_000
#: What one reservation keeps: four cores and 8 GiB.
_UNIT = (4_000, 8 * 2**30, 0, 1)


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the job."""
    name = "reservations 1k"
    hosts = min(_HOSTS, sizes.many)
    yield Job(name, partial(_row, name, hosts))


def reserved(engine: Engine) -> Roster:
    """Return a roster of the engine's fleet in which every second reservation begins later."""
    roster = Roster("least_loaded", lambda: _NOW)
    roster.fleet, roster.engine, roster.holdings = engine.fleet, engine, Holdings()
    fleet = engine.fleet
    room = fleet.hosts.arrays.headroom[: fleet.hosts.count, :2]
    rows = np.flatnonzero((room >= np.array(_UNIT[:2])).all(axis=1))[:_RESERVATIONS]
    for number, row in enumerate(rows.tolist()):
        roster.hosts[row] = _Entry(row, fleet.hosts.names[row])  # type: ignore[assignment]
        start = _NOW + (number % 2) * _LATER
        _reserve(roster.holdings, number, row, start)
        fleet.keep_free(row, roster.holdings.held(row, _NOW))
    return roster


class _Entry:
    """As much of a host as a decision about reservations asks for."""

    def __init__(self, row: int, name: str) -> None:
        self.fleet_row, self.number, self.name = row, row, name


def _reserve(holdings: Holdings, number: int, host: int, start: int) -> None:
    key = f"r{number}"
    cpu, memory, disk, places = _UNIT
    windows = f"[[{start},null]]"
    row = ReservationRow(
        id=key, description="", owner_kind="project", owner=f"p{number}", cpu_milli=cpu,
        memory_bytes=memory, disk_bytes=disk, units=1, from_ms=start, windows=windows,
        created_ms=0, created_by="", changed_ms=0, changed_by="",
    )  # fmt: skip
    hold = HoldRow(
        id=f"{key}/0000", host=host, kind="reservation", owner=key, cpu_milli=cpu,
        memory_bytes=memory, disk_bytes=disk, vms=places, windows=windows,
    )  # fmt: skip
    holdings.put(row, [hold])


def _check(roster: Roster, free: Engine) -> None:
    """Compare decisions with a scan of scores where there is room beside what must be held."""
    fleet = roster.fleet
    for life in (Life(), Life(_NOW + _LATER // 2), Life(_NOW + 2 * _LATER)):
        held = np.zeros((fleet.hosts.count, 3), np.int64)
        for row in roster.hosts:
            held[row] = roster.holdings.held(row, _NOW, life)[:3]
        for request in plain_requests(free.fleet)[:20]:
            arrays = fleet.hosts.arrays
            base = fleet.vector(request.demand)[:3]
            count = fleet.hosts.count
            room = arrays.capacity[:count, :3] - arrays.committed[:count, :3] - held
            scores = np.where((base <= room).all(axis=1), free.scores(request)[:count], NO_FIT)
            best = int(np.argmin(scores))
            found = find_living(roster, request, life).answer
            if getattr(found, "host_row", None) != best:
                raise AnswersDiffer(f"{request.name} went to {found}, not to row {best}")


def _row(name: str, hosts: int) -> Iterator[Result]:
    free, kept = Engine(fleet_of(hosts)), Engine(fleet_of(hosts))
    roster = reserved(kept)
    _check(roster, free)
    requests = plain_requests(free.fleet)
    best = {free: float("inf"), kept: float("inf")}
    for _ in range(_ROUNDS):
        for engine in (free, kept):
            with timed() as span:
                for request in requests:
                    engine.find(request)
            best[engine] = min(best[engine], span.cpu_s / len(requests))
    special = []
    for life in (Life(_NOW + _LATER // 2), Life(None, ("r0",))):
        with timed() as span:
            for request in requests[:20]:
                find_living(roster, request, life)
        special.append(span.cpu_s / 20)
    note = (
        f"{best[free] * 1e6:.2f} -> {best[kept] * 1e6:.2f} us with "
        f"{len(roster.hosts):,} reservations on {hosts:,} hosts; "
        f"a VM that ends {special[0] * 1e3:.1f} ms, an owner's {special[1] * 1e3:.2f} ms"
    )
    yield at_most(name, best[kept] / best[free], "x", 1.5, None, note=note)
