"""Preemption with two planes on one PostgreSQL: budgets, victims and freed room go to one of two.

Two transactions are let into the critical step together wherever locks let them: the first waits
there for the second, for a while. Where a lock keeps the second one out, the first goes on alone.
Each race is also run on a build that is broken on purpose, and must find its law broken there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.util import await_only

from roost.base.errors import Conflict, NoFit, PlacementContended
from roost.control.groups import budgets
from roost.control.preempt import arriving, beginning
from roost.control.preempt.beginning import begin
from roost.control.preempt.choosing import Plan
from roost.control.preempt.displacing import displace
from roost.control.preempt.record import victims_of
from roost.control.vms.requests import request_of
from roost.ledger.claims import capacity
from roost.ledger.schema.rows import PreemptionRow, VMRow
from roost.ledger.schema.tables import claims, displaced, holds, preemptions, vms
from roost.ledger.writes.transaction import Tx
from roost.wire.groups import SetBudget
from tests.integration.control.rig import OPERATOR, Rig, run_two
from tests.integration.control.test_preemption import classes, wait_for

Race = Callable[[Rig, Rig], Awaitable[None]]
#: How long one transaction waits for the other to come as far.
MEETING_S = 0.5
#: How long on a build whose locks are gone: both get there, however busy the machine is.
BOTH_COME_S = 5.0


class Meeting:
    """A place in a transaction at which two wait for each other, if both can get there."""

    def __init__(self, wait_s: float) -> None:
        self._one_is_here, self._both, self._wait_s = False, asyncio.Event(), wait_s

    def come(self) -> None:
        """Wait for the other one for a while; it runs meanwhile, on the same loop."""
        if self._one_is_here:
            self._both.set()
            return
        self._one_is_here = True
        with suppress(TimeoutError):  # it is kept out by a lock
            await_only(asyncio.wait_for(self._both.wait(), self._wait_s))

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits for the other one first."""

        def later(*given: Any, **named: Any) -> Any:
            self.come()
            return call(*given, **named)

        return later


