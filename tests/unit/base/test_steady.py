"""The wall clock is believed while it advances as the monotonic clock does."""

from roost.base.steady import CONFIRM_S, TOLERANCE_S, SteadyWall
from roost.testing.clock import HandClock


def test_a_jump_is_believed_once_it_has_been_steady() -> None:
    clock = HandClock()
    steady = SteadyWall(clock)
    for ahead in (86_400.0, -86_400.0):
        clock.ahead_s += ahead
        assert not steady.is_steady()
        assert f"{ahead:+.0f} s" in steady.trouble()
        clock.move(CONFIRM_S - 1)
        assert not steady.is_steady()
        clock.move(2)
        assert steady.is_steady()
        assert not steady.trouble()


def test_another_jump_is_waited_for_anew_and_the_way_back_is_not() -> None:
    clock = HandClock()
    steady = SteadyWall(clock)
    for ahead in (1000.0, 2000.0, 3000.0):
        clock.ahead_s = ahead
        assert not steady.is_steady()
        clock.move(CONFIRM_S - 1)
        assert not steady.is_steady()
    clock.ahead_s = 0.0
    assert steady.is_steady()


def test_a_clock_that_drifts_or_is_not_looked_at_for_long_is_steady() -> None:
    clock = HandClock()
    steady = SteadyWall(clock)
    for _ in range(100):
        clock.move(86_400)
        clock.ahead_s += TOLERANCE_S / 2
        assert steady.is_steady()


def test_while_it_is_not_believed_the_time_may_be_either() -> None:
    clock = HandClock()
    steady = SteadyWall(clock)
    before = clock.wall_ms()
    assert steady.moments_ms() == (before,)
    clock.ahead_s = 86_400.0
    clock.move(60)
    assert steady.moments_ms() == (before + 86_460_000, before + 60_000)
    clock.move(CONFIRM_S)
    assert steady.moments_ms() == (clock.wall_ms(),)
