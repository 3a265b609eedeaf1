"""Copies by the clock: they go on over a restart, share the network, and are told now and then."""

from typing import Any

import msgspec
import pytest

from roost.kube.base.moments import moment_text
from roost.kube.base.objects import Key
from roost.kube.moving.livecopies import LiveCopies
from roost.kube.moving.migrationsettings import MigrationSettings
from roost.kube.moving.precopy import Stage
from roost.kube.vms.spec import VM, to_object
from roost.testing.clock import HandClock

GIB = 2**30
#: 8 GiB of which nothing is written anew take so long at 10 Gbit/s.
ALONE_S = 8 * GIB * 8 / 1e10
REAL = MigrationSettings(ramp_s=2.0, ramp_share=0.1)


def moving(name: str, clock: HandClock, source: str = "a", target: str = "b") -> Any:
    asked = VM(
        name=name, namespace="s", cpu_milli=1000, memory_bytes=8 * GIB, memory_utilization=1.0,
        dirty_rate_mbps=0.0,
    )  # fmt: skip
    migration = {
        "phase": "Copying", "sourceNode": source, "targetNode": target,
        "copyingAt": moment_text(clock.wall_ms(), micro=True),
    }  # fmt: skip
    return to_object(asked) | {"status": {"migration": migration}}


class Seen:
    """Copies of a test, and who was to be looked at since it last asked."""

    def __init__(self, settings: MigrationSettings = REAL) -> None:
        self.clock, self.looks = HandClock(), list[Key]()
        self.copies = LiveCopies(settings, self.clock, self.looks.append)

    def looked_at(self) -> list[Key]:
        looks, self.looks[:] = list(self.looks), []
        return looks


ONE, TWO = ("s", "one"), ("s", "two")


def test_a_copy_takes_its_time_by_the_clock_whatever_its_speed() -> None:
    for speed in (1.0, 60.0):
        seen = Seen(msgspec.structs.replace(REAL, speed=speed))
        vm = moving("one", seen.clock)
        assert seen.copies.follow(ONE, vm).stage is Stage.LIVE
        seen.clock.now += seen.copies.event_in_s() * 0.99
        assert seen.copies.follow(ONE, vm).stage is Stage.LIVE
        assert seen.clock.now - 1000.0 == pytest.approx(0.99 * ALONE_S / speed, rel=0.01)
        seen.clock.now += ALONE_S / speed
        assert seen.copies.follow(ONE, vm).stage is Stage.DONE


def test_one_that_another_controller_began_goes_on_as_if_it_had_never_stopped() -> None:
    seen = Seen()
    vm = moving("one", seen.clock)
    seen.clock.now += ALONE_S / 2
    assert seen.copies.follow(ONE, vm).progress == pytest.approx(0.5, abs=0.01)


def test_two_share_the_network_and_each_is_looked_at_when_the_other_comes_or_goes() -> None:
    seen = Seen()
    vms = {ONE: moving("one", seen.clock), TWO: moving("two", seen.clock)}
    seen.copies.follow(ONE, vms[ONE])
    assert seen.looked_at() == []
    seen.copies.follow(TWO, vms[TWO])
    assert seen.looked_at() == [ONE]
    seen.clock.now += ALONE_S
    assert seen.copies.follow(ONE, vms[ONE]).progress == pytest.approx(0.5, abs=0.01)
    seen.copies.end(TWO)
    assert seen.looked_at() == [ONE]
    assert seen.copies.get(TWO) is None
    # What the other had is its own now: the second half takes half as long.
    seen.clock.now += ALONE_S / 2 + 0.01
    assert seen.copies.follow(ONE, vms[ONE]).stage is Stage.DONE
    seen.copies.end(TWO)  # again, which is no error
    assert seen.looked_at() == []


def test_a_copy_that_is_over_lets_the_others_be_looked_at() -> None:
    seen = Seen()
    vms = {ONE: moving("one", seen.clock), TWO: moving("two", seen.clock, "c", "d")}
    seen.copies.follow(ONE, vms[ONE])
    seen.clock.now += ALONE_S / 2
    vms[TWO] = moving("two", seen.clock, "c", "d")
    seen.copies.follow(TWO, vms[TWO])
    seen.clock.now += ALONE_S / 2 + 0.01
    seen.looked_at()
    assert seen.copies.follow(ONE, vms[ONE]).over
    assert seen.looked_at() == [TWO]


def is_due(seen: Seen, after_s: float) -> bool:
    seen.clock.now = 1000.0 + after_s
    seen.copies.follow(ONE, moving("one", HandClock()))
    return seen.copies.is_due(ONE)


def test_a_copy_is_not_told_too_often() -> None:
    seen = Seen(msgspec.structs.replace(REAL, ramp_share=0.01))
    assert not seen.copies.is_due(ONE)  # it has not begun
    assert not is_due(seen, 0.0)
    assert not is_due(seen, 0.5)
    assert seen.copies.due_in_s(ONE) == 1.5
    assert is_due(seen, 2.0)
    seen.copies.told(ONE)
    assert not is_due(seen, 3.9)
    assert is_due(seen, 4.0)


def test_a_copy_is_not_told_for_too_little() -> None:
    seen = Seen(msgspec.structs.replace(REAL, ramp_share=0.4))
    assert not is_due(seen, 0.0)
    assert not is_due(seen, 0.35 * ALONE_S)
    assert seen.copies.due_in_s(ONE) == 0.5  # a quarter of the least pause
    assert is_due(seen, 0.45 * ALONE_S)
    seen.copies.told(ONE)
    assert not is_due(seen, 0.8 * ALONE_S)
    assert is_due(seen, 0.9 * ALONE_S)
