"""From the series of hosts and their VMs to what the engine is told: predicted and expected use.

The last step of the analysis. What is told of a VM is the highest of its upper bounds over the time
ahead. What is told of a host is the same of the *sum* of its VMs' series, so that peaks which come
at different hours are not added up, and what the machine uses beside them on top.

Nothing is guessed downwards: a VM without enough fresh values is not told (the engine then counts
all that it asked for), and neither is a host whose own readings have stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from roost.analysis.days import day_alike, day_of
from roost.analysis.forecasting import LEAST_POINTS, forecast_batch
from roost.analysis.grid import Floats
from roost.analysis.lifetime import Path
from roost.base.units import MAX_AMOUNT
from roost.model.outlook import Expected, Predicted, PredictionBasis

#: The grid of all series here: roll-ups of five minutes, a week of them.
STEP_S, POINTS = 300, 2016
DAY_STEPS = 86_400 // STEP_S
#: VMs of one class from which something is expected of another of that class.
LEAST_ALIKE = 5
#: Days that are learnt from, also where not all of them are known: a day of less has no bounds.
LEAST_DAYS = 2
#: Names this way of reckoning in digests: one that changes gives other digests.
_VERSION = "outlook 4"


class Use(NamedTuple):
    """Cpu (millicores) and memory (bytes) of one subject, float64 [points], NaN where unknown."""

    cpu: Floats
    memory: Floats


@dataclass(frozen=True, slots=True)
class VMSeries:
    """A VM on a host: the name that the fleet has for it, and what it used."""

    name: str
    use: Use


@dataclass(frozen=True, slots=True)
class HostSeries:
    """A host, what it used itself, and its VMs."""

    name: str
    use: Use
    vms: tuple[VMSeries, ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is asked: up to when series go, how far ahead, at which quantile, how fresh.

    The last value of every series is of the step that ends at `origin_s`. A series whose last known
    value is more than `fresh_steps` before that is not fresh.
    """

    origin_s: int
    steps: int = 48
    quantile_milli: int = 900
    fresh_steps: int = 6

    @property
    def until_s(self) -> int:
        """Return the end of the time that is foreseen."""
        return self.origin_s + self.steps * STEP_S


@dataclass(frozen=True, slots=True)
class Outlook:
    """All that is foreseen at one moment: of hosts, of VMs, and of new VMs by class."""

    hosts: Mapping[str, Predicted]
    vms: Mapping[str, Expected]
    alike: Mapping[Path, Expected]
    basis: PredictionBasis


def foresee(
    hosts: Sequence[HostSeries], ahead: Ahead
) -> tuple[dict[str, Predicted], dict[str, Expected]]:
    """Return what is predicted of hosts and expected of their VMs, as far as anything can be."""
    told = [
        (host, [vm for vm in host.vms if is_known(vm.use, ahead)])
        for host in hosts
        if is_fresh(host.use.cpu, ahead) and is_fresh(host.use.memory, ahead)
    ]
    rows = [series for _, vms in told for vm in vms for series in vm.use]
    rows += [series for _, vms in told if vms for series in together(vms)]
    peaks = iter(_peaks(rows, ahead))
    expected: dict[str, Expected] = {}
    counted: list[list[VMSeries]] = []
    for _, vms in told:
        for vm in vms:
            cpu, memory = next(peaks), next(peaks)
            if cpu is not None and memory is not None:
                day = day_of(vm.use.cpu, ahead.origin_s, STEP_S)
                expected[vm.name] = Expected(_whole(cpu.high), _whole(memory.high), day=day)
        counted.append(vms)
    predicted: dict[str, Predicted] = {}
    for (host, _), vms in zip(told, counted, strict=True):
        cpu, memory = (next(peaks), next(peaks)) if vms else (_NOTHING, _NOTHING)
        if cpu is None or memory is None:  # the sum cannot be told: each VM is added by itself
            cpu, memory, vms = _NOTHING, _NOTHING, []
        own = [beside(host, at) for at in (0, 1)]
        cpu, memory = cpu.plus(own[0]), memory.plus(own[1])
        predicted[host.name] = Predicted(
            _whole(cpu.high),
            _whole(memory.high),
            counted=tuple(sorted(vm.name for vm in vms)),
            cpu_range=(_whole(cpu.low), _whole(cpu.high)),
            memory_range=(_whole(memory.low), _whole(memory.high)),
            as_of_s=_as_of(host.use.cpu, ahead),
        )
    return predicted, expected


def expected_alike(
    vms: Mapping[str, Expected], classes: Mapping[str, Sequence[Path]]
) -> dict[Path, Expected]:
    """Return what is expected of a VM that is new, by class: what nine of ten like it use.

    A VM is of several classes, which all begin with its size: what VMs of another size use says
    nothing.
    """
    found: dict[Path, list[Expected]] = {}
    for name, expected in vms.items():
        for path in classes.get(name, ()):
            found.setdefault(path, []).append(expected)
    alike = {}
    for path, known in sorted(found.items()):
        if len(known) >= LEAST_ALIKE:
            amounts = np.array([(each.cpu_milli, each.memory_bytes) for each in known], np.float64)
            cpu, memory = np.quantile(amounts, 0.9, axis=0)
            day = day_alike([each.day for each in known])
            alike[path] = Expected(_whole(cpu), _whole(memory), day=day)
    return alike


