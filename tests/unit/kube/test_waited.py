"""Waits end in time though the wall clock is set back."""

from roost.kube.base.elapsed import Waited
from roost.kube.base.moments import moment_text

KEY = ("s", "db")


class Set:
    """A clock that is set by hand."""

    wall, steady = 1_000_000, 50.0

    def wall_ms(self) -> int:
        """Return the time of day."""
        return self.wall

    def monotonic(self) -> float:
        """Return the time that only goes forward."""
        return self.steady

    async def sleep(self, seconds: float) -> None:
        """Take no time."""
        self.steady += seconds


def test_a_wait_goes_on_by_the_wall_clock_after_a_restart() -> None:
    clock = Set()
    began = moment_text(clock.wall - 7_000)
    assert Waited(clock).since(KEY, began) == 7.0
    assert Waited(clock).since(KEY, None) == 0.0


def test_a_clock_that_is_set_back_does_not_make_a_wait_longer() -> None:
    clock = Set()
    waited, began = Waited(clock), moment_text(clock.wall)
    assert waited.since(KEY, began) == 0.0
    clock.wall -= 900_000
    clock.steady += 3.0
    assert waited.since(KEY, began) == 3.0
    # Another wait begins anew, and so does one that was forgotten.
    assert waited.since(KEY, moment_text(clock.wall)) == 0.0
    clock.steady += 2.0
    waited.forget(KEY)
    assert waited.since(KEY, began) == 0.0
