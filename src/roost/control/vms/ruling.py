"""Whether hard rules hold for a VM on the host where it is, as if it were placed there now.

Rules that read a host's attributes are asked about the host as it is; those that read what is
promised there, about the host without this VM.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.fleet.fleet import Fleet
from roost.ledger.claims.capacity import ProjectUse, Promised
from roost.ledger.schema.amounts import AMOUNTS, Amounts
from roost.model.constraints import BoundRule
from roost.model.flow import PlaceRequest, ReasonCount, Rejection, RejectionCode
from roost.model.reasons import Reason
from roost.placement.engine import Engine
from roost.placement.rules.columns import ERROR, HOLDS
from roost.placement.rules.parts import How, Parts, hard_parts
from roost.placement.rules.paths import names


def reads_amounts(engine: Engine, request: PlaceRequest) -> bool:
    """Say whether a hard rule reads, for this VM, more than what hosts are: what they promised."""
    if not engine.rules:
        return False
    return any(part.how is not How.KEPT for _, part in hard_parts(engine.terms_of(request)))


def reads_project(engine: Engine, request: PlaceRequest) -> bool:
    """Say whether a hard rule reads, for this VM, what its project has or may have."""
    if not engine.reads_projects:
        return False
    return any("project" in names(part.expr) for _, part in hard_parts(engine.terms_of(request)))


def wrong_part(engine: Engine, request: PlaceRequest, bound: BoundRule) -> str | None:
    """Return the first part of a rule that does not hold where a VM is; None if all do."""
    fleet = engine.fleet
    number = fleet.vms.numbers[request.key]
    rows = np.array([fleet.vms.host[number]], np.int64)
    parts: Parts = bound.parts
    columns = engine.question(request).rules
    for kept in (True, False):
        asked = [part for part in parts.conjuncts if (part.how is How.KEPT) is kept]
        if not asked:
            continue
        with _without(fleet, None if kept else number):
            if not kept:
                columns = engine.question(request).rules
            for part in asked:
                said = int(columns.part(part, rows)[0])
                if said != HOLDS:
                    return f"{part.text} (a field is missing)" if said == ERROR else part.text
    return None


@contextmanager
def _without(fleet: Fleet, number: int | None) -> Iterator[None]:
    """Look at a fleet without one VM; nothing stays different."""
    if number is None:
        yield
        return
    mark, version = fleet.mark(), fleet.version
    fleet.remove(number)
    try:
        yield
    finally:
        fleet.undo(mark)
        fleet.version = version


def host_of_claim(roster: Roster, key: str) -> HostEntry | None:
    """Return the host that a claim is on as far as this process has heard; None if of none."""
    number = roster.fleet.vms.numbers.get(key)
    return None if number is None else roster.by_fleet_row[int(roster.fleet.vms.host[number])]


def refused_where_it_is(roster: Roster, request: PlaceRequest, host: HostEntry) -> Rejection | None:
    """Return why a VM may not have what it asks for now on its host; None where rules allow it."""
    engine = roster.engine
    for bound in engine.terms_of(request).rules:
        if not bound.hard:
            continue
        # Nobody knows the labels of a host that is set aside.
        part = "the host is set aside" if host.aside else wrong_part(engine, request, bound)
        if part is None:
            continue
        return Rejection(
            request.name,
            RejectionCode.CONSTRAINTS_UNSATISFIED,
            f"rule {bound.name!r} does not let {request.name!r} grow on host {host.name!r}: {part}",
            engine.strategy_of(request).name,
            hosts=1,
            reasons=(ReasonCount(Reason.RULE, first=1, total=1, rule=bound.name, part=part),),
        )
    return None


def promised_when_grown(roster: Roster, request: PlaceRequest, host: HostEntry) -> Promised | None:
    """Return what a VM's host has promised once it has grown; None if no hard rule has read it."""
    if not reads_amounts(roster.engine, request):
        return None
    vms = roster.fleet.vms
    has = Amounts(*vms.demand[vms.numbers[request.key], : len(AMOUNTS)].tolist())
    demand = request.demand
    wants = Amounts(demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
    return roster.promised_on(host.fleet_row).plus(wants.greatest(has).minus(has), 0, ())


def used_when_resized(roster: Roster, request: PlaceRequest, before: Amounts) -> ProjectUse | None:
    """Return what a VM's project uses once it is resized; None if no hard rule has read it."""
    if not reads_project(roster.engine, request):
        return None
    demand = request.demand
    wants = Amounts(demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
    return roster.project_use(request.project).plus(wants.minus(before), 0)