def outlook_of(
    hosts: Mapping[str, Predicted],
    vms: Mapping[str, Expected],
    classes: Mapping[str, Sequence[Path]],
    ahead: Ahead,
) -> Outlook:
    """Return an outlook with the digest of all that it says: equal ones say the same."""
    alike = expected_alike(vms, classes)
    told = (
        _VERSION, ahead.until_s, ahead.quantile_milli,
        sorted(hosts.items()), sorted(vms.items()), sorted(alike.items()),
    )  # fmt: skip
    digest = f"sha256:{sha256(repr(told).encode()).hexdigest()}"
    basis = PredictionBasis(digest, ahead.quantile_milli, ahead.until_s)
    return Outlook(hosts, vms, alike, basis)


def with_lives(basis: PredictionBasis, lives: str) -> PredictionBasis:
    """Return the basis of an outlook together with the digest of how long VMs live."""
    if not lives or not basis.digest:
        return PredictionBasis(lives) if lives else basis
    digest = sha256(f"{basis.digest} {lives}".encode()).hexdigest()
    return PredictionBasis(f"sha256:{digest}", basis.quantile_milli, basis.until_s)


class _Peak(NamedTuple):
    """The bounds at the step whose upper one is the highest."""

    low: float
    high: float

    def plus(self, amount: float) -> "_Peak":
        return _Peak(self.low + amount, self.high + amount)


_NOTHING = _Peak(0.0, 0.0)


def _peaks(rows: Sequence[Floats], ahead: Ahead) -> list[_Peak | None]:
    """Return the peak of every series; None where some step ahead has no bound."""
    coverage = 2 * ahead.quantile_milli / 1000 - 1  # the upper bound is the quantile
    peaks: list[_Peak | None] = [None] * len(rows)
    alike: dict[int, list[int]] = {}
    for row, series in enumerate(rows):
        alike.setdefault(_unknown_days(series), []).append(row)
    for days, some in alike.items():
        known = np.stack([rows[row][days * DAY_STEPS :] for row in some])
        found = forecast_batch(known, ahead.steps, day_steps=DAY_STEPS, coverage=coverage)
        for row, low, high in zip(some, found.low, found.high, strict=True):
            if np.isfinite(high).all():
                step = int(high.argmax())
                peaks[row] = _Peak(float(low[step]), float(high[step]))
    return peaks


def _unknown_days(series: Floats) -> int:
    """Return how many whole days at the beginning are not known, and not needed to learn from.

    They would be filled with the first value, and the profile of a day be mostly of that.
    """
    first = int(np.isfinite(series).argmax())
    return max(0, min(first, len(series) - LEAST_DAYS * DAY_STEPS)) // DAY_STEPS


def together(vms: Sequence[VMSeries]) -> Use:
    """Return the sum of VMs' series; where one is not known it has its own mean."""
    summed = [np.zeros(POINTS), np.zeros(POINTS)]
    for vm in vms:
        for total, series in zip(summed, vm.use, strict=True):
            total += np.where(np.isfinite(series), series, np.nanmean(series))
    # Before any of them there was nothing to learn from.
    unknown = np.all([np.isnan(vm.use.cpu) for vm in vms], axis=0)
    for total in summed:
        total[unknown] = np.nan
    return Use(summed[0], summed[1])


def beside(host: HostSeries, at: int) -> float:
    """Return what a host used in the last hour that none of its VMs did."""
    own = host.use[at][-12:].copy()
    for vm in host.vms:
        own -= np.nan_to_num(vm.use[at][-12:])
    known = own[np.isfinite(own)]
    return max(0.0, float(np.median(known))) if len(known) else 0.0


def is_fresh(series: Floats, ahead: Ahead) -> bool:
    """Say whether a series has a value of the last steps."""
    return bool(np.isfinite(series[-ahead.fresh_steps :]).any())


def is_known(use: Use, ahead: Ahead) -> bool:
    """Say whether enough was read of a VM, and of late, to foresee it."""
    return all(
        is_fresh(series, ahead) and np.count_nonzero(np.isfinite(series)) >= LEAST_POINTS
        for series in use
    )


def _as_of(series: Floats, ahead: Ahead) -> int:
    """Return the end of the last step that has a value."""
    last = int(np.flatnonzero(np.isfinite(series))[-1])
    return ahead.origin_s - (len(series) - 1 - last) * STEP_S


def _whole(amount: float) -> int:
    return min(MAX_AMOUNT, int(np.ceil(amount)))
