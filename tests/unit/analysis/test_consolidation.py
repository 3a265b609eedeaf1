"""The benchmark's consolidation: what it counts, that it knows no future, and keeps to rules."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.analysis.consolidation import Consolidation, Habits
from benchmarks.analysis.planetlab import (
    CORE_MIPS,
    HOST_MEMORY_MB,
    HOSTS,
    STEP_S,
    VM_MEMORY_MB,
    VM_MIPS,
    Day,
    Ints,
    Tally,
    host_mips,
    host_type,
)

STEPS = 48


def made(seed: int, vms: int = 40) -> Day:
    rng = np.random.default_rng(seed)
    kind = np.arange(vms) * 4 // vms
    share = np.clip(rng.beta(0.6, 4.0, vms) + rng.normal(0, 0.1, (STEPS, vms)), 0.0, 1.0)
    return Day(f"made {seed}", VM_MIPS[kind], VM_MEMORY_MB[kind], share * VM_MIPS[kind])


class Watched(Consolidation):
    """Remembers where VMs were at each step."""

    def __init__(self, day: Day, *, memory_held: bool = False) -> None:
        habits = Habits(empty_at=(1, 6, 24))
        super().__init__(day, habits, memory_held=memory_held)
        self.places: list[Ints] = []

    def _adapt(self, step: int) -> None:
        super()._adapt(step)
        self.places.append(self.host_of.copy())


def run(day: Day, kind: type[Watched] = Watched, **given: bool) -> Watched:
    found = kind(day, **given)
    found.run()
    return found


def nothing_of_the_future_is_known(kind: type[Watched]) -> None:
    day, cut = made(1), 3
    later = day.used.copy()
    later[cut:] = made(2).used[cut:]
    first, second = run(day, kind), run(replace(day, used=later), kind)
    for one, other in zip(first.places[:cut], second.places[:cut], strict=True):
        assert (one == other).all()  # decided at the beginning of steps 1 to `cut`
    assert any((one != other).any() for one, other in zip(first.places, second.places, strict=True))


def test_nothing_of_the_future_is_known() -> None:
    nothing_of_the_future_is_known(Watched)


def test_a_loop_that_reads_the_step_to_come_is_found_out() -> None:
    class Seer(Watched):
        def _expect(self, seen):  # type: ignore[no-untyped-def]
            super()._expect(self.day.used[: len(seen) + 6])

    with pytest.raises(AssertionError):
        nothing_of_the_future_is_known(Seer)


@pytest.mark.parametrize("seed", range(3))
def test_vms_are_where_their_cores_and_memory_are(seed: int) -> None:
    day = made(seed)
    found = run(day, memory_held=True)
    for places in found.places:
        held = np.bincount(places, weights=day.memory_mb, minlength=HOSTS)
        assert held.max() <= HOST_MEMORY_MB
        cores = np.array([CORE_MIPS[host_type(host)] for host in places.tolist()])
        assert (cores >= day.asked).all()


def test_hosts_are_emptied_and_every_move_is_counted() -> None:
    found = run(made(3))
    first = Consolidation(made(3), Habits(empty_at=()), memory_held=False)
    first.run()
    assert len(np.unique(found.host_of)) < len(np.unique(first.host_of))
    later = sum(int((a != b).sum()) for a, b in pairwise(found.places))
    assert later <= found.tally.migrations <= later + len(found.host_of)


def test_a_day_at_full_power_costs_what_the_paper_says() -> None:
    mips = np.array([float(host_mips(host)) for host in range(HOSTS)])
    day = Day("full", mips.astype(np.int64), np.ones(HOSTS, np.int64), np.tile(mips, (288, 1)))
    tally = Tally(day)
    for step in range(288):
        tally.stepped(np.arange(HOSTS), step)
    cost = tally.cost()
    assert cost.energy_kwh == pytest.approx(2419.2)
    assert (cost.slatah, cost.pdm, cost.migrations) == (0.0, 0.0, 0)


def test_overload_and_moves_are_counted_as_shares() -> None:
    used = np.array([[3000.0, 1000.0], [1000.0, 1000.0]])
    day = Day("two", np.array([2500, 2500]), np.array([625, 625]), used)
    tally = Tally(day)
    tally.stepped(np.array([0, 0]), 0)  # 4,000 of 3,720
    tally.moved(np.array([1]), 1)
    tally.stepped(np.array([0, 2]), 1)
    cost = tally.cost()
    assert cost.migrations == 1
    assert cost.slatah == pytest.approx(1 / 3)
    assert cost.pdm == pytest.approx(0.1 * 1000 * 10 / (6000 * STEP_S))
