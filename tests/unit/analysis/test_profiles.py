"""Patterns are told for what they are, with times of peaks, and nothing is told of too little."""

import numpy as np
import pytest

from roost.analysis.profiles import PatternKind, WorkloadProfile, confidence, profile_batch

pytestmark = pytest.mark.kernel
_TIME = np.arange(2016.0)
_NOISE = np.random.default_rng(9).standard_normal(2016)


def profile_of(values: np.ndarray) -> WorkloadProfile:
    return profile_batch(values[None], 3_000_000, 300)[0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (50 + 0.5 * _NOISE, PatternKind.STEADY),
        (20 + 0.02 * _TIME + _NOISE, PatternKind.GROWING),
        (2 + np.abs(_NOISE) * 0.1 + 80 * (np.abs(_NOISE) > 2.3), PatternKind.BURSTY),
        (20 + _NOISE + 15 * (_TIME > 1200), PatternKind.LEVEL_SHIFT),
        (40 + _NOISE * np.where(_TIME > 1008, 25, 0.5), PatternKind.CHANGE_POINT),
    ],
    ids=lambda value: value.value if isinstance(value, PatternKind) else "",
)
def test_a_workload_has_its_pattern(values: np.ndarray, kind: PatternKind) -> None:
    found = profile_of(values).of_kind(kind)
    assert found
    assert 0.0 <= found[0].confidence <= 1.0


def test_a_day_has_its_peak_and_trough_at_their_times() -> None:
    pattern = profile_of(20 + 10 * np.sin(2 * np.pi * _TIME / 288) + _NOISE).of_kind(
        PatternKind.CYCLIC
    )[0]
    assert pattern.cycle_s == pytest.approx(86_400, rel=0.01)
    assert (pattern.peaks_s[0] - 3_000_000) / 300 % 288 == pytest.approx(72, abs=20)
    assert (pattern.troughs_s[0] - 3_000_000) / 300 % 288 == pytest.approx(216, abs=20)
    assert 3_000_000 <= pattern.peaks_s[0] < 3_000_000 + 2016 * 300


def test_the_moment_of_a_shift_is_told() -> None:
    shift = profile_of(20 + _NOISE + 15 * (_TIME > 1200)).of_kind(PatternKind.LEVEL_SHIFT)[0]
    assert (shift.peaks_s[0] - 3_000_000) / 300 == pytest.approx(1200, abs=60)


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6, 0.65, 0.7, 0.75])
@pytest.mark.parametrize("quiet", [True, False], ids=["to quiet", "to loud"])
def test_the_moment_of_a_change_of_variation_is_told(share: float, quiet: bool) -> None:
    moment = int((1 - share if quiet else share) * 2016)
    size = np.where((moment > _TIME) == quiet, 50, 0.5)
    values = 100 + size * np.random.default_rng(moment).standard_normal((40, 2016))
    told = [profile.of_kind(PatternKind.CHANGE_POINT) for profile in profile_batch(values, 0, 300)]
    apart = [abs(change.peaks_s[0] / 300 - moment) for each in told for change in each]
    assert len(apart) >= 20
    assert max(apart) <= 2 * 42


@pytest.mark.parametrize("points", [2016, 2000, 700])
@pytest.mark.parametrize("gap", [(0.2, 0.27), (0.55, 0.6), (0.6, 0.67), (0.8, 0.87)], ids=str)
def test_a_shift_of_the_level_is_told_beside_a_gap(gap: tuple[float, float], points: int) -> None:
    values = 20 + _NOISE[:points] + 15 * (np.arange(points) >= 0.6 * points)
    known = profile_of(values).of_kind(PatternKind.LEVEL_SHIFT)[0]
    values[int(gap[0] * points) : int(gap[1] * points)] = np.nan
    shift = profile_of(values).of_kind(PatternKind.LEVEL_SHIFT)[0]
    assert shift.evidence == pytest.approx(known.evidence, rel=0.2)
    moment = gap[1] if gap[0] == 0.6 else 0.6  # of a gap that begins with it, its end
    assert (shift.peaks_s[0] - 3_000_000) / 300 == pytest.approx(moment * points, abs=points / 48)


def test_stability_is_one_of_the_same_and_low_after_a_change() -> None:
    assert profile_of(np.full(2016, 5.0)).stability == 1.0
    assert profile_of(20 + _NOISE).stability > 0.9
    assert profile_of(20 + _NOISE + 15 * (_TIME > 1008)).stability < 0.5


@pytest.mark.parametrize("points", [0, 1, 5, 23])
def test_too_little_has_no_pattern_and_no_stability(points: int) -> None:
    profile = profile_of(np.arange(points, dtype=np.float64))
    assert profile.patterns == ()
    assert profile.stability == 0.0


def test_gaps_only_are_no_pattern() -> None:
    assert profile_of(np.full(2016, np.nan)).patterns == ()


def test_more_evidence_is_never_less_confidence() -> None:
    for kind in PatternKind:
        told = [confidence(kind.value, evidence) for evidence in np.linspace(-5, 30, 200)]
        assert told == sorted(told)
        assert 0.0 < told[-1] < 1.0
    assert confidence("cyclic", float("nan")) == 0.0
