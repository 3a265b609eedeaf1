"""A VM that was moved is left in peace, longer each time, never for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.kube.moving.cooldown import CoolDown, Past, cools_until

DAY = 86_400.0
TIMES = st.lists(st.floats(0.0, 3 * DAY), min_size=1, max_size=12)
HISTORY = st.lists(st.builds(Past, st.floats(0.0, 3 * DAY), st.booleans()), max_size=12)


def moves(*ended_s: float) -> list[Past]:
    return [Past(each, succeeded=True) for each in ended_s]


@pytest.mark.parametrize(
    ("many", "minutes"), [(1, 15), (2, 30), (3, 60), (4, 120), (5, 240), (6, 360), (10, 360)]
)
def test_it_doubles_up_to_six_hours(many: int, minutes: int) -> None:
    history = moves(*(float(number) for number in range(many)))
    assert cools_until(history) == many - 1 + minutes * 60


def test_nothing_to_cool_down_from() -> None:
    assert cools_until([]) is None


def test_what_is_older_than_a_day_is_forgotten() -> None:
    assert cools_until(moves(0.0, 10.0, DAY + 5.0)) == DAY + 5.0 + 30 * 60


def test_a_failure_is_tried_again_sooner() -> None:
    failed = [Past(100.0, succeeded=False), Past(200.0, succeeded=False)]
    assert cools_until(failed) == 200.0 + 40.0
    # A move since then makes them forgotten.
    assert cools_until([*failed, *moves(300.0)]) == 300.0 + 900.0


@given(HISTORY)
def test_it_lies_within_bounds(history: list[Past]) -> None:
    until, settings = cools_until(history), CoolDown()
    if until is None:
        assert not history
        return
    last = max(past.ended_s for past in history)
    assert until <= last + settings.most_s
    assert until >= last + (settings.retry_s if len(history) == 1 else 0)


@given(TIMES)
def test_one_move_more_never_ends_it_sooner(times: list[float]) -> None:
    times = sorted(times)
    until = cools_until(moves(*times))
    assert until is not None
    assert until >= (cools_until(moves(*times[:-1])) or 0.0) or times[-1] - times[0] >= DAY


@given(HISTORY, st.randoms())
def test_the_order_of_the_history_does_not_matter(history: list[Past], random: object) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert cools_until(shuffled) == cools_until(history)
