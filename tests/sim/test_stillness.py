"""Time stands still where nothing happens: lazy worlds end as those that count every second."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from roost.sim.ground.clocks import Machine, PausedTime
from roost.sim.ground.loop import VirtualLoop
from roost.sim.histories.history import Action, History
from roost.sim.world import Verdict, run_history


def on_virtual_time(work: Callable[[], Awaitable[object]]) -> object:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


def test_timers_of_paused_time_wait_as_long_as_it_is_held() -> None:
    async def work() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        time, rung = PausedTime(loop), []
        for name, when in (("late", 10.0), ("early", 2.0), ("never", 5.0)):
            timer = time.call_at(when, lambda name=name: rung.append((name, loop.time())))
            if name == "never":
                timer.cancel()
        await asyncio.sleep(3.0)
        time.hold()
        await asyncio.sleep(100.0)
        assert time.time() == 3.0
        time.go_on()
        await asyncio.sleep(20.0)
        assert time.time() == 23.0
        return rung

    assert on_virtual_time(work) == [("early", 2.0), ("late", 110.0)]


def test_whoever_sleeps_on_a_machine_sleeps_out_the_rest_in_its_new_time() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        paused = PausedTime(loop)
        machine = Machine(loop, rate=2.0)
        sleeper = asyncio.create_task(machine.sleep(20.0))  # ten seconds at twice the pace
        await asyncio.sleep(4.0)
        machine.follow(paused)
        paused.hold()
        await asyncio.sleep(1000.0)
        assert machine.monotonic() == 8.0
        paused.go_on()
        await asyncio.sleep(1.0)
        machine.follow(loop)
        await sleeper
        assert machine.monotonic() == 20.0
        return loop.time()

    assert on_virtual_time(work) == 1010.0


def test_a_machine_forgets_those_who_no_longer_wait() -> None:
    async def work() -> int:
        machine = Machine()
        sleepers = [asyncio.create_task(machine.sleep(50.0)) for _ in range(3)]
        await asyncio.sleep(1.0)
        sleepers[1].cancel()
        await asyncio.wait(sleepers[:1] + sleepers[2:])
        return len(machine._sleepers)

    assert on_virtual_time(work) == 0


def quiet_hour(seed: int, *, lazy: bool, more: tuple[Action, ...] = ()) -> History:
    """Return some minutes with VMs that come and go, one after the other."""
    random = Random(seed)
    actions, at = list(more), 0.0
    for n in range(9):
        at += random.uniform(20.0, 100.0)
        restart = random.choice(("here", "elsewhere"))
        actions.append(Action(round(at, 2), "create", f"vm{n}", {"cpu": 1, "restart": restart}))
        if n % 3 == 0:
            actions.append(Action(round(at + random.uniform(10, 60), 2), "delete", f"vm{n}"))
        if n % 4 == 1:
            actions.append(Action(round(at + random.uniform(10, 60), 2), "migrate", f"vm{n}"))
    actions.sort(key=lambda action: action.at)
    return History(seed, hosts=4, planes=1, calm_s=120.0, actions=actions, lazy=lazy)


def outcome(verdict: Verdict) -> dict[str, int]:
    """Return what was committed and done, but for what depends on milliseconds.

    A VM that waits a moment for its host's lease is reported as stopped, or not at all.
    """
    kept = {k: n for k, n in verdict.coverage.items() if k.startswith(("commit.", "vm", "start"))}
    kept.pop("commit.vm.stopped", None)
    return kept


@pytest.mark.parametrize("seed", range(2))
def test_a_lazy_world_commits_what_an_eager_one_does(seed: int) -> None:
    lazy, eager = (run_history(quiet_hour(seed, lazy=each)) for each in (True, False))
    assert (lazy.broken, eager.broken) == ("", "")
    assert outcome(lazy) == outcome(eager)
    assert lazy.events * 4 < eager.events, "it hardly rested"


def test_a_fault_wakes_a_lazy_world() -> None:
    lost = Action(200.0, "power_off", "h1", {"for": 120.0})
    lazy, eager = (run_history(quiet_hour(1, lazy=each, more=(lost,))) for each in (True, False))
    assert (lazy.broken, eager.broken) == ("", "")
    assert lazy.coverage["commit.host.offline"] == 1
    assert lazy.coverage["commit.host.fenced"] == eager.coverage["commit.host.fenced"] == 1
    assert outcome(lazy).keys() == outcome(eager).keys()
