"""The profile of one VM for who asks: read, reckoned and put into the words of the API.

Every question is answered from the store as it is now: nothing is kept, and nothing waits for the
next pass over all VMs.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from roost.analysis import classes
from roost.analysis.classes import Sizing
from roost.analysis.correlation import bottleneck, related
from roost.analysis.forecasting import RANGE_ENDS, Forecast, cold_start, forecast_batch
from roost.analysis.grid import Floats
from roost.analysis.lifetime import Remaining
from roost.analysis.outlook import DAY_STEPS, LEAST_ALIKE, LEAST_DAYS, POINTS, STEP_S
from roost.analysis.periods import find_periods
from roost.analysis.profiles import (
    WorkloadPattern,
    WorkloadProfile,
    cyclic_patterns,
    profile_batch,
)
from roost.analysis.store import SeriesReader
from roost.control.learning.gathering import STEP_MS, on_grid
from roost.ledger.schema.rows import VMRow
from roost.model.series import (
    DUPLICATES,
    HOUR_MS,
    JUMPS,
    NEGATIVE,
    NOT_FINITE,
    NOTES,
    OUT_OF_ORDER,
    RATES,
    Columns,
    Resolution,
    Subject,
)
from roost.wire.profiles import (
    PAST_HOURS,
    BottleneckBody,
    CleaningBody,
    ForecastBody,
    LifetimeBody,
    ModelBody,
    MovingTogetherBody,
    PatternBody,
    ProfileBody,
    ResourceProfileBody,
    SharedPeaksBody,
    SizingBody,
    ZombieBody,
)

#: The share of values that intervals are to hold.
COVERAGE = 0.9
_HOUR_STEPS = 3600 // STEP_S
#: What is read: use as its mean; for sizes the parts of a step in which much was used.
MEANS = ("cpu_milli.mean", "memory_bytes.mean")
HIGHS = ("cpu_milli.p95", "memory_bytes.max")
NETWORK = ("net_received_bytes_per_s.mean", "net_sent_bytes_per_s.mean")
DISK = ("disk_read_bytes_per_s.mean", "disk_write_bytes_per_s.mean")
#: Of which those are the rates.
_COUNTERS = tuple(counter for counter, rate in RATES.items() if f"{rate}.mean" in (*NETWORK, *DISK))
#: Shares of time in which something waited, by what it waited for.
WAITING = {
    "waiting for cpu": "psi_cpu_some_avg60.mean",
    "waiting for io": "psi_io_some_avg60.mean",
    "waiting for memory": "psi_memory_some_avg60.mean",
}
#: How far apart two resources may move and still be told of: two hours.
_MOST_LAG = 24
#: Waiting for less than this share of the time (percent) is nothing to be told of.
_LEAST_WAITING = 1.0


#: Slow cycles, of four days and more, are looked for in hours of eight weeks; two must be known.
_HOURS, _LEAST_HOURS, _SLOW_S = 8 * 168, 2 * 168, 4 * 86_400
#: Of resources that no VM asks for an amount of, no size is advised.
_UNASKED = SizingBody(asked=0, advised=None, saving=None, risk=None)


class WeekOfVM(NamedTuple):
    """What was read of one VM in the week before a moment, by figure, each [points]."""

    origin_ms: int
    figures: dict[str, Floats]


#: What a report on all VMs reads of each, and what a profile of one reads.
OF_MANY = (*MEANS, *HIGHS, *NETWORK)
OF_ONE = (*OF_MANY, *DISK, *WAITING.values())
#: What is read of VMs that one is like, and of a VM's hours: what they do.
OF_WORK = (*MEANS, *NETWORK, *DISK)


async def read_week(
    reader: SeriesReader, vm: str, origin_ms: int, asked: Sequence[str] = OF_ONE
) -> WeekOfVM:
    """Read a VM's series of the week before a moment."""
    first_ms = origin_ms - POINTS * STEP_MS
    found = await reader.read(
        Subject("vm", vm), first_ms, origin_ms, Resolution.FIVE_MINUTES, asked
    )
    return WeekOfVM(origin_ms, {name: on_grid(found, name, first_ms) for name in asked})