async def both(*asked: Awaitable[Any]) -> list[Any]:
    """Let two things happen at once; what is refused is a conflict."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, Conflict):
            raise each
    return found


def kept(found: list[Any]) -> int:
    """Count those that were not refused."""
    return sum(not isinstance(each, Conflict) for each in found)


async def known(rig: Rig, name: str) -> VMRow:
    row = await rig.row(name)
    assert row is not None
    return row


async def plan(rig: Rig, name: str) -> tuple[VMRow, Plan]:
    """Let a plane choose who makes room for a VM."""
    row = await known(rig, name)
    await rig.plane.follower.catch_up()
    choosing = rig.plane.asking._choosing
    found = await choosing.choose(request_of(row, rig.plane.roster), but=row.id)
    assert found is not None
    return row, found


async def begin_both(one: Rig, two: Rig) -> list[Any]:
    """Let both planes choose for a VM each, and only then begin."""
    first, second = await plan(one, "n1"), await plan(two, "n2")
    return await both(
        one.store.write(lambda tx: begin(tx, *first)),
        two.store.write(lambda tx: begin(tx, *second)),
    )


async def wait_in_line(rig: Rig, name: str, cpu: int, hosts: list[str]) -> None:
    """Queue a VM of high priority."""
    await rig.create(
        name, cpu=cpu, priority_class="high", on_no_fit="queue", constraints={"hosts": hosts}
    )


async def web(one: Rig, two: Rig) -> None:
    """Make a group of two members, on a host each, of which one may be away; another host."""
    await classes(one)
    for name in ("h1", "h2", "h3"):
        await one.host(name, cpu=2)
    group = {"name": "web", "rule": "spread", "hard": False}
    for n in (1, 2):
        await one.running(
            f"w{n}", cpu=2, groups=[group], priority_class="low", restart="elsewhere",
            constraints={"hosts": ["h1"]} if n == 1 else {},
        )  # fmt: skip
    await one.plane.groups.set_budget("web", None, SetBudget(at_most=1), OPERATOR)
    await wait_in_line(one, "n1", 2, ["h1"])
    await two.plane.follower.catch_up()


async def away(rig: Rig) -> int:
    """Count the members of the group that move, or were stopped and have not run since."""
    stopped = {row["vm"] for row in await rig.rows(select(displaced))}
    rows = await rig.rows(select(vms).where(vms.c.name.in_(("w1", "w2"))))
    return sum(bool(row["phase"]) or row["id"] in stopped for row in rows)


async def the_last_of_a_budget(one: Rig, two: Rig) -> None:
    """One plane stops a member for another VM while the other one moves the second member."""
    await web(one, two)
    row, waits = await known(one, "w1"), await known(one, "n1")
    host = row.host
    assert host is not None
    found = await both(
        one.store.write(lambda tx: displace(tx, row.id, host, waits)),
        two.migrate("w2", "h3"),
    )
    assert await away(one) <= 1, "the budget is passed"
    assert kept(found) == 1


async def the_same_victims(one: Rig, two: Rig) -> None:
    await classes(one)
    await one.host("h1", cpu=2)
    await one.running("old", cpu=2, priority_class="low", restart="elsewhere")
    for name in ("n1", "n2"):
        await wait_in_line(one, name, 2, ["h1"])
    found = await begin_both(one, two)
    rows = [PreemptionRow(**row) for row in await one.rows(select(preemptions))]
    leaving = [each.vm for row in rows for each in victims_of(row)]
    assert len(leaving) == len(set(leaving)), "a VM makes room for two"
    assert kept(found) == 1


async def the_same_free_room(one: Rig, two: Rig) -> None:
    """Each of two VMs would do with one victim and the core that is free: it is free once."""
    await classes(one)
    await one.host("h1", cpu=3)
    for name in ("a", "b"):
        await one.running(name, priority_class="low", restart="elsewhere")
    for name in ("n1", "n2"):
        await wait_in_line(one, name, 2, ["h1"])
    first, second = await plan(one, "n1"), await plan(two, "n2")
    taken = {each.vm.id for each in first[1].leaving}
    if taken == {each.vm.id for each in second[1].leaving}:
        row = await known(two, "n2")
        choosing = two.plane.asking._choosing
        request = request_of(row, two.plane.roster)
        other = await choosing.choose(request, never=tuple(taken), but=row.id)
        assert other is not None
        second = row, other
    await both(
        one.store.write(lambda tx: begin(tx, *first)),
        two.store.write(lambda tx: begin(tx, *second)),
    )
    for row in [PreemptionRow(**each) for each in await one.rows(select(preemptions))]:
        await enough_is_made(one, row)


async def enough_is_made(rig: Rig, row: PreemptionRow) -> None:
    """Nobody leaves in vain: what is held and what victims give back are enough."""
    asked = (await rig.rows(select(vms).where(vms.c.id == row.vm)))[0]["cpu_milli"]
    held = await rig.rows(select(holds).where(holds.c.owner == f"preempt:{row.vm}"))
    of = [each.vm for each in victims_of(row)]
    back = await rig.rows(select(claims).where(claims.c.vm.in_(of), claims.c.host == row.host))
    made = sum(each["cpu_milli"] for each in (*held, *back))
    assert made >= asked, f"{made} of {asked} are made, and {len(of)} leave for it"


async def a_thief_of_freed_room(one: Rig, two: Rig) -> None:
    """The other plane creates a VM at the very moment that room becomes free."""
    await classes(one)
    await one.host("h1", cpu=2)
    for name in ("a", "b"):
        await one.running(name, priority_class="low", restart="elsewhere")
    await wait_in_line(one, "n1", 2, ["h1"])
    await one.plane.run_singletons()
    stolen = 0
    for n in range(12):
        await one.plane.run_singletons()
        await one.one_round()
        await two.plane.follower.catch_up()
        try:
            await two.create(f"thief{n}", priority=1000)
            stolen += 1
        except NoFit:
            pass
        if (await one.state("n1"))[0] == "running":
            break
    assert stolen == 0, "freed room was taken by another"
    await wait_for(one, "n1", "h1")


async def both_arrive(one: Rig, two: Rig) -> None:
    """Two planes, at the moment that a lease changes hands, give a VM the room made for it once."""
    await classes(one)
    await one.host("h1", cpu=2)
    await one.running("old", cpu=2, priority_class="low", restart="elsewhere")
    await one.create("n1", cpu=2, priority_class="high", on_no_fit="queue")
    await one.plane.run_singletons()
    await one.plane.vms.delete("old", None, OPERATOR)
    for _ in range(6):
        await one.one_round()
    await two.plane.follower.catch_up()
    made = (await one.plane.preempting.list_all())[0]
    row = await known(one, "n1")
    asked = [
        arriving.arrive(rig.store, rig.plane.asking._preempting._placing, row, made, "h1", _any)
        for rig in (one, two)
    ]
    await both(*asked)
    found = await one.rows(select(claims).where(claims.c.vm == row.id))
    assert len(found) == 1, "it was placed twice"
    assert await one.rows(select(holds)) == []
    await wait_for(one, "n1", "h1")


def _any(tx: Tx) -> None:
    """Let everybody act, as at the very moment that a lease changes hands."""


#: Each race, with the step at which two transactions wait for each other.
RACES: dict[str, tuple[Race, Any, str]] = {
    "the last of a budget": (the_last_of_a_budget, budgets, "refuse_beyond"),
    "the same victims": (the_same_victims, beginning, "keep_budgets"),
    "the same free room": (the_same_free_room, beginning, "keep_budgets"),
    "a thief of freed room": (a_thief_of_freed_room, beginning, "keep_budgets"),
    "both arrive": (both_arrive, arriving, "relock"),
}


@pytest.mark.parametrize("name", RACES)
def test_one_of_two_planes_wins(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    race_of(postgres_url, monkeypatch, name, MEETING_S)


def race_of(url: str, monkeypatch: pytest.MonkeyPatch, name: str, wait_s: float) -> None:
    race, module, step = RACES[name]
    monkeypatch.setattr(module, step, Meeting(wait_s).before(getattr(module, step)))
    run_two(url, race)


# Planted mistakes


def _unlocked(find: Callable[..., Any], *tables: str) -> Callable[..., Any]:
    """Read rows of some tables without their locks."""

    def read(tx: Tx, table: Any, *, lock: bool = False, **key: Any) -> Any:
        return find(tx, table, lock=lock and table.name not in tables, **key)

    return read


#: What is wrong: where, the name there, what stands there instead; the race that finds it.
BROKEN: dict[str, tuple[Any, str, Any, str]] = {
    "budgets are counted without a lock": (
        Tx, "find", _unlocked(Tx.find, "groups"), "the last of a budget",
    ),
    "victims are not locked": (
        Tx, "find", _unlocked(Tx.find, "vms", "host_amounts"), "the same victims",
    ),
    "free room is counted for each": (
        beginning, "_require_enough", lambda *given: None, "the same free room",
    ),
    "freed room is not held": (
        capacity, "hold_freed", lambda *given: None, "a thief of freed room",
    ),
    "what was held is not given back": (
        arriving, "drop_hold", lambda *given: {}, "both arrive",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_build_is_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    module, name, instead, race = BROKEN[mistake]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises((AssertionError, PlacementContended)):
        race_of(postgres_url, monkeypatch, race, BOTH_COME_S)
