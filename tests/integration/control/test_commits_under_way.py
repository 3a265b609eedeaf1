"""Single creates share commits, two of which may be under way; each answer in its own time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from roost.base.ids import IdSource
from roost.ledger.claims.proposals import Outcome, Proposal
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import DatabaseUnavailable
from roost.series.opening import memory_series
from roost.testing.clock import HandClock
from tests.faulty_store import FaultyStore
from tests.integration.control.rig import Rig, _empty_database

CORES = 8


class Claim:
    """A claim that waits for the test's word."""

    def __init__(self, vms: int) -> None:
        self.vms = vms
        self.word: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()


class ClaimsByWord(FaultyStore):
    """A store whose claims wait, each for a word of its own."""

    waiting: list[Claim]

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        claim = Claim(len(proposals))
        self.waiting.append(claim)
        failure = await claim.word
        self.waiting.remove(claim)
        if failure is not None:
            raise failure
        return await super().claim(proposals, actors, snapshot, atomic=atomic)


class Underway:
    """Creates on one host of a few cores, whose claims the test lets go one by one."""

    def __init__(self, rig: Rig, store: ClaimsByWord) -> None:
        self.rig, self.store = rig, store
        self.asked: dict[str, asyncio.Task[object]] = {}

    def ask(self, *names: str, **given: object) -> None:
        for name in names:
            self.asked[name] = asyncio.create_task(self.rig.create(name, cpu=1, **given))  # type: ignore[arg-type]

    async def turn(self) -> list[int]:
        """Let everybody do what they can; return the VMs of each claim that waits."""
        for _ in range(50):
            await asyncio.sleep(0)
        return [claim.vms for claim in self.store.waiting]

    async def let_go(self, place: int, failure: Exception | None = None) -> None:
        self.store.waiting[place].word.set_result(failure)
        await self.turn()

    async def let_all_go(self) -> None:
        while await self.turn():
            await self.let_go(0)

    @property
    def done(self) -> list[str]:
        return [name for name, task in self.asked.items() if task.done()]


def play(tmp_path: Path, test: Callable[[Underway], Awaitable[None]]) -> None:
    """Run a test on one plane, and check every law of the ledger at the end."""

    async def whole() -> None:
        clock = HandClock()
        path = tmp_path / "roost.db"
        path.write_bytes(_empty_database())
        ids = IdSource(clock.wall_ms)
        store = ClaimsByWord(SqliteStore(path, clock, ids, inline=True, full=False))
        store.waiting = []
        rig = Rig(store, memory_series(), clock, "plane")
        await rig.load()
        await rig.host("h1", cpu=CORES)
        await test(Underway(rig, store))
        await rig.check()
        await rig.plane.stop()
        await store.close()

    asyncio.run(whole())


def test_half_of_those_who_wait_go_first_and_two_commits_are_under_way(tmp_path: Path) -> None:
    async def test(under: Underway) -> None:
        under.ask(*"abcdefgh")
        assert await under.turn() == [4, 4]  # half of eight, then half of four and the four before
        assert under.done == []
        await under.let_go(1)  # the later one is answered first
        assert under.done == ["e", "f", "g", "h"]
        await under.let_all_go()
        assert len(under.done) == CORES

    play(tmp_path, test)


def test_what_comes_while_two_are_under_way_waits_for_the_first_that_ends(tmp_path: Path) -> None:
    async def test(under: Underway) -> None:
        under.ask("a")
        assert await under.turn() == [1]
        under.ask("b")
        assert await under.turn() == [1, 1]
        under.ask("c", "d")
        assert await under.turn() == [1, 1]
        await under.let_go(0)
        assert under.done == ["a"]
        assert len(under.store.waiting) == 2
        await under.let_all_go()
        assert len(under.done) == 4

    play(tmp_path, test)


def test_a_commit_that_fails_gives_its_room_back_beside_one_that_is_kept(tmp_path: Path) -> None:
    async def test(under: Underway) -> None:
        under.ask(*"abcdefgh")
        assert await under.turn() == [4, 4]
        await under.let_go(0, DatabaseUnavailable("the disk is full"))
        assert under.done == ["a", "b", "c", "d"]
        for name in "abcd":
            with pytest.raises(DatabaseUnavailable):
                under.asked.pop(name).result()
        under.ask(*"wxyz")  # there is room for them only if the first four hold nothing
        await under.let_all_go()
        assert {task.exception() for task in under.asked.values()} == {None}
        assert sorted(under.done) == [*"efghwxyz"]

    play(tmp_path, test)


def test_a_member_of_a_group_waits_until_nothing_is_under_way(tmp_path: Path) -> None:
    async def test(under: Underway) -> None:
        under.ask("a")
        assert await under.turn() == [1]
        under.ask("member", groups=[{"name": "g", "rule": "anti-affinity"}])
        assert await under.turn() == [1]
        await under.let_go(0)
        assert under.done == ["a"]
        assert await under.turn() == [1]
        await under.let_all_go()
        assert under.done == ["a", "member"]

    play(tmp_path, test)


def test_each_line_says_what_was_committed_after_its_own_vm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "roost.admit")

    async def test(under: Underway) -> None:
        under.ask(*"abcd")
        await under.let_all_go()

    play(tmp_path, test)
    lines = "\n".join(record.getMessage() for record in caplog.records).split("\n")
    said = [line.partition("CPU: ")[2].partition(",")[0] for line in lines if "Selected" in line]
    assert said == [f"{at}/{CORES}" for at in (1, 2, 3, 4)]
