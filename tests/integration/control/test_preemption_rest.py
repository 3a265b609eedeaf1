"""Preemption comes to rest: nobody waits who could have room, nothing goes in circles.

Drawn worlds: hosts that come and go, processes that are ended, VMs of many priorities that are
created and deleted. Then the faults end. From then on:

    a VM that displaces others waits only if no set of strictly lower VMs would make room for it
    no VM is stopped twice for the same other one
    no room is made for a VM that was stopped, before it has run again
    nothing is held or displaced any more

Who would make room is asked of the plain twin of the choice (`tests/naive/preempting.py`).
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, NotFound
from roost.control.preempt import displacing, tending
from roost.control.preempt.tending import Preempting
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import displaced, events, holds, host_amounts, preemptions, vms
from roost.ledger.writes.transaction import Tx
from roost.wire.priorities import CreatePriorityClass
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.naive.preempting import PlainHost, PlainVM, least_harm
from tests.turns import in_turn

CLASSES = {"p0": 0, "p1": 10, "p2": 20, "p3": 30}
HOSTS = ("h1", "h2", "h3")
#: Worlds in which VMs are stopped for others; in the first one a victim is asked as it starts.
SEEDS = (1, 2, 7, 15, 33)
#: Seconds after the last fault in which everything has found its place.
QUIET_S = 240.0


class Watch:
    """What was seen of preemptions, step by step."""

    def __init__(self) -> None:
        self.stopped: Counter[tuple[str, str]] = Counter()  # who was stopped, and for whom
        self.quiet = False
        self._since = 0
        self._not_run: set[str] = set()

    async def look(self, rig: Rig) -> None:
        """Take in what has happened since the last look; refuses what must never happen."""
        query = select(events).where(events.c.seq > self._since).order_by(events.c.seq)
        begun = {row["vm"] for row in await rig.rows(select(preemptions))}
        for row in await rig.rows(query):
            self._since = row["seq"]
            vm = row["subject"].removeprefix("vm/")
            if row["kind"] == "vm.displaced":
                self._not_run.add(vm)
                words = str(row["note"]).partition(" of project")[0]
                if self.quiet:
                    self.stopped[vm, words.rpartition(" ")[2]] += 1
        for each in await rig.rows(select(vms)):
            if each["host"] is not None and each["observed"] == "running":
                self._not_run.discard(each["id"])
        circle = begun & self._not_run
        assert not circle, f"room is made for {circle}, stopped and not run since"


async def world(rig: Rig, chance: Random, watch: Watch) -> None:
    """Let VMs come and go, hosts fall silent and processes end."""
    for name, value in CLASSES.items():
        await rig.plane.priorities.create(CreatePriorityClass(name=name, value=value), ADMIN)
    for name in HOSTS:
        await rig.host(name, cpu=chance.randint(2, 5), memory=64)
    for number in range(14):
        await one_thing(rig, chance, number)
        await rig.pass_by(chance.choice((2, 4, 10)), silent=_silent(rig))
        await watch.look(rig)
    for agent in rig.agents.values():
        if not agent.connected:
            agent.connect(rig.plane)


def _silent(rig: Rig) -> tuple[str, ...]:
    return tuple(name for name, agent in rig.agents.items() if not agent.connected)


async def one_thing(rig: Rig, chance: Random, number: int) -> None:
    """Do something drawn; what is refused is refused."""
    what = chance.random()
    try:
        if what < 0.7:
            await rig.create(
                f"v{number}", cpu=chance.randint(1, 3), on_no_fit="queue",
                priority_class=chance.choice(list(CLASSES)),
                restart=chance.choice(("elsewhere", "elsewhere", "here")),
            )  # fmt: skip
        elif what < 0.8:
            await rig.plane.vms.delete(f"v{chance.randrange(number + 1)}", None, OPERATOR)
        elif what < 0.9:
            agent = rig.agents[chance.choice(HOSTS)]
            if agent.connected:
                agent.disconnect()
            else:
                agent.connect(rig.plane)
        else:
            away = _silent(rig)
            await rig.restart()
            for name, agent in rig.agents.items():
                if name not in away:
                    agent.connect(rig.plane)
    except (Conflict, NotFound):
        pass


async def could_displace(rig: Rig) -> list[str]:
    """Return the VMs that wait although lower ones could make room for them, by the plain twin."""
    amounts = {row["host"]: row for row in await rig.rows(select(host_amounts))}
    numbers = sorted(amounts)
    hosts = [
        PlainHost(
            tuple(
                row[f"{name}_capacity"] - row[f"{name}_committed"] - row[f"{name}_held"]
                for name in ("cpu_milli", "memory_bytes", "disk_bytes")
            ),
            row["vms_capacity"] - row["vms_committed"],
            is_open=True,
        )
        for row in (amounts[number] for number in numbers)
    ]
    rows = [VMRow(**row) for row in await rig.rows(select(vms))]
    placed = [
        PlainVM(
            numbers.index(vm.host), tuple(vm.amounts), vm.priority, vm.created_ms,
            2 if vm.restart == "elsewhere" else 1,
        )
        for vm in rows if vm.host is not None
    ]  # fmt: skip
    marked = {row["vm"] for row in await rig.rows(select(displaced))}
    waiting = [vm for vm in rows if vm.host is None and vm.id not in marked]
    return [
        vm.name for vm in waiting if least_harm(hosts, placed, tuple(vm.amounts), vm.priority, {})
    ]


async def comes_to_rest(rig: Rig, chance: Random) -> int:
    """Let a world live and end its faults; return how many VMs were stopped in all."""
    watch = Watch()
    await world(rig, chance, watch)
    watch.quiet = True
    end = rig.clock.now + QUIET_S
    while rig.clock.now < end:
        await rig.pass_by(10)
        await watch.look(rig)
    assert await rig.rows(select(preemptions)) == [], "room is made for ever"
    assert await rig.rows(select(holds)) == [], "room is held for ever"
    assert await could_displace(rig) == [], "they wait, and lower ones could make room"
    twice = {pair: count for pair, count in watch.stopped.items() if count > 1}
    assert not twice, f"stopped again and again: {twice}"
    before = len(await rig.rows(select(events).where(events.c.kind == "vm.displaced")))
    await rig.pass_by(60)
    after = len(await rig.rows(select(events).where(events.c.kind == "vm.displaced")))
    assert before == after, "it never comes to rest"
    return after


def sweep(url: str, monkeypatch: pytest.MonkeyPatch, seeds: Sequence[int]) -> int:
    """Let some worlds come to rest; return how many VMs were stopped in them."""
    monkeypatch.setattr(tending, "_REST_S", 30.0)
    stopped = []
    for seed in seeds:

        async def test(rig: Rig) -> None:
            stopped.append(await comes_to_rest(rig, Random(seed)))  # noqa: B023

        run(url.replace(".db", f"-{seed}.db"), test, patience_s=1e9)
    return sum(stopped)


def test_nobody_waits_for_ever_and_nothing_goes_in_circles(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = in_turn(SEEDS, 2)
    assert sweep(sqlite_url, monkeypatch, chosen) >= 2 * len(chosen)


# Planted mistakes


def _nobody_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a VM that was stopped displace others at once."""
    displace = displacing.displace

    def unmarked(tx: Tx, vm: str, *given: Any) -> bool:
        found = displace(tx, vm, *given)
        tx.remove(displaced, vm=vm)
        tx.event("vm.displaced_over", f"vm/{vm}", {"displaced": {vm: None}})
        return found

    monkeypatch.setattr(tending, "displace", unmarked)


