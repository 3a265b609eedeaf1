"""Why no host fits: counts per reason, the nearest miss, and the smallest change that would do.

Every fix has been tried: the change is made to the fleet, the engine is asked again, and the
change is taken back.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from roost.base.units import format_bytes, format_cpu
from roost.fleet.fleet import Fleet
from roost.model.flow import (
    Fix,
    FixKind,
    NearestMiss,
    PlaceRequest,
    ReasonCount,
    Rejection,
    RejectionCode,
    Shortage,
)
from roost.model.hosts import Admin, Health
from roost.model.reasons import RESOURCE_REASONS, Reason
from roost.placement.question import Question
from roost.placement.relaxing import relaxations
from roost.placement.verdicts import AMOUNTS, Verdicts, judge_hosts, nearest, shortages

if TYPE_CHECKING:
    from roost.placement.engine import Engine

#: At most so many rules are tried one by one.
_MOST_RULES = 32


def reject(engine: "Engine", request: PlaceRequest) -> Rejection:
    """Explain a refusal."""
    verdicts = judge_hosts(engine.question(request))
    fixes = tuple(_fixes(engine, request, verdicts))
    return rejection_by(verdicts, request.name, engine.strategy_of(request).name, fixes)


def rejection_by(
    verdicts: Verdicts, name: str, strategy: str, fixes: tuple[Fix, ...] = ()
) -> Rejection:
    """Return the refusal of a VM that these verdicts make."""
    miss = _nearest_miss(verdicts)
    larger = _larger_than_any_host(verdicts.question)
    counts = verdicts.counts()
    return Rejection(
        vm=name,
        code=_code(verdicts),
        message=_message(name, verdicts, counts, miss, larger, fixes),
        strategy=strategy,
        hosts=len(verdicts.rows),
        reasons=counts,
        nearest_miss=miss,
        fixes=fixes,
        larger_than_any_host=larger,
    )


def renamed(rejection: Rejection, name: str) -> Rejection:
    """Return the refusal of a VM under the name that people know it by."""
    said = rejection.message.replace(_no_host(rejection.vm), _no_host(name), 1)
    return replace(rejection, vm=name, message=said)


def without_fixes_on(rejection: Rejection, never: Sequence[str]) -> Rejection:
    """Return a refusal that proposes nothing by which the VM would go to one of these hosts."""
    fixes = tuple(fix for fix in rejection.fixes if fix.host not in never)
    said = rejection.message.removesuffix(_smallest(rejection.fixes)) + _smallest(fixes)
    return replace(rejection, fixes=fixes, message=said)


def _code(verdicts: Verdicts) -> RejectionCode:
    health = verdicts.question.fleet.hosts.health[verdicts.rows]
    if not (health == Health.ONLINE).any():
        return RejectionCode.NO_AVAILABLE_AGENTS
    if verdicts.passing_all_but(RESOURCE_REASONS | {Reason.PRESSURE}).any():
        return RejectionCode.INSUFFICIENT_RESOURCES
    return RejectionCode.CONSTRAINTS_UNSATISFIED


def _nearest_miss(verdicts: Verdicts) -> NearestMiss | None:
    found = nearest(verdicts)
    if found is None:
        return None
    row, hosts = found
    question = verdicts.question
    return NearestMiss(question.fleet.hosts.names[row], shortages(question, row), hosts)


def _larger_than_any_host(question: Question) -> tuple[Shortage, ...]:
    """Return what even the largest empty host lacks; empty if some host could take the VM."""
    hosts = question.fleet.hosts
    rows = question.fleet.present_rows()
    if not len(rows):
        return ()
    capacity = hosts.arrays.capacity[rows][:, : len(question.demand)]
    short = np.maximum(0, question.demand - capacity)
    if not short.any(axis=1).all():
        return ()
    need = np.maximum(question.demand, 1)
    best = int(np.argmin((short / need).sum(axis=1)))
    return tuple(
        Shortage(name, int(question.demand[column]), int(capacity[best, column]))
        for column, name in enumerate(hosts.resources.values[: len(question.demand)])
        if short[best, column]
    )


def _fixes(engine: "Engine", request: PlaceRequest, verdicts: Verdicts) -> Iterator[Fix]:
    """Yield the fixes that work, the smallest first: see `FixKind` for the order."""
    fleet = engine.fleet

    def open_host(name: str) -> None:
        fleet.set_admin(name, Admin.OPEN)

    def bring_online(name: str) -> None:
        fleet.set_health(name, Health.ONLINE)
        fleet.set_admin(name, Admin.OPEN)

    yield from _host_fix(engine, request, verdicts, {Reason.NOT_OPEN}, FixKind.UNCORDON, open_host)
    alone = verdicts.refused_by_one_rule()
    for count, (rule, relaxed) in enumerate(relaxations(verdicts.question, request, alone)):
        if count == _MOST_RULES:
            break
        placement = engine.find(relaxed)
        if placement is not None:
            yield Fix(FixKind.LIFT_RULE, placement.host, rule=rule)
    yield from _free_fix(engine, request, verdicts)
    state = {Reason.NOT_ONLINE, Reason.NOT_OPEN}
    yield from _host_fix(engine, request, verdicts, state, FixKind.BRING_ONLINE, bring_online)


def _host_fix(
    engine: "Engine",
    request: PlaceRequest,
    verdicts: Verdicts,
    reasons: set[Reason],
    kind: FixKind,
    change: Callable[[str], None],
) -> Iterator[Fix]:
    """Yield the first host that fails for its state alone, if changing that state helps."""
    only = verdicts.passing_all_but(frozenset(reasons))
    if kind is FixKind.BRING_ONLINE:  # what uncordoning alone would cure is another fix
        only &= ~verdicts.passing_all_but(frozenset({Reason.NOT_OPEN}))
    for row in verdicts.rows[only][:1].tolist():
        name = engine.fleet.hosts.names[row]
        with _tried(engine.fleet):
            change(name)
            placement = engine.find(request)
        if placement is not None:
            yield Fix(kind, placement.host)


def _free_fix(engine: "Engine", request: PlaceRequest, verdicts: Verdicts) -> Iterator[Fix]:
    """Yield the host where freeing the smallest amount helps."""
    question, hosts = verdicts.question, engine.fleet.hosts
    capacity = hosts.arrays.capacity[verdicts.rows][:, : len(question.demand)]
    # Emptying a smaller host would not be enough, however near a miss it is.
    large_enough = (question.demand <= capacity).all(axis=1) & (hosts.max_vms[verdicts.rows] != 0)
    candidates = np.flatnonzero(verdicts.passing_all_but(AMOUNTS) & large_enough)
    columns = [index for index, each in enumerate(verdicts.filters) if each.reason not in AMOUNTS]
    narrowed = Verdicts(
        question, verdicts.rows[candidates], verdicts.filters, verdicts.failed[:, candidates]
    )
    assert not narrowed.failed[columns].any()
    found = nearest(narrowed)
    if found is None:
        return
    row, _ = found
    missing = shortages(question, row)
    with _tried(engine.fleet):
        engine.fleet.pretend_free(row, {each.resource: each.short for each in missing})
        placement = engine.find(request)
    if placement is not None:
        yield Fix(FixKind.FREE, placement.host, shortages=missing)


@contextmanager
def _tried(fleet: Fleet) -> Iterator[None]:
    """Take back whatever is changed inside."""
    version = fleet.version
    mark = fleet.mark()
    try:
        yield
    finally:
        fleet.undo(mark)
        fleet.version = version


def amount_text(resource: str, amount: int) -> str:
    """Return an amount as people read it."""
    if resource in ("memory", "disk"):
        return f"{format_bytes(amount)} of {resource}"
    if resource == "cpu":
        cores = format_cpu(amount)
        return f"{cores} core{'' if cores == '1' else 's'}"
    names = {"vms": "VM slot", "devices": "device", "numa_cells": "suitable NUMA cell"}
    if resource in names:
        return f"{amount} {names[resource]}{'' if amount == 1 else 's'}"
    return f"{amount} of {resource}"


def fix_text(fix: Fix) -> str:
    """Return a fix as one sentence without its full stop."""
    match fix.kind:
        case FixKind.UNCORDON:
            return f"open host {fix.host} again"
        case FixKind.BRING_ONLINE:
            return f"bring host {fix.host} back online"
        case FixKind.LIFT_RULE:
            return f"lift the rule {fix.rule!r} (it then goes to {fix.host})"
    amounts = " and ".join(amount_text(each.resource, each.short) for each in fix.shortages)
    return f"free {amounts} on {fix.host}"


def _reason_text(count: ReasonCount) -> str:
    """Return a reason as a refusal names it; a rule by its name and the part that said no."""
    if not count.rule:
        return f"{count.reason.value} {count.part}".rstrip()
    error = "an error in " if count.reason is Reason.RULE_ERROR else ""
    return f"{error}rule {count.rule}: {count.part}"


def _no_host(name: str) -> str:
    return f"no host for VM {name!r}: "


def _message(
    name: str,
    verdicts: Verdicts,
    counts: tuple[ReasonCount, ...],
    miss: NearestMiss | None,
    larger: tuple[Shortage, ...],
    fixes: tuple[Fix, ...],
) -> str:
    if not len(verdicts.rows):
        return _no_host(name) + "the fleet has no hosts"
    parts = []
    if larger:
        asked = " and ".join(amount_text(each.resource, each.need) for each in larger)
        there = " and ".join(amount_text(each.resource, each.free) for each in larger)
        parts.append(f"it is larger than any host: it asks for {asked}, the largest has {there}")
    listed = ", ".join(f"{count.first} {_reason_text(count)}" for count in counts if count.first)
    hosts = "1 host" if len(verdicts.rows) == 1 else f"{len(verdicts.rows)} hosts"
    parts.append(f"{hosts} refused ({listed})")
    if miss is not None and not larger:
        short = " and ".join(amount_text(each.resource, each.short) for each in miss.shortages)
        where = f"{miss.hosts} hosts such as {miss.host}" if miss.hosts > 1 else miss.host
        parts.append(f"nearest: short by {short} on {where}")
    return _no_host(name) + "; ".join(parts) + _smallest(fixes)


def _smallest(fixes: tuple[Fix, ...]) -> str:
    """Return the end of a refusal's message."""
    return f"; smallest fix: {fix_text(fixes[0])}" if fixes else ""
