"""How soon a VM that crashes is started again."""

from roost.agent.crashes import FORGET_S, WAITS, Crashes
from roost.agent.drivers.base import CRASHED, LocalVM

RUNS = LocalVM("vm-1", "web", "running")
DEAD = LocalVM("vm-1", "web", "stopped", reason=CRASHED)


def crash(crashes: Crashes, now: float) -> None:
    crashes.see("vm-1", RUNS, DEAD, now)
    crashes.see("vm-1", DEAD, RUNS, now + 0.1)


def test_the_first_crash_is_answered_at_once() -> None:
    crashes = Crashes()
    crash(crashes, 100.0)
    assert crashes.wait("vm-1", 100.2) == ""


def test_further_crashes_wait_twice_as_long_each_up_to_a_limit() -> None:
    crashes, now, waits = Crashes(), 0.0, []
    for _ in range(9):
        crash(crashes, now)
        pause = next(s for s in range(1000) if not crashes.wait("vm-1", now + s))
        waits.append(pause)
        now += pause
    assert waits[:6] == [0, *(WAITS.first_s * 2**n for n in range(5))]
    assert max(waits) <= WAITS.most_s


def test_a_vm_that_ran_for_long_starts_with_a_clean_slate() -> None:
    crashes = Crashes()
    for at in (0.0, 20.0, 60.0):
        crash(crashes, at)
    assert "crashed 3 times" in crashes.wait("vm-1", 60.0)
    crash(crashes, 60.0 + FORGET_S)
    assert crashes.wait("vm-1", 60.0 + FORGET_S) == ""


def test_a_stop_that_was_asked_for_is_no_crash() -> None:
    crashes = Crashes()
    for at in range(5):
        crashes.see("vm-1", RUNS, LocalVM("vm-1", "web", "stopped"), float(at))
    assert crashes.wait("vm-1", 5.0) == ""
