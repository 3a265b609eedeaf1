"""A report on a fleet put into the words of the API: what is worth most first, lists cut."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roost.analysis.classes import Sizing
from roost.analysis.fleetreport import (
    HOURS,
    RESOURCES,
    HostFindings,
    PeakGroup,
    VMFindings,
    busy_hours,
)
from roost.wire.reports import (
    FleetReport,
    HourBody,
    LevelBody,
    OversizedVM,
    PeakGroupBody,
    ReportedVM,
    SavingBody,
    ShortHostBody,
    ZombieVM,
)

_HOUR_MS = 3_600_000
#: Advice that changes less than this share of what was asked is no advice.
_LEAST_CHANGE = 0.1
#: Members of a group that are named.
_MOST_NAMED = 20


class Known(NamedTuple):
    """What the ledger calls a VM."""

    name: str
    project: str


@dataclass(frozen=True, slots=True)
class Whole:
    """All that was found of a fleet, before lists are cut."""

    origin_ms: int
    known: Mapping[str, Known]
    vms: Sequence[VMFindings]
    hosts: Sequence[HostFindings]
    groups: Sequence[PeakGroup]
    unread: int
    homes: Mapping[str, str]


def report_of(whole: Whole, top: int) -> FleetReport:
    """Return a report whose lists have at most so many entries."""
    there = [vm for vm in whole.vms if vm.name in whole.known]
    over, under, saving = _sizes(whole, there)
    zombies = _zombies(whole, there)
    shortages = sorted(
        (_shortages(whole)), key=lambda each: (each.first_ms, each.host, each.resource)
    )
    levels = [
        LevelBody(
            host=host.name,
            promised=round(host.asked[0] / max(1, host.total[0]), 3),
            safe=round(host.level.level, 3),
            used=round(host.level.used, 4),
            bound=host.level.bound,
        )
        for host in whole.hosts
        if host.level is not None
    ]
    # Where more is promised than is safe comes first, then where most could be.
    levels.sort(key=lambda each: (each.promised <= each.safe, -abs(each.safe - each.promised)))
    return FleetReport(
        origin_ms=whole.origin_ms,
        hosts=len(whole.hosts),
        vms=len(there),
        classes=dict(
            sorted(Counter(vm.kind.value if vm.kind else "not known" for vm in there).items())
        ),
        hours=_hours(whole),
        saving=saving,
        oversized=over[:top],
        undersized=under[:top],
        zombies=zombies[:top],
        groups=[group_of(whole, each) for each in whole.groups[:top]],
        shortages=shortages[:top],
        levels=levels[:top],
        oversized_count=len(over),
        undersized_count=len(under),
        zombie_count=len(zombies),
        group_count=len(whole.groups),
        unread_hosts=whole.unread,
    )


def _who(whole: Whole, vm: str) -> dict[str, str]:
    known = whole.known[vm]
    return {
        "vm": vm,
        "name": known.name,
        "project": known.project,
        "host": whole.homes.get(vm, ""),
    }


def _sizes(
    whole: Whole, vms: Sequence[VMFindings]
) -> tuple[list[OversizedVM], list[OversizedVM], SavingBody]:
    capacity = np.array([host.total for host in whole.hosts] or [(1, 1)], np.float64).sum(axis=0)
    over: list[tuple[float, OversizedVM]] = []
    under: list[tuple[float, OversizedVM]] = []
    saved = [0, 0]
    savers = set()
    for vm in vms:
        for at, advice in enumerate(vm.sizes):
            told = _advice(whole, vm, at, advice)
            if told is None:
                continue
            # A core and a byte are compared by how much of the fleet they are.
            worth = abs(told.saving) / max(1.0, float(capacity[at]))
            (over if told.saving > 0 else under).append((worth, told))
            if told.saving > 0:
                saved[at] += told.saving
                savers.add(vm.name)
    saving = SavingBody(vms=len(savers), cpu_milli=saved[0], memory_bytes=saved[1])
    return _ordered(over), _ordered(under), saving


def _ordered(found: list[tuple[float, OversizedVM]]) -> list[OversizedVM]:
    return [each for _, each in sorted(found, key=lambda pair: (-pair[0], pair[1].vm))]


def _advice(whole: Whole, vm: VMFindings, at: int, advice: Sizing) -> OversizedVM | None:
    asked = vm.asked[at]
    if not advice.enough or asked == 0:
        return None
    advised = int(np.ceil(advice.advised))
    if abs(asked - advised) < _LEAST_CHANGE * asked:
        return None
    return OversizedVM(
        **_who(whole, vm.name),
        resource=RESOURCES[at],
        asked=asked,
        advised=advised,
        saving=asked - advised,
        risk=round(advice.risk, 4),
    )


def _zombies(whole: Whole, vms: Sequence[VMFindings]) -> list[ZombieVM]:
    found = [
        ZombieVM(
            **_who(whole, vm.name),
            cpu_milli=vm.asked[0],
            memory_bytes=vm.asked[1],
            days_seen=round(vm.zombie.days_seen, 2),
            cpu_p99_share=round(vm.zombie.cpu_p99_share, 4),
            network_p99_bytes=round(vm.zombie.network_p99_bytes, 1),
        )
        for vm in vms
        if vm.zombie is not None and vm.zombie.zombie
    ]
    return sorted(found, key=lambda each: (-each.memory_bytes, -each.cpu_milli, each.vm))


def group_of(whole: Whole, group: PeakGroup) -> PeakGroupBody:
    """Return VMs that peak together, without those that have gone before they were named."""
    members = [vm for vm in group.members if vm in whole.known]
    return PeakGroupBody(
        vms=[ReportedVM(**_who(whole, vm)) for vm in members[:_MOST_NAMED]],
        count=len(members),
        correlation=round(group.correlation, 3),
        peak_hour=group.peak_hour,
        hosts=len({whole.homes.get(vm) for vm in members}),
    )


def _shortages(whole: Whole) -> list[ShortHostBody]:
    return [
        ShortHostBody(
            host=host.name,
            resource=short.resource,
            first_ms=1000 * short.first_s,
            likely_ms=None if short.likely_s is None else 1000 * short.likely_s,
            most=short.most,
            total=short.total,
        )
        for host in whole.hosts
        for short in host.shortages
    ]


def _hours(whole: Whole) -> list[HourBody]:
    cpu, memory = busy_hours(whole.hosts)
    first = whole.origin_ms - HOURS * _HOUR_MS
    return [
        HourBody(at_ms=first + at * _HOUR_MS, cpu=_share(cpu[at]), memory=_share(memory[at]))
        for at in range(HOURS)
    ]


def _share(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
