"""Kernels against their plain twins.

These tests also run with the compiler off and with bounds checks on. A kernel that only other
kernels call has no Python wrapper, so it is tried twice: as the plain function it was written as,
and called from a small compiled function.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from numba import njit

from roost.base.units import GIB, MAX_AMOUNT
from roost.fleet.assign import EMPTIEST, LOWEST, TIGHTEST
from roost.fleet.check import check
from roost.fleet.fleet import Fleet
from roost.fleet.groups import EMPTY
from roost.fleet.layout import (
    DEVICE_TOTAL,
    ENDS,
    EXTRA_COLUMNS,
    charge,
    refresh_ratio_columns,
    refresh_ratios,
)
from roost.model.groups import GroupRule, GroupSpec
from roost.model.resources import Demand, NumaMode
from roost.placement.kernels import (
    bounded,
    domain_bits,
    fit,
    fixed_point,
    keys,
    ranking,
    scores,
    search,
    tally,
)
from roost.placement.kernels.charging import Charger
from roost.placement.kernels.ranking import allocate, rebuild
from tests.builders import fleet_of, host
from tests.naive import assign, numbers
from tests.naive.engine import CELL_RULES
from tests.naive.fleet import World
from tests.property import generators
from tests.property.filing import is_sound, rankings_are_sound, small_blocks
from tests.property.laws import (
    batch_equals_singles,
    filters_agree,
    grown,
    long_lived_engine_equals_twin,
)
from tests.property.pair import step
from tests.property.test_fragmentation import (
    amount_world,
    gpu_world,
    numa_world,
    places_as_its_twin,
)

pytestmark = pytest.mark.kernel

RULES = {"lowest": LOWEST, "tightest": TIGHTEST, "emptiest": EMPTIEST}
MODES = tuple(NumaMode)


def plain(kernel: Callable) -> Callable:
    """Return the function a kernel was written as."""
    return getattr(kernel, "py_func", kernel)


@njit
def compiled_ratio(part: int, whole: int) -> int:
    return fixed_point.ratio(part, whole)


@njit
def compiled_draw(seed: int, number: int, count: int) -> int:
    return search.draw(seed, number, count)


@njit
def compiled_entry(table: np.ndarray, key: int) -> int:
    return tally.entry_of(table, key)


@njit
def compiled_in_sorted(values: np.ndarray, start: int, count: int, wanted: int) -> bool:
    return fit.in_sorted(values, start, count, wanted)


@njit
def compiled_devices(hosts, row, count, milli, memory, models):
    return fit.devices_for(hosts, row, count, milli, memory, models)


@njit
def compiled_cells(hosts, row, cpu, memory, mode, rule):
    return fit.cells_for(hosts, row, cpu, memory, mode, rule)


@njit
def compiled_domain_bit(scope: int, domain: int) -> int:
    return domain_bits.domain_bit(scope, domain)


both = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])


# Arithmetic


def amounts(rng: Random) -> int:
    """Return an amount of any magnitude, edges included."""
    bits = rng.randint(0, 48)
    return min(MAX_AMOUNT, max(-1, (1 << bits) + rng.choice((-1, 0, 1, rng.getrandbits(bits)))))


@both
def test_ratio_is_the_floor_of_the_exact_quotient(compiled: bool) -> None:
    ratio = compiled_ratio if compiled else plain(fixed_point.ratio)
    rng = Random(1)
    for _ in range(2000):
        part, whole = amounts(rng), amounts(rng)
        assert ratio(part, whole) == numbers.ratio(part, whole), (part, whole)


@both
@pytest.mark.parametrize("part", [0, -1, -MAX_AMOUNT, 1])
@pytest.mark.parametrize("whole", [0, -1])
def test_ratio_of_nothing_or_to_nothing_is_0(compiled: bool, part: int, whole: int) -> None:
    ratio = compiled_ratio if compiled else plain(fixed_point.ratio)
    assert ratio(part, whole) == 0


def test_a_weighted_sum_of_the_largest_ratios_stays_below_no_fit() -> None:
    most = numbers.ratio(MAX_AMOUNT, 1)
    assert 10 * most + 300 * numbers.SCORE_ONE < search.MOST
    assert keys.SCORE_ONE == numbers.SCORE_ONE


@both
def test_draw_equals_its_twin_and_stays_below_the_count(compiled: bool) -> None:
    draw = compiled_draw if compiled else plain(search.draw)
    rng = Random(2)
    for _ in range(1000):
        seed, number = rng.getrandbits(62), rng.getrandbits(20)
        count = rng.choice((1, 2, 16, 1000, 2**31 - 1))
        drawn = draw(seed, number, count)
        assert drawn == numbers.draw(seed, number, count)
        assert 0 <= drawn < count


@both
def test_a_group_entry_is_found_where_it_was_put(compiled: bool) -> None:
    find = compiled_entry if compiled else tally.find_entry
    rng = Random(3)
    table = np.full(256, EMPTY, np.int64)
    for _ in range(128):
        key = rng.randrange(50) << 32 | rng.randrange(40)
        at = find(table, key)
        assert at == numbers.find_entry(table.tolist(), key)
        table[at] = key
    assert len(set(table.tolist())) == np.count_nonzero(table != EMPTY) + 1


@both
def test_in_sorted_finds_what_is_in_the_slice(compiled: bool) -> None:
    found = compiled_in_sorted if compiled else plain(fit.in_sorted)
    rng = Random(4)
    for _ in range(200):
        values = np.array(sorted(rng.sample(range(60), rng.randint(0, 20))), np.int64)
        start = rng.randint(0, len(values))
        count = rng.randint(0, len(values) - start)
        wanted = rng.randrange(60)
        assert found(values, start, count, wanted) == (wanted in values[start : start + count])


# Devices and cells


def machines(seed: int, count: int) -> tuple[Fleet, World]:
    """Return hosts with devices and cells, some of them taken."""
    climate = generators.climate(seed, "all")
    fleet, world = Fleet(), World()
    rng = Random(seed)
    for index in range(count):
        spec = generators.host(climate, index)
        world.set_host(fleet.register(spec), spec)
    arrays = fleet.hosts.arrays
    for row in world.rows():
        for at in range(len(row.device_free)):
            row.device_free[at] = rng.choice((0, 250, 500, 667, 1000))
            arrays.device_free[row.number, at] = row.device_free[at]
        for at, cell in enumerate(row.cell_free):
            row.cell_free[at] = [rng.randint(0, cell[0]), rng.randint(0, cell[1])]
            arrays.cell_free[row.number, at] = row.cell_free[at]
    return fleet, world


def mask(positions: tuple[int, ...]) -> int:
    """Return positions as a bit mask."""
    return sum(2**at for at in positions)


@both
def test_the_devices_picked_are_the_tightest_that_suffice(compiled: bool) -> None:
    pick = compiled_devices if compiled else plain(fit.devices_for)
    picked = 0
    for seed in range(20):
        fleet, world = machines(seed, 12)
        rng = Random(seed)
        for row in world.rows():
            ask = generators.device_demand(rng)
            known = fleet.hosts.device_models
            models = sum(1 << known.number(model) for model in set(ask.models))
            found = pick(
                fleet.hosts.arrays, row.number, ask.count, ask.milli, ask.memory_bytes, models
            )
            expected = assign.pick_devices(row.spec.devices, row.device_free, ask)
            assert found == mask(expected), (row, ask)
            picked += found > 0
    assert picked > 20


@both
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mode", [NumaMode.ONE_CELL, NumaMode.SPLIT], ids=str)
def test_the_cells_picked_are_those_the_rule_prefers(
    compiled: bool, rule: str, mode: NumaMode
) -> None:
    pick = compiled_cells if compiled else plain(fit.cells_for)
    picked = 0
    for seed in range(10):
        fleet, world = machines(seed, 12)
        rng = Random(seed)
        for row in world.rows():
            asked = (rng.randint(1, 3000), rng.randint(1, 2**31))
            found = pick(fleet.hosts.arrays, row.number, *asked, MODES.index(mode), RULES[rule])
            expected = assign.pick_cells(row.spec.cells, row.cell_free, asked, mode, rule)
            assert found == mask(expected), (row, asked)
            picked += found > 0
    assert picked > 20


@pytest.mark.parametrize("cells", [(0,), (1, 3)])
def test_charge_takes_each_amount_once_and_gives_it_back(cells: tuple[int, ...]) -> None:
    fleet, world = machines(5, 20)
    row = next(row for row in world.rows() if len(row.cell_free) == 4 and row.device_free)
    arrays, at = fleet.hosts.arrays, row.number
    before = [array.copy() for array in arrays]
    demand = np.arange(1, 1 + len(fleet.hosts.resources)) * 7
    expected = np.array([3, -1, 500])
    charge(arrays, at, demand, expected, 250, 0b1, mask(cells), 1)
    assert (arrays.committed[at] - before[1][at]).tolist() == demand.tolist()
    assert arrays.device_free[at, 0] == row.device_free[0] - 250
    taken = before[7][at] - arrays.cell_free[at]
    assert taken.sum(axis=0).tolist() == [7, 14]
    assert taken[cells[0]].tolist() == ([7, 14] if len(cells) == 1 else [4, 7])
    assert (arrays.predicted[at] - before[11][at]).tolist() == [3, 14, 0]
    ends = len(demand) + ENDS
    assert arrays.headroom[at, ends] == 500
    charge(arrays, at, demand, expected, 250, 0b1, mask(cells), -1)
    arrays.headroom[at, ends] = before[0][at, ends]  # lowered by the caller
    assert all((array == old).all() for array, old in zip(arrays, before, strict=True))


def test_both_forms_of_the_ratio_columns_agree() -> None:
    fleet, world = machines(6, 20)
    headroom, width = fleet.hosts.arrays.headroom, len(fleet.hosts.resources)
    for row in world.rows():
        one, other = headroom.copy(), headroom.copy()
        one[row.number, :2] = other[row.number, :2] = (-5000, 2**30 * row.number)
        refresh_ratios(one, row.number, width)
        refresh_ratio_columns(other[row.number], width)
        assert (one == other).all()


def stir(fleet: Fleet, rng: Random) -> None:
    """Take VMs off their hosts, resize them and put others beside them; undo some of it."""
    for number in np.flatnonzero(fleet.vms.host[: fleet.vms.count] >= 0).tolist():
        mark = fleet.mark()
        beside = [int(c[number]) for c in (fleet.vms.host, fleet.vms.terms, fleet.vms.group_set)]
        demand = fleet.vms.demand[number].copy()
        fleet.apply(None, beside[0], demand, *beside[1:])
        fleet.resize(number, demand * rng.randint(0, 3))
        if rng.random() < 0.5:
            fleet.remove(number)
        if rng.random() < 0.3:
            fleet.undo(mark)
        else:
            fleet.keep(mark)


@pytest.mark.parametrize("focus", ["any", "groups", "devices", "cells"])
def test_a_lent_charge_does_what_the_fleet_does_by_itself(focus: str) -> None:
    for seed in range(4):
        fleet = grown(seed, 15, 40, focus).fleet
        plain_one, lent = fleet.snapshot(), fleet.snapshot()
        lent.charger = Charger(lent)
        assert plain_one.charger is None
        for each in (plain_one, lent):
            stir(each, Random(seed))
        assert plain_one.version == lent.version > fleet.version
        for name in ("hosts", "groups"):
            one, other = getattr(plain_one, name).arrays, getattr(lent, name).arrays
            for field, mine, yours in zip(one._fields, one, other, strict=True):
                assert np.array_equal(mine, yours), field


def test_a_lent_charge_follows_columns_that_were_replaced_by_longer_ones() -> None:
    fleet = fleet_of(host("a"))
    fleet.charger = Charger(fleet)
    before = (fleet.hosts.arrays, fleet.groups.arrays, fleet.vms.host)
    for number in range(40):
        fleet.register(host(f"h{number}"))
        groups = fleet.groups.set_number((GroupSpec(f"g{number}", GroupRule.SPREAD),))
        fleet.apply(f"vm{number}", number, fleet.vector(Demand(1000, GIB)), 0, groups)
    after = (fleet.hosts.arrays, fleet.groups.arrays, fleet.vms.host)
    assert not any(old is new for old, new in zip(before, after, strict=True))
    assert fleet.hosts.arrays.vm_count[:41].tolist() == [1] * 40 + [0]
    assert fleet.groups.arrays.members[:40].tolist() == [1] * 40
    check(fleet)


@both
def test_a_host_has_the_bits_of_its_own_rack_and_zone(compiled: bool) -> None:
    bit = compiled_domain_bit if compiled else plain(domain_bits.domain_bit)
    domain = np.array([[row, row % 50 - 1, row % 30 - 1] for row in range(200)])
    for (_, rack, zone), word in zip(
        domain.tolist(), domain_bits.domain_bits(domain).tolist(), strict=True
    ):
        bits = {bit(domain_bits.RACK_SCOPE, rack)} if rack >= 0 else set()
        bits |= {bit(domain_bits.ZONE_SCOPE, zone)} if zone >= 0 else set()
        assert word == domain_bits.SOMEWHERE + sum(bits), (rack, zone)
        assert 0 < word < 2**63


# Rankings


@pytest.mark.parametrize("kind", range(keys.KEY_KINDS))
@pytest.mark.parametrize("hosts", [0, 1, 70, 200])
def test_a_new_ranking_files_every_host_that_takes_vms(kind: int, hosts: int) -> None:
    climate = generators.climate(hosts + kind)
    fleet = Fleet()
    for index in range(hosts):
        fleet.register(generators.host(climate, index))
    arrays = fleet.hosts.arrays
    marks = np.array([[Random(row).getrandbits(62)] for row in range(fleet.hosts.row_capacity)])
    made = allocate(kind, fleet.hosts.row_capacity, arrays.headroom.shape[1], 1)
    rebuild(made, arrays, marks)
    is_sound(made, arrays, marks)
    assert made.meta[ranking.M_FREE_BLOCKS] > 1


@pytest.mark.parametrize("seed", range(6))
def test_rankings_stay_sound_through_any_changes(seed: int) -> None:
    pair = grown(seed, 40)
    engine, names = pair.engine, tuple(CELL_RULES)
    for number in range(60):
        step(pair, number)
        asked = generators.request(pair.climate, number)
        engine.find(replace(asked, strategy=names[number % len(names)]))
        rankings_are_sound(engine)


# Bounds


@njit
def compiled_least_score(
    demand: np.ndarray, devices: int, most_free: np.ndarray, first_key: int
) -> int:
    aim = bounded.aim_of(scores.SCORE_DOT, demand, devices)
    return bounded.least_score(aim, most_free, first_key)


@njit
def compiled_alignment(free: np.ndarray, demand: np.ndarray, devices: int) -> int:
    return scores.alignment(free, demand, devices)


def test_no_host_of_a_block_scores_below_the_least_of_its_bounds() -> None:
    rng = Random(5)
    for _ in range(300):
        hosts = rng.randint(1, 6)
        free = np.zeros((hosts, 3 + EXTRA_COLUMNS), np.int64)
        free[:, :3] = [[amounts(rng) for _ in range(3)] for _ in range(hosts)]
        free[:, 3 + DEVICE_TOTAL] = [rng.randint(0, 8_000) for _ in range(hosts)]
        demand = np.array([max(0, amounts(rng)) for _ in range(3)])
        devices = rng.choice((0, 300, 1_000, 4_000))
        key = min(
            -numbers.ratio(cpu, keys.REFERENCE_CPU) - numbers.ratio(memory, keys.REFERENCE_MEMORY)
            for cpu, memory, *_ in free.tolist()
        )
        found = min(-compiled_alignment(row, demand, devices) for row in free)
        least = compiled_least_score(demand, devices, free.max(axis=0), key)
        assert least <= found, (free, demand, devices)


@pytest.mark.parametrize("world", [gpu_world, numa_world, amount_world])
def test_worth_lost_within_a_limit_equals_the_twin(world: Callable) -> None:
    for seed in range(8):
        places_as_its_twin(seed, world)


# The whole engine, small enough for the compiler to be off


@pytest.mark.parametrize("focus", generators.FOCI)
def test_the_engine_equals_the_twin_with_or_without_the_compiler(focus: str) -> None:
    for seed in range(3):
        long_lived_engine_equals_twin(seed, hosts=8, steps=80, focus=focus, every=10)


def test_a_batch_equals_single_calls_with_or_without_the_compiler() -> None:
    for seed in range(10):
        batch_equals_singles(seed, hosts=8, count=20)


def test_judging_all_hosts_equals_all_filters_with_or_without_the_compiler() -> None:
    for seed in range(10):
        filters_agree(seed, hosts=10)


@pytest.mark.skipif(hasattr(fixed_point.ratio, "py_func"), reason="the sizes are compiled in")
@pytest.mark.parametrize("focus", generators.FOCI)
def test_blocks_of_four_hosts_in_runs_of_two_equal_the_twin(
    focus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch)
    for seed in range(3):
        long_lived_engine_equals_twin(seed, hosts=60, steps=80, focus=focus, every=40)
