"""A process that dies at any write of a preemption: its successor makes the room all the same.

A whole preemption is run once to count its writes. Then it is run again for each of them, with a
process that dies before that write, or after it and before anybody hears so. The next process
finds what is in the ledger and nothing else.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import select

from roost.base.errors import RoostError, Unavailable
from roost.control.preempt import beginning
from roost.control.preempt.tending import Preempting
from roost.ledger.claims.proposals import Outcome, Proposal
from roost.ledger.schema.rows import PreemptionRow, VMRow
from roost.ledger.schema.tables import displaced, holds, preemptions
from roost.ledger.writes.transaction import Tx
from roost.parts.singleton import HOLDER
from tests.faulty_store import FaultyStore
from tests.integration.control.rig import Rig, rig_on
from tests.integration.control.test_preemption import classes
from tests.turns import in_turn

T = TypeVar("T")
#: Seconds in which a process that took over has done everything.
LONG_S = 90.0


class DyingStore(FaultyStore):
    """A store whose process dies at a write: from then on nothing gets through."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.writes = 0
        self.dies_at = -1
        self.after = False  # the write is still made

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Make one change, if the process lives as long."""
        if actor.startswith(HOLDER):  # a lease is renewed: that is no step of anything
            return await super().write(change, actor)
        self._count(before=True)
        found = await super().write(change, actor)
        self._count(before=False)
        return found

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit creates, if the process lives as long."""
        self._count(before=True)
        found = await super().claim(proposals, actors, snapshot, atomic=atomic)
        self._count(before=False)
        return found

    def _count(self, *, before: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.writes += before
        if self.writes == self.dies_at and self.after != before:
            self.failure = Unavailable("the process is dead")
            raise self.failure


async def prepare(rig: Rig) -> None:
    """Fill a host with a VM that can move and one that can only be stopped; a third waits."""
    await classes(rig)
    await rig.host("h1", cpu=4)
    await rig.host("h2", cpu=1)
    only = {"hosts": ["h1"]}
    await rig.running(
        "stops", cpu=3, priority_class="low", restart="elsewhere",
        constraints={"hosts": ["h1", "h3"]},
    )  # fmt: skip
    await rig.running("moves", priority_class="low", constraints={"hosts": ["h1", "h2"]})
    assert await rig.state("moves") == ("running", "h1")
    await rig.create("new", cpu=4, priority_class="high", on_no_fit="queue", constraints=only)


async def live_until(rig: Rig, store: DyingStore, **states: tuple[str, str]) -> None:
    """Let time pass until VMs are what they should be, and nothing is left to do.

    When the process dies another one takes its place, and the agents come back.
    """
    end = rig.clock.now + LONG_S
    while rig.clock.now < end:
        with contextlib.suppress(RoostError):
            await rig.pass_by(2)
            await held_as_long_as_made(rig)
            if await settled(rig, states):
                return
        if store.failure is not None:
            store.failure, store.dies_at = None, -1
            await rig.restart()
            for agent in rig.agents.values():
                agent.connect(rig.plane)
            await held_as_long_as_made(rig)
    seen = {name: await rig.state(name) for name in states}
    left = {each.name: await rig.rows(select(each)) for each in (holds, preemptions)}
    raise AssertionError(f"{seen}, {left}")


async def held_as_long_as_made(rig: Rig) -> None:
    """Room is held for exactly those for whom it is made."""
    made = {f"preempt:{row['vm']}" for row in await rig.rows(select(preemptions))}
    held = {row["owner"] for row in await rig.rows(select(holds))}
    assert made == held, f"made for {made}, held for {held}"


async def settled(rig: Rig, states: dict[str, tuple[str, str]]) -> bool:
    """Say whether VMs are where they should be and no room is made or held any more."""
    if any([await rig.state(name) != state for name, state in states.items()]):
        return False
    return not any([await rig.rows(select(each)) for each in (holds, preemptions)])


async def whole(path: Path, dies_at: int, *, after: bool) -> int:
    """Run a preemption to its end, with a death; return how many writes it took."""
    async with rig_on(f"sqlite:///{path}") as rig:
        store = DyingStore(rig.store)
        rig.store = store
        await rig.load()
        await prepare(rig)
        store.writes, store.dies_at, store.after = 0, dies_at, after
        await live_until(rig, store, new=("running", "h1"), moves=("running", "h2"))
        needed = store.writes
        assert store.dies_at == -1, "it never came to this write"
        await rig.host("h3", cpu=3)
        await live_until(rig, store, stops=("running", "h3"))
        await rig.pass_by(4)
        assert await rig.rows(select(displaced)) == []
        await rig.converged()
        return needed


def sweep(folder: Path, *, after: bool, share: int = 1) -> int:
    """Let the process die at each write of a preemption; return how many there are.

    Of so many writes as `share` one has its turn at a commit.
    """
    count = asyncio.run(whole(folder / "whole.db", -1, after=after))
    for at in in_turn(range(1, count + 1), -(-count // share)):
        try:
            asyncio.run(asyncio.wait_for(whole(folder / f"{at}.db", at, after=after), 120))
        except AssertionError as error:
            raise AssertionError(f"death at write {at}: {error}") from error
    return count


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_may_die_at_any_write(tmp_path: Path, *, after: bool) -> None:
    assert sweep(tmp_path, after=after, share=3) > 12


# Planted mistakes


def _known_in_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """See only those preemptions through that this process began."""
    begun: set[tuple[int, str]] = set()
    list_all, begin_for = Preempting.list_all, Preempting.begin_for

    async def listed(self: Preempting) -> list[PreemptionRow]:
        return [row for row in await list_all(self) if (id(self), row.vm) in begun]

    async def noted(self: Preempting, vm: VMRow, check: Any = None) -> bool:
        found = await begin_for(self, vm, check)
        begun.add((id(self), vm.id))
        return found

    monkeypatch.setattr(Preempting, "list_all", listed)
    monkeypatch.setattr(Preempting, "begin_for", noted)


def _held_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a preemption in one write, and hold room for it in the next."""
    begin_for, later = Preempting.begin_for, beginning.begin_hold
    monkeypatch.setattr(beginning, "begin_hold", lambda *given, **named: None)

    async def in_two(self: Preempting, vm: VMRow, check: Any = None) -> bool:
        found = await begin_for(self, vm, check)
        for row in await self.list_all():
            await self._store.write(lambda tx: later(tx, row.vm, row.host))  # noqa: B023
        return found

    monkeypatch.setattr(Preempting, "begin_for", in_two)


@pytest.mark.parametrize("mistake", [_known_in_memory_alone, _held_a_moment_later])
def test_a_broken_build_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[pytest.MonkeyPatch], None],
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="death at write"):
        sweep(tmp_path, after=True)
