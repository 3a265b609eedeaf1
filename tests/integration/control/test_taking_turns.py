"""Long questions take turns, and who comes when too many wait is told so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roost.base.errors import SearchBusy
from roost.base.units import GIB
from roost.control.memory import oneatatime
from roost.control.memory.oneatatime import OneAtATime
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.wire.bodies import CapacityQuestion
from roost.wire.constraints import CheckConstraints
from roost.wire.policies import DryRunPolicy
from tests.integration.control.rig import ADMIN, Rig, body_of, run
from tests.integration.control.test_reservations import reserve

Asked = Callable[[Rig], tuple[OneAtATime, Callable[[], Awaitable[Any]]]]


def _fleet(rig: Rig) -> tuple[OneAtATime, Callable[[], Awaitable[Any]]]:
    asked = CapacityQuestion(name="a", demand=body_of("a").demand)
    return rig.plane.questions._long, lambda: rig.plane.questions.capacity(asked, ADMIN)


def _rules(rig: Rig) -> tuple[OneAtATime, Callable[[], Awaitable[Any]]]:
    judge = rig.plane.constraints.judge
    return judge._long, lambda: judge.check(CheckConstraints(), ADMIN)


def _policies(rig: Rig) -> tuple[OneAtATime, Callable[[], Awaitable[Any]]]:
    asked = DryRunPolicy(name="p", rules=[], requests=0)
    return rig.plane.policies._trial._long, lambda: rig.plane.policies.dry_run(asked)


def _reservations(rig: Rig) -> tuple[OneAtATime, Callable[[], Awaitable[Any]]]:
    return rig.plane.reservations._long, lambda: reserve(rig, "r", purpose="spare")


def _making_room(rig: Rig) -> tuple[OneAtATime, Callable[[], Awaitable[Any]]]:
    choosing = rig.plane.preempting._choosing
    request = PlaceRequest("a", Demand(1000, GIB, 0), priority=5)
    return choosing._long, lambda: choosing.choose(request)


@pytest.mark.parametrize("asked", [_fleet, _rules, _policies, _reservations, _making_room])
def test_a_question_behind_too_many_is_refused_and_those_who_wait_are_answered(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=64)
        monkeypatch.setattr(oneatatime, "MOST_WAITING", 1)
        long, ask = asked(rig)
        async with long.turn():
            waits = asyncio.ensure_future(ask())
            while not long._waiting:
                await asyncio.sleep(0.001)
            with pytest.raises(SearchBusy, match="wait already for their turn"):
                async with asyncio.timeout(5):
                    await ask()
            assert not waits.done()
        await waits
        assert not long._waiting

    run(sqlite_url, test, dated=True)


def test_who_gives_up_waiting_leaves_its_place_and_the_process_itself_is_not_refused() -> None:
    async def test() -> None:
        long = OneAtATime("questions")
        order: list[int] = []

        async def own() -> None:
            async with long.turn(refusable=False):
                order.append(1)

        async with long.turn():
            waiting = [asyncio.create_task(_ask(long)) for _ in range(oneatatime.MOST_WAITING)]
            await asyncio.sleep(0)
            with pytest.raises(SearchBusy):
                await _ask(long)
            mine = asyncio.create_task(own())
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[1].cancel()
            await asyncio.wait(waiting[:2])
            late = asyncio.create_task(_ask(long))
            await asyncio.sleep(0)
        await asyncio.gather(*waiting[2:], mine, late)
        assert order == [1]

    asyncio.run(test())


async def _ask(long: OneAtATime) -> None:
    async with long.turn():
        await asyncio.sleep(0)
