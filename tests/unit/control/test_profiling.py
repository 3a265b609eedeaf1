"""What a profile says of a VM's resources together, on courses that are known."""

import numpy as np
import pytest

from roost.analysis.outlook import POINTS
from roost.control.learning.profiling import (
    DISK,
    OF_ONE,
    WAITING,
    WeekOfVM,
    profile_of,
)
from roost.ledger.schema.rows import VMRow


def week(**changes: object) -> WeekOfVM:
    """Return a week without disk and network, in which the cpu peaks one step of twenty."""
    rng = np.random.default_rng(1)
    figures = {name: np.zeros(POINTS) for name in OF_ONE}
    peaks = np.arange(POINTS) % 20 == 0
    cpu = np.where(peaks, 900.0, 100.0) + rng.normal(0, 5, POINTS)
    figures["cpu_milli.mean"] = figures["cpu_milli.p95"] = cpu
    figures["memory_bytes.mean"] = figures["memory_bytes.max"] = np.full(POINTS, 2.0**30)
    waits = np.where(peaks, 40.0, 1.0) + rng.normal(0, 0.1, POINTS)
    figures[WAITING["waiting for io"]] = waits
    return WeekOfVM(1_795_000_000_000, figures | changes)


def row() -> VMRow:
    return VMRow(
        id="vm-1",
        project="default",
        name="web",
        labels="",
        cpu_milli=1000,
        memory_bytes=2**31,
        disk_bytes=0,
        strategy="best_fit",
        priority=0,
        on_no_fit="reject",
        restart="here",
        desired="running",
        generation=1,
        created_ms=0,
    )


def test_what_waits_when_a_resource_peaks_is_told() -> None:
    found = profile_of(row(), week(), 1)
    assert [(each.peaking, each.resource) for each in found.bottlenecks] == [
        ("cpu", "waiting for io")
    ]
    assert found.bottlenecks[0].share > 0.9
    assert found.together == []


def test_resources_that_move_together_are_told() -> None:
    reads = np.roll(week().figures["cpu_milli.mean"], 3) * 1000  # a quarter of an hour later
    found = profile_of(row(), week(**{DISK[0]: reads}), 1)
    pair = found.together[0]
    assert (pair.first, pair.second, pair.lag_s) == ("cpu", "disk io", 900)
    assert pair.correlation == pytest.approx(1.0, abs=0.01)


def test_of_a_vm_whose_pressure_was_not_read_the_resource_that_peaks_with_it_is_told() -> None:
    unread = {figure: np.full(POINTS, np.nan) for figure in WAITING.values()}
    reads = week().figures["cpu_milli.mean"] * 1000
    found = profile_of(row(), week(**unread, **{DISK[0]: reads}), 1)
    assert ("cpu", "disk io") in [(each.peaking, each.resource) for each in found.bottlenecks]
