"""The kernels of the analysis give what their plain loops give, on any input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roost.analysis.kernels.cycles import fundamentals
from roost.analysis.kernels.flattening import flatten
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


_powers = st.floats(0.0, 1e3) | st.integers(0, 5).map(float)


@settings(deadline=None)
@given(arrays(np.float64, (1, 400), elements=_powers), st.floats(0.1, 0.9), st.floats(1, 30))
def test_find_lines_equals_its_twin(power: np.ndarray, share: float, least: float) -> None:
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
