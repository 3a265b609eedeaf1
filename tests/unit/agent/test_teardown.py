"""The guard against mass destruction: mistakes are slowed down, what was meant comes to pass."""

from roost.agent.teardown import WINDOW_S, TeardownGuard


def names(number: int) -> set[str]:
    return {f"vm-{at:02d}" for at in range(number)}


def test_a_few_deletes_go_at_once() -> None:
    assert TeardownGuard().judge(names(3), names(4), 0.0) == names(3)


def test_a_list_that_would_empty_a_host_takes_a_quarter_at_most() -> None:
    guard = TeardownGuard()
    granted = guard.judge(names(40), names(40), 0.0)
    assert len(granted) == 10
    assert guard.judge(names(40), names(40), WINDOW_S - 0.1) == granted


def test_every_delete_that_was_meant_comes_to_pass() -> None:
    guard = TeardownGuard()
    left, now = names(40), 0.0
    for _ in range(20):
        left -= guard.judge(left, left, now)
        now += WINDOW_S
    assert not left


def test_a_setting_raises_the_limit() -> None:
    assert TeardownGuard(max_destroy=40).judge(names(40), names(40), 0.0) == names(40)