async def read_hours(reader: SeriesReader, vm: str, origin_ms: int) -> dict[str, Floats]:
    """Read a VM's means by the hour of the eight weeks before the hour of a moment."""
    until_ms = origin_ms - origin_ms % HOUR_MS
    first_ms = until_ms - _HOURS * HOUR_MS
    found = await reader.read(Subject("vm", vm), first_ms, until_ms, Resolution.HOUR, OF_WORK)
    return {name: on_grid(found, name, first_ms, _HOURS, HOUR_MS) for name in OF_WORK}


async def read_cleaning(store: SeriesReader, vm: str, origin_ms: int) -> CleaningBody:
    """Count what was wrong with a VM's raw readings of the week before a moment."""
    first_ms = origin_ms - POINTS * STEP_MS
    asked = (*sorted(NOTES), *_COUNTERS)
    found = await store.read(Subject("vm", vm), first_ms, origin_ms, Resolution.RAW, asked)

    def noted(note: str) -> int:
        values = found.figures.get(note)
        return 0 if values is None else int(np.nansum(values))

    return CleaningBody(
        samples=len(found),
        not_finite=noted(NOT_FINITE),
        negative=noted(NEGATIVE),
        jumps=noted(JUMPS),
        duplicates=noted(DUPLICATES),
        out_of_order=noted(OUT_OF_ORDER),
        resets=_resets(found),
    )


def _resets(raw: Columns) -> int:
    """Count the moments at which a counter is smaller than it was before."""
    fell = np.zeros(len(raw), np.bool_)
    for name in _COUNTERS:
        if (values := raw.figures.get(name)) is not None:
            there = np.flatnonzero(np.isfinite(values))
            fell[there[1:][np.diff(values[there]) < 0]] = True
    return int(fell.sum())


class Beside(NamedTuple):
    """What is known of a VM beside its own week: mistakes, VMs like it, and what is left of it.

    `hours` are its figures by the hour of the weeks before, see `read_hours`.
    """

    cleaning: CleaningBody | None = None
    peers: Sequence[WeekOfVM] = ()
    lifetime: LifetimeBody | None = None
    hours: Mapping[str, Floats] | None = None
    peaks_with: SharedPeaksBody | None = None


NOTHING_BESIDE = Beside()


def lifetime_of(left: Remaining | None, age_s: int) -> LifetimeBody | None:
    """Return what is left of a VM's life in the words of the API."""
    if left is None:
        return None
    told = [left.quantile_s(share) for share in (0.1, 0.5, 0.9)]
    early, half, late = (int(each) if np.isfinite(each) else None for each in told)
    return LifetimeBody(age_s=age_s, early_s=early, half_s=half, late_s=late, seen=int(left.seen))


def is_young(week: WeekOfVM) -> bool:
    """Say whether so little was read of a VM that others may tell more of the next day."""
    return int(np.isfinite(week.figures[MEANS[0]]).sum()) < LEAST_DAYS * DAY_STEPS


