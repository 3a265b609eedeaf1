"""A fleet's week in one report, and how much of a host may be promised."""

import numpy as np
import pytest

from roost.analysis.fleetreport import (
    HOURS,
    HostWeek,
    VMWeek,
    busy_hours,
    look_at_hosts,
    look_at_vm,
    peak_sharing,
)
from roost.analysis.outlook import POINTS, STEP_S, Ahead, HostSeries, Use, VMSeries
from roost.analysis.oversubscription import DAY_STEPS, safe_levels
from roost.base.errors import InvalidRequest
from roost.base.units import GIB

ORIGIN_S = 20_000 * 86_400
STEPS = np.arange(POINTS)


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 10.0, POINTS)


def daily(peak_hour: float, seed: int = 0, mean: float = 500.0) -> np.ndarray:
    hours = STEPS * STEP_S / 3600
    return mean + 400.0 * np.cos(2 * np.pi * (hours - peak_hour) / 24) + noise(seed)


def use(cpu: np.ndarray) -> Use:
    return Use(np.maximum(cpu, 0.0), np.full(POINTS, float(GIB)))


def week(name: str, cpu: np.ndarray, *, asked: int = 4000, traffic: float = 1e6) -> VMWeek:
    read = use(cpu)
    return VMWeek(name, (asked, 4 * GIB), read, read, np.full(POINTS, traffic))


def host(name: str, vms: dict[str, np.ndarray], *, cores: int = 8, asked: int = 1000) -> HostWeek:
    series = tuple(VMSeries(each, use(cpu)) for each, cpu in vms.items())
    read = np.stack([each.use.cpu for each in series])
    own = use(np.where(np.isfinite(read).any(axis=0), np.nansum(read, axis=0), np.nan))
    by = dict.fromkeys(vms, (asked, 2 * GIB))
    held = HostSeries(name, Use(own.cpu, np.full(POINTS, float(len(vms) * GIB))), series)
    return HostWeek(name, (cores * 1000, 32 * GIB), (asked * len(vms), 0), held, by)


def test_a_vm_that_asks_for_too_much_is_advised_less() -> None:
    found = look_at_vm(week("web", daily(14)))
    assert found.sizes[0].advised == pytest.approx(1.2 * 920, rel=0.05)
    assert found.sizes[0].saving > 2500
    assert found.sizes[1].saving == pytest.approx(4 * GIB - 1.2 * GIB)
    assert found.zombie is None


def test_a_zombie_is_told_with_its_evidence_and_a_busy_line_is_none() -> None:
    still = look_at_vm(week("old", np.full(POINTS, 4.0) + noise(1) / 100, traffic=10.0)).zombie
    assert still is not None
    assert still.zombie
    assert still.days_seen == pytest.approx(7.0)
    loud = look_at_vm(week("proxy", np.full(POINTS, 4.0) + noise(1) / 100, traffic=1e6)).zombie
    assert loud is not None
    assert not loud.zombie


def test_vms_that_peak_together_are_one_group_and_others_are_not() -> None:
    vms = [look_at_vm(week(f"day-{n}", daily(14, n))) for n in range(4)]
    vms += [look_at_vm(week(f"night-{n}", daily(2, 10 + n, 450.0))) for n in range(3)]
    vms += [look_at_vm(week("new", np.full(POINTS, np.nan)))]
    groups = peak_sharing(vms, ORIGIN_S)
    assert [len(group.members) for group in groups] == [4, 3]
    assert {name.split("-")[0] for name in groups[0].members} == {"day"}
    assert [group.peak_hour for group in groups] == [14, 2]
    assert all(group.correlation > 0.95 for group in groups)


def test_a_host_whose_vms_grow_is_told_to_be_short_and_when() -> None:
    growing = 4000.0 + 3500.0 * STEPS / POINTS + noise(3)
    calm = host("calm", {"a": daily(14), "b": daily(2)})
    full = host("full", {"c": growing})
    told = look_at_hosts([calm, full], Ahead(ORIGIN_S, steps=2016), 0.01)
    assert not told[0].shortages
    (short,) = told[1].shortages
    assert short.resource == "cpu"
    assert ORIGIN_S <= short.first_s < ORIGIN_S + 7 * 86_400
    assert short.most > short.total == 8000


def test_what_nobody_has_read_of_a_vm_counts_as_all_that_it_asked_for() -> None:
    empty = {"a": daily(14), "new": np.full(POINTS, np.nan)}
    made = host("h", empty, cores=4)
    made.asked_by["new"] = (3900, GIB)
    (told,) = look_at_hosts([made], Ahead(ORIGIN_S, steps=288), 0.01)
    assert [each.resource for each in told.shortages] == ["cpu"]


def test_hours_are_shares_of_what_was_read() -> None:
    told = look_at_hosts(
        [host("a", {"x": np.full(POINTS, 4000.0)}), host("b", {"y": np.full(POINTS, np.nan)})],
        Ahead(ORIGIN_S, steps=12), 0.01,
    )  # fmt: skip
    cpu, memory = busy_hours(told)
    assert cpu.shape == (HOURS,)
    assert cpu == pytest.approx(np.full(HOURS, 0.5))
    assert np.isfinite(memory).all()


def test_a_level_is_higher_where_peaks_differ() -> None:
    same = (daily(14, 1) + daily(14, 2)) / 4000
    shared = (daily(14, 1) + daily(2, 2)) / 4000
    nothing = np.full(POINTS, np.nan)
    first, second, none = safe_levels(np.stack([same, shared, nothing]), 0.01)
    assert none is None
    assert first is not None
    assert second is not None
    assert second.level > 1.4 * first.level
    assert first.used == pytest.approx(0.46, rel=0.1)


def test_of_a_host_whose_next_day_has_no_bound_there_is_no_level() -> None:
    assert safe_levels(daily(14, 1)[None, :DAY_STEPS] / 4000, 0.01) == [None]


def test_a_level_holds_on_a_day_that_was_not_seen() -> None:
    rng = np.random.default_rng(5)
    days = np.stack([daily(h % 24, h) / 1000 for h in range(24)])
    longer = np.concatenate([days, days[:, :288] * rng.normal(1.0, 0.05, (24, 288))], axis=1)
    levels = safe_levels(longer[:, :POINTS], 0.02)
    over = [
        float(np.mean(longer[row, POINTS:] * level.level > 1.0))
        for row, level in enumerate(levels)
        if level is not None
    ]
    assert len(over) == 24
    assert np.mean(over) <= 0.02


def test_a_bound_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        safe_levels(np.zeros((1, POINTS)), 0.0)
