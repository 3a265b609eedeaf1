"""The curve of pressure: it never falls, never jumps, and keeps the reference's points."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.kube.metering.pressure import pressure

#: Anywhere, and around the points at which one part of the curve ends and the next begins.
demands = st.one_of(
    st.floats(min_value=-1.0, max_value=5.0),
    st.builds(
        lambda point, by: point + by,
        st.sampled_from([0.0, 0.7, 0.9, 1.0, 1.4]),
        st.sampled_from([-1e-3, -1e-9, 0.0, 1e-9, 0.01]),
    ),
)
steps = st.sampled_from([1e-9, 1e-6, 1e-3, 0.01, 0.05])


@given(demands, steps)
def test_more_demand_is_never_less_pressure(demand: float, step: float) -> None:
    assert pressure(demand) <= pressure(demand + step)


def test_the_whole_curve_rises_and_never_jumps() -> None:
    fine = 10_000
    curve = [pressure(at / fine) for at in range(2 * fine)]
    rises = [high - low for low, high in pairwise(curve)]
    assert min(rises) >= 0.0
    # The steepest part is the end of the parabola: 12 times the step.
    assert max(rises) <= 12.5 / fine


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_pressure_is_a_share_of_time(demand: float) -> None:
    assert 0.0 <= pressure(demand) <= 1.0


@given(demands, steps)
def test_a_small_step_in_is_a_small_step_out(demand: float, step: float) -> None:
    assert abs(pressure(demand + step) - pressure(demand)) <= 12.5 * step + 1e-12


@pytest.mark.parametrize(
    ("demand", "expected"),
    [(0, 0), (0.35, 0.0245), (0.7, 0.049), (0.9, 0.2), (0.95, 0.35), (1, 0.8), (1.2, 0.9), (9, 1)],
)
def test_points_of_the_table(demand: float, expected: float) -> None:
    assert pressure(demand) == pytest.approx(expected)
