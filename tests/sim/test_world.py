"""The virtual world itself: time, crashes and chance are what a history says, and nothing else."""

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from roost.sim.campaign.running import fixed_environment, read_history, write_history
from roost.sim.campaign.shrinking import shrink
from roost.sim.ground.lives import Dead, Life, task_factory
from roost.sim.ground.loop import NothingLeft, VirtualLoop
from roost.sim.ground.unhandled import hear_unhandled
from roost.sim.histories.draws import draw_history
from roost.sim.histories.history import Action, History
from roost.sim.world import Verdict, run_history


def on_virtual_time(work) -> tuple[object, float]:
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)  # type: ignore[arg-type]
    try:
        return loop.run_until_complete(work), loop.time()
    finally:
        loop.close()


def test_a_week_of_waiting_takes_no_time() -> None:
    assert on_virtual_time(asyncio.sleep(7 * 86_400.0, "woken")) == ("woken", 7 * 86_400.0)


def test_who_waits_for_nothing_is_told() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        on_virtual_time(wait())


def test_timers_fire_in_order_and_thread_work_is_done_in_line() -> None:
    async def work() -> list[object]:
        seen: list[object] = []
        loop = asyncio.get_running_loop()
        for delay in (3.0, 1.0, 2.0):
            loop.call_later(delay, seen.append, delay)
        seen.append(await asyncio.to_thread(lambda: "at once"))
        await asyncio.sleep(5.0)
        return seen

    assert on_virtual_time(work())[0] == ["at once", 1.0, 2.0, 3.0]


def test_a_crash_runs_no_clean_up_that_could_change_anything() -> None:
    async def work() -> list[str]:
        life, kept = Life("victim"), []

        def write(word: str) -> None:
            life.check()
            kept.append(word)

        async def victim() -> None:
            write("begun")
            try:
                await asyncio.sleep(100.0)
            finally:
                write("cleaned up")

        task = life.spawn(victim())
        await asyncio.sleep(1.0)
        life.end()
        await asyncio.wait({task})
        with pytest.raises(Dead):
            life.check()
        return kept

    assert on_virtual_time(work())[0] == ["begun"]


def unhandled(work: Callable[[], Coroutine[object, object, object]]) -> list[str]:
    """Return what is heard of exceptions that nobody handles."""

    async def hear() -> list[str]:
        heard: list[str] = []
        with hear_unhandled(heard.append):
            await work()
        return heard

    return on_virtual_time(hear())[0]  # type: ignore[return-value]


async def fail(error: BaseException) -> None:
    raise error


def test_a_task_that_nobody_asks_for_its_end_is_heard_of() -> None:
    async def work() -> None:
        lost = [asyncio.get_running_loop().create_task(fail(KeyError("lost")))]
        await asyncio.sleep(1.0)
        lost.clear()

    assert unhandled(work) == ["nobody handled KeyError: 'lost' (fail)"]


def test_a_callback_that_fails_is_heard_of() -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_later(0.5, {}.pop, "lost")
        await asyncio.sleep(1.0)

    assert len(unhandled(work)) == 1


def test_an_exception_that_is_only_logged_is_heard_of() -> None:
    async def work() -> None:
        try:
            raise KeyError("lost")
        except KeyError:
            logging.getLogger("roost.intake").exception("it goes on")
        logging.getLogger("roost.intake").error("the disk is full")

    assert unhandled(work) == ["nobody handled KeyError: 'lost' (it goes on)"]


def test_who_was_killed_or_is_waited_for_is_not_heard_of() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        both = BaseExceptionGroup("", [Dead("plane0"), asyncio.CancelledError()])
        ended = [loop.create_task(fail(error)) for error in (Dead("plane0"), both)]
        with contextlib.suppress(KeyError):
            await loop.create_task(fail(KeyError("told")))
        await asyncio.sleep(1.0)
        ended.clear()

    assert unhandled(work) == []


def run_apart(folder, *histories: History) -> list[Verdict]:
    """Run histories in a process of its own, as the command does."""
    paths = [folder / f"history-{at}.json" for at in range(len(histories))]
    for path, history in zip(paths, histories, strict=True):
        write_history(path, history)
        assert read_history(path) == history
    code = (
        "import sys, msgspec, pathlib; from roost.sim.campaign.running import read_history;"
        "from roost.sim.world import run_history;"
        "ran = [run_history(read_history(pathlib.Path(path))) for path in sys.argv[1:]];"
        "print(msgspec.json.encode(ran).decode())"
    )
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, env=fixed_environment(), capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=list[Verdict])


def test_the_same_history_is_the_same_world_in_every_process(tmp_path) -> None:
    history = draw_history(4, actions=25, seconds=40.0)
    other = msgspec.structs.replace(history, seed=5)
    (first,) = run_apart(tmp_path, history)
    third, second = run_apart(tmp_path, other, history)  # a world leaves nothing to the next
    assert first.broken == ""
    assert first.events > 200
    assert (first.digest, first.events) == (second.digest, second.events)
    assert third.digest != first.digest


def test_a_quiet_world_starts_what_it_is_asked_for() -> None:
    actions = [
        Action(0.0, "burst", "", {"vms": ["a", "b", "c"], "cpu": 1}),
        Action(8.0, "migrate", "a"),
        Action(20.0, "delete", "b"),
    ]
    verdict = run_history(History(1, hosts=3, planes=2, calm_s=60.0, actions=actions))
    assert verdict.broken == ""
    for kind, count in (("vm.created", 3), ("vm.moved", 1), ("vm.deleted", 1)):
        assert verdict.coverage[f"commit.{kind}"] == count
    assert verdict.faults == 0


def test_shrinking_leaves_what_the_failure_needs() -> None:
    actions = [Action(float(n), "create", f"vm{n}") for n in range(40)]
    history = History(1, hosts=6, planes=3, actions=actions)

    def fails(tried: History) -> bool:
        names = {action.on for action in tried.actions}
        return {"vm7", "vm31"} <= names and tried.hosts >= 4

    short = shrink(history, fails)
    assert [action.on for action in short.actions] == ["vm7", "vm31"]
    assert (short.hosts, short.planes) == (4, 1)