def profile_of(
    vm: VMRow, week: WeekOfVM, hours: int, beside: Beside = NOTHING_BESIDE
) -> ProfileBody:
    """Return what a week's series say of a VM, and of the hours after it."""
    start_s = week.origin_ms // 1000 - POINTS * STEP_S
    work = _work(week.figures)
    slow = _slow_cycles(beside.hours, week.origin_ms)
    use = np.stack(list(work.values()))
    known = np.isfinite(use)
    # Steps before the VM was first read would be gaps: nothing is learnt from them.
    begin = int(known.any(axis=0).argmax()) if known.any() else POINTS - 1
    series = use[:, begin:]
    profiles = profile_batch(series, start_s + begin * STEP_S, STEP_S)
    ahead = forecast_batch(series, hours * _HOUR_STEPS, day_steps=DAY_STEPS, coverage=COVERAGE)
    alike = [_work(each.figures) for each in beside.peers]
    asked = (vm.cpu_milli, vm.memory_bytes)
    found = classes.classify(series[:1], np.array([float(max(1, asked[0]))]), DAY_STEPS)[0]
    advice = [
        classes.sizing(week.figures[figure], float(amount))
        for figure, amount in zip(HIGHS, asked, strict=True)
    ]
    sizes = [_sizing(amount, each) for amount, each in zip(asked, advice, strict=True)]
    evidence = classes.zombie(use[0], work["network"], float(max(1, asked[0])), STEP_S)
    return ProfileBody(
        vm=vm.id,
        name=vm.name,
        project=vm.project,
        origin_ms=week.origin_ms,
        step_s=STEP_S,
        coverage=COVERAGE,
        workload_class=None if found.kind is None else found.kind.value,
        class_probability=found.probability,
        resources={
            name: ResourceProfileBody(
                points=int(known[row].sum()),
                patterns=[
                    _pattern(each) for each in (*profiles[row].patterns, *slow.get(name, ()))
                ],
                parameters=_parameters(profiles[row]),
                stability=profiles[row].stability,
                past=_told(use[row, -PAST_HOURS * _HOUR_STEPS :]),
                forecast=_from_peers([each[name] for each in alike], series[row], ahead.high[row])
                or _forecast(ahead, row, empty=not known[row].any()),
                sizing=sizes[row] if row < len(sizes) else _UNASKED,
                gaps=int((~known[row, begin:]).sum()) if known.any() else 0,
            )
            for row, name in enumerate(work)
        },
        zombie=ZombieBody(
            zombie=evidence.zombie,
            days_seen=evidence.days_seen,
            cpu_p99_share=evidence.cpu_p99_share,
            network_p99_bytes=_number(evidence.network_p99_bytes),
            cycle_found=evidence.cycle_found,
        ),
        together=_together(work),
        bottlenecks=_bottlenecks(week, work),
        cleaning=beside.cleaning,
        lifetime=beside.lifetime,
        peaks_with=beside.peaks_with,
    )


