"""A fleet's week in one report: its busy hours, sizes, shared peaks, and hosts that will be short.

VMs are looked at one by one and only a few numbers of each are kept, so that a fleet of ten
thousand fits into memory; hosts by the sum of their VMs, as `outlook` does.

    VMWeek --look_at_vm--> VMFindings ... HostWeek --look_at_hosts--> HostFindings
                                   \\--> peak_sharing, busy_hours
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roost.analysis.classes import (
    Sizing,
    WorkloadClass,
    ZombieEvidence,
    classify,
    sizing,
    zombie,
)
from roost.analysis.correlation import alike, groups_of_pairs
from roost.analysis.forecasting import forecast_batch
from roost.analysis.grid import Floats
from roost.analysis.outlook import (
    DAY_STEPS,
    POINTS,
    STEP_S,
    Ahead,
    HostSeries,
    Use,
    beside,
    is_fresh,
    is_known,
    together,
)
from roost.analysis.oversubscription import Level, safe_levels

HOUR_STEPS = 3600 // STEP_S
HOURS = POINTS // HOUR_STEPS
#: A cpu share above which nobody would call a VM idle: no evidence is looked for.
_IDLE_SHARE = 0.03
#: How much VMs must correlate to share a peak, and the seed of the sketches that find them.
_LEAST_ALIKE, _SEED = 0.8, 16
RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class VMWeek:
    """What was read of a VM in a week: means, the high parts of steps, and bytes per second."""

    name: str
    asked: tuple[int, int]
    use: Use
    high: Use
    network: Floats


@dataclass(frozen=True, slots=True)
class VMFindings:
    """What is kept of a VM: cpu by the hour [168], advice on cpu and memory, class, evidence."""

    name: str
    asked: tuple[int, int]
    hours: Floats
    sizes: tuple[Sizing, Sizing]
    kind: WorkloadClass | None
    zombie: ZombieEvidence | None


@dataclass(frozen=True, slots=True)
class HostWeek:
    """A host with its VMs' series: what it has, what it may promise and has promised, of each."""

    name: str
    total: tuple[int, int]
    asked: tuple[int, int]
    series: HostSeries
    asked_by: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which a host may be short: from when on, and from when on that is likely.

    `most` is the highest upper bound within the time that is foreseen.
    """

    resource: str
    first_s: int
    likely_s: int | None
    most: int
    total: int


@dataclass(frozen=True, slots=True)
class HostFindings:
    """What is kept of a host: use by the hour over a week [2, 168], shortages, its safe level."""

    name: str
    total: tuple[int, int]
    asked: tuple[int, int]
    hours: Floats
    shortages: tuple[Shortage, ...]
    level: Level | None


@dataclass(frozen=True, slots=True)
class PeakGroup:
    """VMs that peak together, with the mean correlation of the pairs that were found alike."""

    members: tuple[str, ...]
    correlation: float
    peak_hour: int  # of the day, UTC, when their sum is highest


def look_at_vm(week: VMWeek) -> VMFindings:
    """Return what is kept of one VM's week."""
    cpu = week.use.cpu
    asked = float(max(1, week.asked[0]))
    known = cpu[np.isfinite(cpu)]
    evidence = None
    if len(known) and float(np.quantile(known, 0.99)) < _IDLE_SHARE * asked:
        evidence = zombie(cpu, week.network, asked, STEP_S)
    sizes = (sizing(week.high.cpu, asked), sizing(week.high.memory, float(week.asked[1])))
    kind = classify(cpu[None], np.array([asked]), DAY_STEPS)[0].kind
    return VMFindings(week.name, week.asked, by_hour(cpu), sizes, kind, evidence)


