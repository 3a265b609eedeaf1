"""Kernels against their twins; run with the compiler on, off, and with bounds checked."""

from random import Random

import numpy as np
import pytest

from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.fleet.groups import EMPTY, find_entry
from roost.model.hosts import HostSpec, Resource, Scope
from roost.placement.capacity import capacity
from roost.placement.engine import NO_FIT, Engine
from roost.placement.kernels import fixed_point, search
from roost.placement.kernels.fixed_point import RATIO_ONE
from roost.placement.strategies import STRATEGIES
from tests.builders import engine_on, host, request
from tests.naive import numbers
from tests.property.laws import (
    batch_equals_singles,
    engine_equals_twin,
    long_lived_engine_equals_twin,
)

pytestmark = pytest.mark.kernel


def plain(kernel):
    """Return a kernel as plain Python: inner kernels cannot be called from Python."""
    return getattr(kernel, "py_func", kernel)


@pytest.mark.parametrize(
    ("part", "whole"),
    [(0, 5), (-3, 5), (5, 0), (1, 3), (2**48, 2**48), (2**48 - 1, 2**48), (2**48, 1), (7, 2)],
)
def test_ratios_equal_exact_division(part: int, whole: int) -> None:
    assert plain(fixed_point.ratio)(part, whole) == numbers.ratio(part, whole)


def test_a_ratio_is_rounded_down() -> None:
    assert plain(fixed_point.ratio)(2, 3) == 2 * RATIO_ONE // 3


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**62 - 1])
def test_draws_equal_their_twin_and_stay_in_range(seed: int) -> None:
    drawn = [plain(search.draw)(seed, number, 10) for number in range(200)]
    assert drawn == [numbers.draw(seed, number, 10) for number in range(200)]
    assert set(drawn) == set(range(10))


def test_a_hash_table_finds_every_key_it_was_given() -> None:
    rng = Random(1)
    keys = np.full(256, EMPTY, np.int64)
    wanted = {rng.randrange(50) << 32 | rng.randrange(10**5) for _ in range(120)}
    for key in wanted:
        keys[find_entry(keys, key)] = key
    assert all(keys[find_entry(keys, key)] == key for key in wanted)


@pytest.mark.parametrize("seed", range(6))
def test_small_engines_equal_the_twin(seed: int) -> None:
    engine_equals_twin(seed, 1 + 2 * seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_small_long_lived_engine_equals_the_twin(seed: int) -> None:
    long_lived_engine_equals_twin(seed, 6, 25)


def test_a_small_batch_equals_single_calls() -> None:
    batch_equals_singles(3, 8, 12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_blocks_split_drop_and_stay_exact(strategy: str) -> None:
    rng = Random(strategy)
    fleet = Fleet()
    for number in range(200):
        cores = rng.choice((8, 16, 32, 64))
        fleet.register(
            HostSpec(
                f"h{number:03}", Resource(cores * 1000), Resource(cores * 4 * GIB), Resource(2**40)
            )
        )
    engine = Engine(fleet, strategy)
    numbers_placed = []
    for number in range(150):
        asked = request(f"vm{number}", rng.randrange(250, 16_000), rng.randrange(1, 64) << 30)
        found = engine.find(asked)
        scores = engine.scores(asked)
        assert (found is None) == bool((scores == NO_FIT).all())
        if found is not None and strategy in (
            "least_loaded",
            "best_fit",
            "worst_fit",
            "fewest_vms",
        ):
            assert found.host_number == int(np.argmin(scores))
        if found is not None:
            numbers_placed.append(engine.commit(asked, found))
        if numbers_placed and rng.random() < 0.3:
            fleet.remove(numbers_placed.pop(rng.randrange(len(numbers_placed))))


def test_losses_are_rehearsed_and_put_back() -> None:
    engine = engine_on(
        *(host(f"h{n}", 4000, zone="ab"[n % 2]) for n in range(4)), strategy="least_loaded"
    )
    before = engine.fleet.to_description()
    assert capacity(engine, request(cpu_milli=1000), Scope.HOST).count == 12
    assert capacity(engine, request(cpu_milli=1000), Scope.ZONE).count == 8
    assert engine.fleet.to_description() == before
