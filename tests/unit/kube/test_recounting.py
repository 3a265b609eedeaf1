"""A budget that Kubernetes could not count is asked about again: soon, then ever more seldom."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from roost.kube.base.client import BUDGETS, PODS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.moving.recounting import TOUCHED_ANNOTATION, Recounting
from roost.testing.clock import HandClock


class Server:
    """Stands for an API server: keeps when which pod was changed, and how."""

    def __init__(self, clock: HandClock) -> None:
        self.clock, self.random = clock, Random(0)
        self.patched = list[tuple[float, str, Any]]()

    async def patch(self, _: object, name: str, change: Any, __: str) -> Any:
        """Write down a change."""
        self.patched.append((self.clock.monotonic(), name, change))


class Setting:
    """Budgets and pods of a test, and what touches them."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.server = Server(self.clock)
        kube = cast("Kube", self.server)
        self.budgets, self.pods = Mirror(kube, BUDGETS), Mirror(kube, PODS)
        self.recounting = Recounting(kube, self.budgets, self.pods, self.clock)
        for name, app in (("b", "web"), ("a", "web"), ("0", "db")):
            metadata = {"name": name, "namespace": "s", "labels": {"app": app}}
            self.pods.objects["s", name] = {"metadata": metadata}

    def budget(self, reason: str) -> None:
        """Make a budget say how it was counted."""
        self.budgets.objects["s", "keep"] = {
            "metadata": {"name": "keep", "namespace": "s"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"conditions": [{"reason": reason, "message": "no such kind"}]},
        }

    async def pass_s(self, seconds: float) -> list[float]:
        """Let time pass; return when pods were touched."""
        await self.clock.pass_by(seconds)
        return [at for at, _, _ in self.server.patched]


def play(story: Callable[[Setting], Awaitable[None]], reason: str = "SyncFailed") -> None:
    async def body() -> None:
        made = Setting()
        made.budget(reason)
        await made.recounting.start()
        try:
            await story(made)
        finally:
            await made.recounting.stop()

    asyncio.run(body())


def test_one_pod_is_touched_soon_and_then_ever_more_seldom() -> None:
    async def story(made: Setting) -> None:
        began = made.clock.monotonic()
        at = [each - began for each in await made.pass_s(60)]
        assert at[0] <= 1.5
        pauses = [later - earlier for earlier, later in pairwise(at)]
        assert pauses == sorted(pauses)
        # A cause that is gone after any time is noticed within half as long again.
        assert all(later <= 1.5 * earlier + 2 for earlier, later in pairwise(at))
        assert len(at) < 12
        assert {name for _, name, _ in made.server.patched} == {"a"}
        [noted] = made.server.patched[0][2]["metadata"]["annotations"]
        assert noted == TOUCHED_ANNOTATION

    play(story)


def test_news_of_the_budget_does_not_make_it_more_often() -> None:
    async def story(made: Setting) -> None:
        often = len(await made.pass_s(10))
        for _ in range(20):
            made.budgets._tell(None, made.budgets.get("keep", "s"))
            await made.pass_s(0.01)
        assert len(await made.pass_s(0)) == often

    play(story)


@pytest.mark.parametrize("end", ["counted", "deleted"])
def test_a_budget_that_is_counted_or_gone_is_left_alone(end: str) -> None:
    async def story(made: Setting) -> None:
        touched = await made.pass_s(3)
        assert touched
        if end == "counted":
            made.budget("SufficientPods")
        else:
            made.budgets.objects.clear()
        assert await made.pass_s(60) == touched

    play(story)
    play(_left_alone, "SufficientPods")


async def _left_alone(made: Setting) -> None:
    assert await made.pass_s(60) == []