def look_at_hosts(hosts: Sequence[HostWeek], ahead: Ahead, bound: float) -> list[HostFindings]:
    """Return what is kept of some hosts' weeks; what is not known of a VM counts as all of it."""
    sums: list[Use | None] = []
    added: list[list[float]] = []
    rows: list[Floats] = []
    shares = np.full((len(hosts), POINTS), np.nan)
    for at, host in enumerate(hosts):
        fresh = all(is_fresh(each, ahead) for each in host.series.use)
        vms = [vm for vm in host.series.vms if is_known(vm.use, ahead)] if fresh else []
        names = {vm.name for vm in vms}
        unknown = [asked for name, asked in host.asked_by.items() if name not in names]
        added.append([beside(host.series, i) + sum(each[i] for each in unknown) for i in range(2)])
        both = together(vms) if vms else None
        sums.append(both)
        if both is not None:
            rows += both
            asked_cpu = sum(host.asked_by[vm.name][0] for vm in vms if vm.name in host.asked_by)
            if asked_cpu:
                shares[at] = both.cpu / asked_cpu
    coverage = 2 * ahead.quantile_milli / 1000 - 1
    told = (
        forecast_batch(np.stack(rows), ahead.steps, day_steps=DAY_STEPS, coverage=coverage)
        if rows
        else None
    )
    levels = safe_levels(shares, bound)
    found, row = [], 0
    for at, host in enumerate(hosts):
        shortages: list[Shortage] = []
        if sums[at] is not None and told is not None:
            for i, resource in enumerate(RESOURCES):
                more = added[at][i]
                short = _shortage(
                    resource, told.high[row] + more, told.point[row] + more, host.total[i], ahead
                )
                shortages += [] if short is None else [short]
                row += 1
        hours = np.stack([by_hour(each) for each in host.series.use])
        found.append(
            HostFindings(host.name, host.total, host.asked, hours, tuple(shortages), levels[at])
        )
    return found


def _shortage(
    resource: str, high: Floats, point: Floats, total: int, ahead: Ahead
) -> Shortage | None:
    over = np.flatnonzero(np.isfinite(high) & (high > total))
    if not len(over):
        return None
    likely = np.flatnonzero(point > total)
    return Shortage(
        resource,
        ahead.origin_s + int(over[0]) * STEP_S,
        ahead.origin_s + int(likely[0]) * STEP_S if len(likely) else None,
        int(np.ceil(high[over].max())),
        total,
    )


def busy_hours(hosts: Sequence[HostFindings]) -> Floats:
    """Return the share of cpu and memory that hosts used together, [2, 168], the last hour last.

    Only hosts that were read in an hour count in it, with what they have.
    """
    used, there = np.zeros((2, HOURS)), np.zeros((2, HOURS))
    for host in hosts:
        known = np.isfinite(host.hours)
        used += np.where(known, host.hours, 0.0)
        there += known * np.array(host.total, np.float64)[:, None]
    shares: Floats = np.full((2, HOURS), np.nan)
    return np.asarray(np.divide(used, there, out=shares, where=there > 0))


def peak_sharing(vms: Sequence[VMFindings], origin_s: int) -> list[PeakGroup]:
    """Return groups of VMs whose cpu goes up and down together, the largest use first."""
    if len(vms) < 2:
        return []
    hours = np.stack([vm.hours for vm in vms])
    enough = np.isfinite(hours).sum(axis=1) >= 48
    rows = np.flatnonzero(enough)
    first, second, strength = alike(hours[rows], np.random.default_rng(_SEED), _LEAST_ALIKE)
    groups = groups_of_pairs(first, second)
    number = np.full(len(rows), -1)
    for at, group in enumerate(groups):
        number[list(group)] = at
    inside = (number[first] == number[second]) & (number[first] >= 0)
    strengths = np.bincount(number[first][inside], strength[inside], minlength=len(groups))
    pairs = np.bincount(number[first][inside], minlength=len(groups))
    found = []
    for at, group in enumerate(groups):
        chosen = rows[list(group)]
        total = np.nansum(hours[chosen], axis=0)
        peak = int(np.argmax(total))
        hour_s = origin_s - (HOURS - peak) * 3600
        found.append(
            (
                float(total.mean()),
                PeakGroup(
                    tuple(vms[row].name for row in chosen.tolist()),
                    float(strengths[at] / max(1, pairs[at])),
                    hour_s % 86_400 // 3600,
                ),
            )
        )
    return [group for _, group in sorted(found, key=lambda each: -each[0])]


def by_hour(series: Floats) -> Floats:
    """Return the mean of each hour of a week, NaN where nothing was read."""
    shaped = series.reshape(HOURS, HOUR_STEPS)
    known = np.isfinite(shaped)
    count = known.sum(axis=1)
    total = np.where(known, shaped, 0.0).sum(axis=1)
    hours: Floats = np.full(HOURS, np.nan)
    return np.asarray(np.divide(total, count, out=hours, where=count > 0))
