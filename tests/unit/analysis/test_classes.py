"""Classes of made series are told; advice says its risk; a zombie needs all the evidence."""

import numpy as np
import pytest

from benchmarks.analysis.labelled import DAY, KINDS, draw
from roost.analysis.classes import ORDER, classify, sizing, zombie

pytestmark = pytest.mark.kernel


def test_classes_of_unseen_series_are_told() -> None:
    values, kinds = draw(5_000, 12)
    told = classify(values, np.ones(len(values)), DAY)
    right = [KINDS[kind] == one.kind for kind, one in zip(kinds, told, strict=True)]
    assert np.mean(right) >= 0.9
    assert tuple(kind.value for kind in ORDER) == KINDS


def test_a_class_does_not_depend_on_the_unit() -> None:
    values, _ = draw(5_001, 3)
    told = classify(values, np.ones(len(values)), DAY)
    scaled = classify(values * 64_000, np.full(len(values), 64_000.0), DAY)
    assert [one.kind for one in told] == [one.kind for one in scaled]


def test_too_little_has_no_class() -> None:
    assert classify(np.ones((1, 20)), np.ones(1), DAY)[0].kind is None


def test_an_oversized_vm_is_advised_less_with_its_risk() -> None:
    use = np.random.default_rng(1).uniform(0, 10, 2016)
    advice = sizing(use, 100.0)
    assert advice.saving == pytest.approx(88, abs=1)
    assert advice.risk == 0.0
    bold = sizing(use, 100.0, quantile=0.5, headroom=0.0)
    assert bold.risk == pytest.approx(0.5, abs=0.01)


def test_a_vm_at_its_ceiling_is_advised_more() -> None:
    use = np.where(np.arange(2016) % 10 < 5, 100.0, 30.0)
    assert sizing(use, 100.0).advised >= 150.0


def test_no_advice_on_too_little() -> None:
    advice = sizing(np.ones(20), 100.0)
    assert not advice.enough
    assert advice.advised == 100.0


@pytest.mark.parametrize(
    ("cpu", "network", "is_zombie"),
    [(0.3, 10.0, True), (30.0, 10.0, False), (0.3, 1e6, False)],
    ids=["quiet", "works", "talks"],
)
def test_a_zombie_neither_works_nor_talks(cpu: float, network: float, is_zombie: bool) -> None:
    noise = np.random.default_rng(2).uniform(0.9, 1.1, 2017)
    assert zombie(cpu * noise, network * noise, 100.0, 300).zombie is is_zombie


def test_an_idle_vm_with_a_rhythm_or_a_short_past_is_no_zombie() -> None:
    steps = np.arange(2017)
    rhythm = 0.5 + 0.4 * np.sin(2 * np.pi * steps / 288)
    evidence = zombie(rhythm, np.ones(2017), 100.0, 300)
    assert (evidence.zombie, evidence.cycle_found) == (False, True)
    assert not zombie(np.full(500, 0.1), np.ones(500), 100.0, 300).zombie
    assert not zombie(np.empty(0), np.empty(0), 100.0, 300).zombie
