"""The kernels of the analysis give what their plain loops give, on any input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roost.analysis.kernels import backtest
from roost.analysis.kernels.cycles import fundamentals
from roost.analysis.kernels.flattening import flatten
from roost.analysis.kernels.folding import PHASES, fold
from roost.analysis.kernels.lines import find_lines
from roost.analysis.kernels.refining import MOST_FITTED, UNKNOWNS, refine
from tests.naive import analysis as naive

pytestmark = pytest.mark.kernel

_amounts = st.floats(-1e6, 1e6) | st.just(float("nan"))


@settings(deadline=None)
@given(arrays(np.float64, (2, 40), elements=_amounts), st.integers(1, 9))
def test_flatten_equals_its_twin(values: np.ndarray, size: int) -> None:
    blocks = -(-40 // size)
    flat, (coarse, held) = np.zeros((2, 40)), np.zeros((2, 2, blocks))
    flatten(values, np.ones(40), flat, coarse, held, size)
    for row in range(2):
        expected = naive.flatten(values[row].tolist(), size)
        for got, wanted in zip((flat[row], coarse[row], held[row]), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.9), st.floats(1, 30))
def test_find_lines_equals_its_twin(seed: int, share: float, least: float) -> None:
    rng = np.random.default_rng(seed)
    power = rng.exponential(1.0, (1, 400)) * np.where(rng.random(400) < 0.05, 50.0, 1.0)
    power = np.round(power, int(rng.integers(0, 4)))  # ties and zeros among them
    edges = np.array([3, 20, 60, 400])
    found = np.zeros((1, 24, 3))
    ratios = np.array([least, 1.5 * least])
    find_lines(power, edges, share, ratios, 4.0, np.zeros(400), np.zeros(4), found)
    got = [tuple(line) for line in found[0].tolist() if line[0] > 0]
    wanted = naive.find_lines(
        power[0].tolist(), edges.tolist(), share, (least, 1.5 * least), 4.0, 24
    )
    np.testing.assert_allclose(np.array(got), np.array(wanted), rtol=1e-9)


_lines = st.lists(
    st.tuples(
        st.floats(1.5, 40.0) | st.integers(2, 40).map(float), st.floats(0.1, 10), st.floats(1, 90)
    ),
    max_size=12,
)


@settings(deadline=None)
@given(_lines, st.integers(50, 90))
def test_fundamentals_equal_their_twin(lines: list[naive.Line], points: int) -> None:
    lines.sort(key=lambda line: (-line[1], line))
    packed = np.zeros((1, 24, 3))
    packed[0, : len(lines)] = np.array(lines).reshape(-1, 3)
    kept = np.zeros((1, 4), np.int64)
    fundamentals(packed, points, 20.0, 0.04, kept, np.zeros(24, np.int64))
    got = [lines[number] for number in kept[0] if number >= 0]
    wanted = [lines[n] for n in naive.fundamentals(lines, points, 20.0, 0.04, 4)]
    assert got == wanted


@settings(deadline=None, max_examples=50)
@given(st.floats(2.3, 20.0), st.floats(-0.3, 0.3), st.floats(0, 6.28), st.floats(-2, 2))
def test_refine_finds_the_frequency_that_least_squares_does(
    cycles: float, off: float, phase: float, trend: float
) -> None:
    place = np.arange(256) / 256
    coarse = (np.sin(2 * np.pi * cycles * place + phase) + trend * place + 1.0)[None]
    lines = np.zeros((1, 24, 3))
    lines[0, 0] = cycles + off, 1.0, 50.0
    basis, matrix = np.zeros((UNKNOWNS, 256)), np.zeros((UNKNOWNS, UNKNOWNS))
    right = np.zeros(UNKNOWNS + 2 * MOST_FITTED)
    refine(coarse, np.ones((1, 256)), lines, 40.0, 6, basis, matrix, right)
    assert lines[0, 0, 0] == pytest.approx(cycles, abs=0.01)


@settings(deadline=None, max_examples=50)
@given(arrays(np.float64, (1, 90), elements=_amounts), st.floats(2.0, 40.0), st.integers(41, 90))
def test_fold_equals_its_twin(values: np.ndarray, period: float, upto: int) -> None:
    profile, skill = np.zeros((1, PHASES)), np.zeros(1)
    rows, periods, ends = np.zeros(1, np.int64), np.array([period]), np.array([upto])
    fold(values, rows, periods, ends, profile, np.zeros(PHASES), skill)
    wanted, wanted_skill = naive.fold(values[0].tolist(), period, upto, PHASES)
    np.testing.assert_allclose(profile[0], wanted, atol=1e-6)
    np.testing.assert_allclose(skill[0], wanted_skill, rtol=1e-6, atol=1e-6)


def work_for(origins: int, steps: int) -> backtest.Work:
    return backtest.Work(
        np.zeros(1024), np.zeros(11), np.zeros((2, 144)), np.zeros(144),
        np.zeros((backtest.MODELS, origins, steps)), np.zeros(4), np.zeros(1024),
    )  # fmt: skip


_past = arrays(np.float64, (1, 60), elements=st.floats(0, 1e4) | st.integers(0, 3).map(float))
_two = st.tuples(st.floats(2.0, 30.0) | st.just(0.0), st.floats(2.0, 30.0) | st.just(0.0))


@settings(deadline=None, max_examples=60)
@given(_past, _two)
def test_the_back_test_chooses_as_its_twin(values: np.ndarray, two: tuple[float, float]) -> None:
    periods = np.array([two])
    origins, steps = np.array([30, 36, 41, 46, 52]), np.array([1, 3, 12])
    plan = backtest.Plan(origins, steps, np.array([0, 0, 1]))
    fitted = backtest.Fitted(np.zeros((1, 2), np.int64), *(np.zeros((1, 2)) for _ in range(3)))
    known = values >= 1.0
    backtest.backtest(values, known, periods, plan, np.full(2, 0.4), work_for(5, 3), fitted)
    for bucket, some in enumerate(([1, 3], [12])):
        errors: dict[int, list[float]] = {}
        tried: dict[int, set[int]] = {}
        for origin in origins.tolist():
            told = naive.Told(values[0, :origin].tolist(), two, 30)
            for ahead in some:
                at = origin + ahead - 1
                for model in range(backtest.MODELS if two[0] >= 2 else 8):
                    if at < 60 and known[0, at]:
                        error = values[0, at] - told.say(model, ahead)
                        if np.isfinite(error):
                            errors.setdefault(model, []).append(error)
                            tried.setdefault(model, set()).add(origin)
        means = {m: float(np.mean(np.abs(e))) for m, e in errors.items()}
        if not means:
            assert np.isnan(fitted.error[0, bucket])
            continue
        assert fitted.error[0, bucket] == pytest.approx(min(means.values()), rel=1e-6, abs=1e-6)
        model = int(fitted.model[0, bucket])
        if len(tried[model]) < 4:
            assert np.isnan([fitted.low[0, bucket], fitted.high[0, bucket]]).all()
            continue
        chosen = sorted(errors[model])
        low, high = int(np.floor((len(chosen) + 1) * 0.3)), int(np.ceil((len(chosen) + 1) * 0.7))
        quantiles = chosen[max(low - 1, 0)], chosen[min(high - 1, len(chosen) - 1)]
        got = fitted.low[0, bucket], fitted.high[0, bucket]
        assert got == pytest.approx(quantiles, rel=1e-6, abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(_past, _two, st.integers(0, backtest.MODELS - 1))
def test_forecast_and_advance_say_what_the_model_says(
    values: np.ndarray, two: tuple[float, float], model: int
) -> None:
    periods = np.array([two])
    model = model if two[0] >= 2 else model % 8
    fitted = backtest.Fitted(np.full((1, 1), model), *(np.ones((1, 1)) for _ in range(3)))
    kept = np.zeros((1, 2, 144)), np.zeros((1, 4))
    work, told = work_for(1, 1), np.zeros((3, 1, 20))
    backtest.settle(values, 50, periods, work, *kept)
    backtest.forecast(values, 50, periods, np.zeros(20, np.int64), fitted, work, kept, told)
    twin = naive.Told(values[0, :50].tolist(), two, 50)
    spare = twin.median(24, 1)
    wanted = [twin.say(model, ahead) for ahead in range(1, 21)]
    wanted = [one if np.isfinite(one) else spare for one in wanted]
    np.testing.assert_allclose(told[0, 0], wanted, rtol=1e-6, atol=1e-6)
    following = np.array([[np.nan, np.nan, np.nan, 1.0]])
    sample = values[:, 50].copy()
    backtest.advance(values, 50, sample, periods, fitted, work, kept, following)
    later = naive.Told(values[0, :51].tolist(), two, 51)
    later.profiles = twin.profiles
    said = later.say(model, 1)
    said = said if np.isfinite(said) else later.median(24, 1)
    assert following[0, 0] == pytest.approx(said, rel=1e-6, abs=1e-6)