def _work(figures: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return a VM's courses by what they are called."""
    cpu, memory = (figures[name] for name in MEANS)
    read, written = (figures[name] for name in DISK)
    received, sent = (figures[name] for name in NETWORK)
    return {"cpu": cpu, "memory": memory, "disk io": read + written, "network": received + sent}


def _slow_cycles(
    hours: Mapping[str, Floats] | None, origin_ms: int
) -> dict[str, list[WorkloadPattern]]:
    """Return the cycles by resource that are too long for a week to show, such as a week itself."""
    found: dict[str, list[WorkloadPattern]] = {}
    for name, course in ({} if hours is None else _work(hours)).items():
        known = np.isfinite(course)
        if known.sum() < _LEAST_HOURS:
            continue
        begin = int(known.argmax())
        series = course[None, begin:]
        start_s = (origin_ms - origin_ms % HOUR_MS) // 1000 - (_HOURS - begin) * 3600
        cycles = cyclic_patterns(series, find_periods(series), start_s, 3600)[0]
        found[name] = [each for each in cycles if each.cycle_s > _SLOW_S]
    return found


def _together(work: Mapping[str, Floats]) -> list[MovingTogetherBody]:
    return [
        MovingTogetherBody(
            first=pair.first,
            second=pair.second,
            correlation=round(pair.correlation, 3),
            lag_s=pair.lag * STEP_S,
        )
        for pair in related(work, _MOST_LAG)
    ]


def _bottlenecks(week: WeekOfVM, work: Mapping[str, Floats]) -> list[BottleneckBody]:
    """Say of each resource what waits while it peaks, and which other one peaks along.

    Both are told, for neither says the other: where pressure was read and nobody waited, what peaks
    along is all there is to say, and where a disk is waited for it need not be busier than usual.
    """
    waiting = {name: week.figures[figure] for name, figure in WAITING.items()}
    found = []
    for name, values in work.items():
        along = {other: work[other] for other in work if other != name}
        found += [
            (name, bottleneck(values, waiting, least=_LEAST_WAITING)),
            (name, bottleneck(values, along)),
        ]
    return [
        BottleneckBody(
            peaking=name,
            resource=seen.resource,
            excess=round(seen.excess, 2),
            share=round(seen.share, 3),
        )
        for name, seen in found
        if seen is not None
    ]


def _pattern(pattern: WorkloadPattern) -> PatternBody:
    return PatternBody(
        kind=pattern.kind.value,
        confidence=pattern.confidence,
        cycle_s=pattern.cycle_s,
        peaks_s=list(pattern.peaks_s),
        troughs_s=list(pattern.troughs_s),
    )


def _parameters(profile: WorkloadProfile) -> dict[str, float]:
    return {name: value for name, value in profile.parameters.items() if np.isfinite(value)}


def _forecast(ahead: Forecast, row: int, *, empty: bool) -> ForecastBody:
    if empty:
        nothing: list[float | None] = [None] * ahead.point.shape[1]
        return ForecastBody(point=nothing, low=nothing, high=nothing, model="none")
    model = ahead.model_of(row, _HOUR_STEPS)
    words = "".join(f" {name}={value:g}" for name, value in model.parameters)
    # Without an upper bound there is none below either: 0 would be one.
    low = np.where(np.isfinite(ahead.high[row]), ahead.low[row], np.nan)
    return ForecastBody(
        point=_told(ahead.point[row]),
        low=_told(low),
        high=_told(ahead.high[row]),
        model=f"{model.family}{words}",
        models=_models(ahead, row),
        cycles_s=[round(each * STEP_S, 1) for each in ahead.periods[row].tolist() if each > 0],
    )


def _from_peers(peers: Sequence[Floats], own: Floats, bound: Floats) -> ForecastBody | None:
    """Return what VMs like this one do, where its own past is too short to tell a bound."""
    peers = [each for each in peers if np.isfinite(each).any()]
    if np.isfinite(bound).all() or len(peers) < LEAST_ALIKE:
        return None
    point, low, high = cold_start(
        np.stack(peers), own, len(bound), cycle_steps=DAY_STEPS, coverage=COVERAGE
    )
    by = {"peers": float(len(peers))}
    return ForecastBody(
        point=_told(point),
        low=_told(low),
        high=_told(high),
        model=f"cold_start peers={len(peers)}",
        models=[ModelBody(len(bound) * STEP_S, "cold_start", by, None)],
    )


def _models(ahead: Forecast, row: int) -> list[ModelBody]:
    """Return the model of each range of steps that is foreseen."""
    steps, found = ahead.point.shape[1], []
    for number, (begin, end) in enumerate(pairwise([0, *RANGE_ENDS.tolist()])):
        if begin < steps:
            family, parameters = ahead.model_of(row, begin + 1)
            found.append(
                ModelBody(
                    until_s=min(end, steps) * STEP_S,
                    family=family,
                    parameters=dict(parameters),
                    error=_number(float(ahead.error[row, number])),
                )
            )
    return found


def _sizing(asked: int, advice: Sizing) -> SizingBody:
    if not advice.enough:
        return SizingBody(asked=asked, advised=None, saving=None, risk=None)
    advised = int(np.ceil(advice.advised))
    return SizingBody(
        asked=asked, advised=advised, saving=asked - advised, risk=_number(advice.risk)
    )


def _told(values: Floats) -> list[float | None]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    return round(value, 2) if np.isfinite(value) else None
