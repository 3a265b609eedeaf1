"""A plane that finds nothing compiled is ready at once, and changes over when that is done."""

import asyncio

import pytest

from roost.app import gettingready
from roost.app.gettingready import MOST_INTERPRETED, GettingReady
from roost.app.warming import COMPILES
from roost.base.clock import RealClock
from roost.placement.kernels.running import is_interpreting

pytestmark = pytest.mark.skipif(not COMPILES, reason="nothing is compiled: NUMBA_DISABLE_JIT")


class Elsewhere:
    """Another process that compiles: it fails as often as it is told, then works."""

    def __init__(self, fails: int = 0) -> None:
        self.done, self.fails, self.tried = asyncio.Event(), fails, 0
        self.warm = False

    async def compile(self) -> None:
        self.tried += 1
        await self.done.wait()
        self.warm = self.tried > self.fails


def ready(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere, hosts: int, loaded: list[bool]
) -> GettingReady:
    monkeypatch.setattr(gettingready, "compile_elsewhere", elsewhere.compile)
    monkeypatch.setattr(gettingready, "is_warm", lambda: elsewhere.warm)
    monkeypatch.setattr(gettingready, "can_keep", lambda: True)
    monkeypatch.setattr(gettingready, "warm_up", lambda: loaded.append(is_interpreting()))
    return GettingReady(RealClock(), lambda: hosts)


def test_it_is_ready_before_anything_is_compiled_and_then_changes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[bool] = []

    async def whole() -> None:
        elsewhere = Elsewhere()
        kernels = ready(monkeypatch, elsewhere, 20, loaded)
        await asyncio.wait_for(kernels.begin(), 30)
        assert is_interpreting()
        assert loaded == []
        elsewhere.done.set()
        assert kernels._compiling is not None
        await asyncio.wait_for(kernels._compiling, 30)
        assert not is_interpreting()
        await kernels.stop()

    asyncio.run(whole())
    assert loaded == [False]  # whoever loads runs compiled code, while all others do without


def test_a_compile_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gettingready, "_AGAIN", type(gettingready._AGAIN)(0.01, 0.01))

    async def whole() -> None:
        elsewhere = Elsewhere(fails=2)
        elsewhere.done.set()
        kernels = ready(monkeypatch, elsewhere, 20, [])
        await kernels.begin()
        assert kernels._compiling is not None
        await asyncio.wait_for(kernels._compiling, 30)
        assert elsewhere.tried == 3
        assert not is_interpreting()

    asyncio.run(whole())


def test_a_compiler_that_cannot_be_started_or_loaded_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gettingready, "_AGAIN", type(gettingready._AGAIN)(0.01, 0.01))
    troubles = [OSError("no process more"), MemoryError()]

    async def no_process() -> None:
        raise troubles.pop(0)

    async def whole() -> None:
        elsewhere, loaded = Elsewhere(), list[bool]()
        elsewhere.done.set()
        kernels = ready(monkeypatch, elsewhere, 20, loaded)

        async def compile_at_last() -> None:
            await (no_process if troubles else elsewhere.compile)()

        monkeypatch.setattr(gettingready, "compile_elsewhere", compile_at_last)
        await kernels.begin()
        assert kernels._compiling is not None
        await asyncio.wait_for(kernels._compiling, 30)
        assert not is_interpreting()
        assert loaded == [False]

    asyncio.run(whole())


def test_a_large_fleet_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        elsewhere = Elsewhere()
        kernels = ready(monkeypatch, elsewhere, MOST_INTERPRETED + 1, [])
        waiting = asyncio.create_task(kernels.begin())
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        assert not is_interpreting()
        elsewhere.done.set()
        await asyncio.wait_for(waiting, 30)

    asyncio.run(whole())


def test_a_plane_that_stops_leaves_nothing_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        kernels = ready(monkeypatch, Elsewhere(), 20, [])
        await kernels.begin()
        await kernels.stop()
        assert kernels._compiling is not None
        assert kernels._compiling.cancelled()
        assert not is_interpreting()

    asyncio.run(whole())