def _asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask once for each VM who could make room, and never again."""
    known: set[str] = set()
    begin_for = Preempting.begin_for

    async def once(self: Preempting, vm: VMRow, check: Any = None) -> bool:
        if vm.id in known:
            return False
        known.add(vm.id)
        return await begin_for(self, vm, check)

    monkeypatch.setattr(Preempting, "begin_for", once)


def test_a_build_that_asks_once_is_found(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _asked_once(monkeypatch)
    with pytest.raises(AssertionError, match="lower ones could make room"):
        sweep(sqlite_url, monkeypatch, SEEDS)


async def one_above_the_other(rig: Rig) -> None:
    """The highest stops the middle one, which could stop the lowest on the other host."""
    for name, value in CLASSES.items():
        await rig.plane.priorities.create(CreatePriorityClass(name=name, value=value), ADMIN)
    for host, name in (("h1", "p2"), ("h2", "p1")):
        await rig.host(host, cpu=1)
        await rig.running(name, priority_class=name, restart="elsewhere")
    watch, only = Watch(), {"hosts": ["h1"]}
    await rig.create("p3", priority_class="p3", on_no_fit="queue", constraints=only)
    for _ in range(10):
        await rig.plane.run_singletons()
        await watch.look(rig)
        await rig.one_round()
    assert await rig.state("p3") == ("running", "h1")
    assert await rig.state("p1") == ("running", "h2")


def test_who_was_stopped_stops_nobody(sqlite_url: str) -> None:
    run(sqlite_url, one_above_the_other)


def test_a_build_that_marks_nobody_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nobody_is_marked(monkeypatch)
    with pytest.raises(AssertionError, match="stopped and not run since"):
        run(sqlite_url, one_above_the_other)
