"""The parts of `roost demo` that need no processes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from roost.app.demoanalysis import AnalysisStage
from roost.base.clock import RealClock
from roost.base.errors import Unavailable
from roost.cli.demo.analysistour import COMPILE_S, AnalysisTour
from roost.cli.demo.runner import Screen, Tour, typed
from roost.cli.demo.tape import Tape
from roost.client import AsyncClient
from roost.wire.bodies import EventBody


def event(seq: int, kind: str) -> EventBody:
    return EventBody(
        seq=seq, at="", actor="test", kind=kind, subject="vm/1", project=None, changes={}
    )


class Told:
    """A client that tells these events, and then nothing more, or that it cannot go on."""

    def __init__(self, *kinds: str, end: Exception | None = None) -> None:
        self._events = [event(seq, kind) for seq, kind in enumerate(kinds, start=1)]
        self._end = end

    async def events(self, since: int) -> AsyncGenerator[EventBody, None]:
        for each in self._events:
            yield each
        if self._end is not None:
            raise self._end
        await asyncio.Event().wait()


def tape(*kinds: str, end: Exception | None = None) -> Tape:
    return Tape(cast(AsyncClient, Told(*kinds, end=end)))


def test_watching_goes_on_where_it_ended() -> None:
    async def run() -> list[list[str]]:
        found: list[list[str]] = []
        async with tape("a", "b", "c", "d") as events:
            for last in ("b", "d"):
                seen: list[str] = []

                def until(event: EventBody, last: str = last, seen: list[str] = seen) -> bool:
                    seen.append(event.kind)
                    return event.kind == last

                await events.watch(until, within_s=5, what="it")
                found.append(seen)
        return found

    assert asyncio.run(run()) == [["a", "b"], ["c", "d"]]


def test_until_asks_again_after_an_event() -> None:
    async def run() -> int:
        asked = 0

        async def holds() -> bool:
            nonlocal asked
            asked += 1
            return asked == 2

        async with tape("a") as events:
            await events.until(holds, within_s=5, what="it")
        return asked

    assert asyncio.run(run()) == 2


def test_a_wait_in_vain_says_what_for() -> None:
    async def run() -> None:
        async with tape("a") as events:
            await events.watch(lambda _: False, within_s=0.05, what="pigs that fly")

    with pytest.raises(Unavailable, match=r"waited 0.05 s in vain for: pigs that fly"):
        asyncio.run(run())


def test_a_stream_that_ends_for_good_ends_the_wait() -> None:
    async def run() -> None:
        async with tape("a", end=Unavailable("no server answers")) as events:
            await events.watch(lambda _: False, within_s=5, what="it")

    with pytest.raises(Unavailable, match="no server answers"):
        asyncio.run(run())


def test_a_long_command_is_typed_over_several_lines() -> None:
    command = "roost agent " + " ".join(f"--option-{n} value" for n in range(10))
    lines = typed(command).split("\n")
    assert len(lines) > 1
    assert all(len(line) <= 98 for line in lines)
    assert "".join(line.rstrip("\\").strip("$ ") + " " for line in lines).split() == command.split()


@pytest.mark.parametrize(("compiles", "more_s"), [(True, COMPILE_S), (False, 0.0)])
def test_a_tour_that_waits_for_kernels_may_take_so_much_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: bool, more_s: float
) -> None:
    class Started(AnalysisStage):
        async def start_server(self, port: int) -> None:
            self.compiles = compiles
            self.context_file.write_text('{"server": "http://127.0.0.1:1", "token": "t"}')

    made = Started(tmp_path, RealClock(), print)
    tour = AnalysisTour(RealClock(), Screen(None), made)
    asyncio.run(tour.start(1))
    assert tour.limit_s == Tour.limit_s + more_s


def test_a_summary_alone_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(None)
    screen.heading("title", "about")
    screen.lines("line")
    assert capsys.readouterr() == ("", "")
