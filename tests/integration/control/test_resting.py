"""A quiet plane asks the ledger for hardly anything, and every part wakes for what concerns it."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from roost.base.errors import Conflict
from roost.base.timestamps import timestamp
from roost.control.moves.draining import Drain
from roost.control.moves.limits import MoveLimits
from roost.control.preempt.tending import Preempting
from roost.control.rules.expiring import ExpiredRules
from roost.control.survive.recover import Recover
from roost.control.vms.expiring import ExpiredVMs
from roost.ledger.schema.tables import leases
from roost.ledger.upkeep.fold import FOLDED
from roost.parts.part import Part
from roost.parts.resting import MOST_REST_S
from roost.wire.bodies import ConfirmDead
from roost.wire.constraints import CreateConstraint
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, run, run_two

LONG_S = 2 * TIMERS.lease_s + TIMERS.offline_s
#: The parts that rest.
RESTING = (Drain, ExpiredRules, ExpiredVMs, MoveLimits, Preempting, Recover)
#: Enough for whoever has something to do, and looks every five seconds.
SOON_S = 6.0


def later(rig: Rig, seconds: float) -> str:
    return timestamp(rig.clock.wall_ms() + int(1000 * seconds))


async def rule(rig: Rig, **more: Any) -> None:
    body = CreateConstraint(name="rule", expression='host.name == "h1"', **more)
    await rig.plane.constraints.create(body, ADMIN, None)


async def bury(rig: Rig, name: str) -> None:
    """Lose a host for good, by an operator's word."""
    agent = rig.agents.pop(name)
    agent.disconnect()
    for copy in agent.copies.values():
        copy.state = "stopped"
    await rig.pass_by(LONG_S)
    await rig.plane.hosts.confirm_dead(name, ConfirmDead(reason="pulled the plug"), ADMIN)


def looks_of(rig: Rig, kind: type[Part]) -> list[float]:
    """Return a list that grows with every look of a part from now on: when it was."""
    part = next(part for part in rig.plane.parts if type(part) is kind)
    looked: list[float] = []
    look = part.look

    async def counted() -> None:
        looked.append(rig.clock.now)
        await look()

    part.look = counted  # type: ignore[method-assign]
    return looked


def count_asked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with every transaction from now on."""
    asked: list[str] = []

    def counted(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def ask(*given: Any, **named: Any) -> Any:
            asked.append(name)
            return await method(*given, **named)

        return ask

    for name in ("read", "write", "claim"):
        monkeypatch.setattr(rig.store, name, counted(name, getattr(rig.store, name)))
    return asked


def test_a_quiet_plane_asks_for_its_leases_and_for_heartbeats_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("here")
        await bury(rig, "h1")
        await rig.host("h2")
        await rig.running("ends", until=later(rig, 3600))
        await rule(rig, expires_in_s=3600)
        await rig.host("h3")
        await rig.plane.hosts.drain("h3", OPERATOR)
        await rig.pass_by(20)
        asked = count_asked(rig, monkeypatch)
        for _ in range(5):  # fewer seconds than make a host suspect
            rig.clock.move(TIMERS.watch_s)
            await rig.plane.follower.catch_up()
            asked.clear()
            await rig.plane.run_singletons()
            assert asked == ["write", "read"]
        monkeypatch.undo()

    run(database_url, test, dated=True)


# Causes that are events


async def moving(rig: Rig) -> None:
    await rig.host("h1")
    await rig.running("web")
    await rig.host("h2")


async def arriving(rig: Rig) -> None:
    """Let a VM be on its way to a host that drains since, and has nothing yet."""
    await moving(rig)
    await rig.migrate("web", "h2")
    await rig.until_phase("web", "moving")
    await rig.plane.hosts.drain("h2", OPERATOR)
    await rig.plane.run_singletons()


async def dead(rig: Rig) -> None:
    await rig.host("h1")
    await rig.running("web")
    await bury(rig, "h1")
    await rig.host("h2")


async def ruled(rig: Rig) -> None:
    await rig.host("h1")
    await rig.running("web")
    await rule(rig, project="default", vm="web")


class Cause(NamedTuple):
    """What wakes a part: how things are before, and what happens then."""

    part: type[Part]
    before: Callable[[Rig], Awaitable[None]]
    happens: Callable[[Rig], Awaitable[Any]]
    after: Callable[[Rig], Awaitable[bool]]


async def _true(rig: Rig) -> bool:
    return True


async def _web_runs_on_h2(rig: Rig) -> bool:
    return await rig.state("web") == ("running", "h2")


async def _no_rule(rig: Rig) -> bool:
    return not rig.plane.roster.rulebook.rows


CAUSES = {
    "a move": Cause(MoveLimits, moving, lambda rig: rig.migrate("web", "h2"), _true),
    "a VM that ends": Cause(
        ExpiredVMs, moving, lambda rig: rig.create("brief", until=later(rig, 3600)), _true
    ),
    "a rule that expires": Cause(
        ExpiredRules, moving, lambda rig: rule(rig, expires_in_s=3600), _true
    ),
    "a VM gone from its rule": Cause(
        ExpiredRules, ruled, lambda rig: rig.plane.vms.delete("web", None, OPERATOR), _no_rule
    ),
    "a VM of a dead host": Cause(
        Recover, dead, lambda rig: rig.set_restart("web", "elsewhere"), _web_runs_on_h2
    ),
}


@pytest.mark.parametrize("deaf", [False, True], ids=["hears", "deaf"])
@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_a_part_that_rests_looks_when_something_concerns_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, cause: Cause, deaf: bool
) -> None:
    """A part that is deaf to events shows what they are for, and that it is late, not lost."""
    if deaf:
        monkeypatch.setattr(cause.part, "wakes", ())

    async def test(rig: Rig) -> None:
        await cause.before(rig)
        await rig.pass_by(MOST_REST_S + SOON_S)
        looked = looks_of(rig, cause.part)
        await rig.pass_by(SOON_S)
        assert looked == []
        await cause.happens(rig)
        await rig.pass_by(SOON_S)
        assert bool(looked) is not deaf
        if deaf:
            await rig.pass_by(MOST_REST_S)
            assert looked
        await rig.pass_by(SOON_S)
        assert await cause.after(rig)

    run(sqlite_url, test, dated=True)


def test_a_host_that_drains_is_looked_at_when_a_vm_arrives(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await arriving(rig)
        looked = looks_of(rig, Drain)
        for _ in range(3):
            rig.clock.move(1.0)
            await rig.plane.run_singletons()
        seen = len(looked)
        rig.clock.move(1.0)
        await rig.plane.run_singletons()
        assert len(looked) == seen  # it is empty
        await rig.pass_by(60)
        assert await rig.state("web") == ("running", "h1")

    run(sqlite_url, test)


# Causes that no event tells of


def test_a_vm_ends_at_its_time_though_nothing_happens(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("brief", until=later(rig, 40))
        await rig.pass_by(20)
        looked = looks_of(rig, ExpiredVMs)
        await rig.pass_by(16)
        assert looked == []
        await rig.pass_by(8)
        assert looked
        assert await rig.row("brief") is None

    run(sqlite_url, test, dated=True)


def test_a_wall_clock_that_is_set_forward_is_noticed(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rule(rig, expires_in_s=600)
        await rig.pass_by(20)
        looked = looks_of(rig, ExpiredRules)
        rig.clock.ahead_s += 600
        await rig.pass_by(SOON_S)
        assert looked

    run(sqlite_url, test, dated=True)


@pytest.mark.parametrize("kind", [MoveLimits, Preempting, ExpiredVMs, ExpiredRules])
def test_who_rests_looks_in_any_case_when_much_time_has_passed(
    sqlite_url: str, kind: type[Part]
) -> None:
    async def test(rig: Rig) -> None:
        await moving(rig)
        await rig.pass_by(20)
        looked = looks_of(rig, kind)
        await rig.pass_by(3 * MOST_REST_S)
        assert len(looked) == 3

    run(sqlite_url, test)


def test_a_change_of_another_process_wakes(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await moving(first)
        await first.pass_by(20)
        looked = looks_of(first, MoveLimits)
        await first.pass_by(SOON_S)
        assert looked == []
        await second.plane.follower.catch_up()
        await second.migrate("web", "h2")
        await first.pass_by(2)
        assert looked

    run_two(postgres_url, test)


def test_a_process_that_does_not_hear_of_others_does_not_rest(postgres_url: str) -> None:
    async def test(rig: Rig) -> None:
        await moving(rig)
        await rig.pass_by(20)
        looked = looks_of(rig, MoveLimits)
        rig.clock.move(4.0)
        await rig.plane.run_singletons()
        assert looked == []
        rig.clock.move(1.0)  # and the follower has not read anything meanwhile
        await rig.plane.run_singletons()
        assert looked

    run(postgres_url, test)


# What is not certain


async def quiet(rig: Rig) -> list[float]:
    """Let everybody rest, and return the looks of one part from then on."""
    await moving(rig)
    await rig.pass_by(20)
    looked = looks_of(rig, MoveLimits)
    await rig.pass_by(SOON_S)
    assert looked == []
    return looked


def test_a_lease_that_is_gained_again_makes_its_part_look(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        looked = await quiet(rig)
        other = {"holder": "plane2-other", "token": 9}
        await rig.store.write(lambda tx: tx.change(leases, {"name": "moves"}, **other))
        await rig.pass_by(TIMERS.singleton_s)
        assert looked == []  # it is another's
        await rig.pass_by(4)
        assert looked

    run(sqlite_url, test)


def test_a_look_that_failed_is_repeated(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        looked = await quiet(rig)
        await rig.migrate("web", "h2")
        with monkeypatch.context() as patch:
            patch.setattr(MoveLimits, "_give_up_late", fails)
            patch.setattr(MoveLimits, "is_due", lambda part: False)
            await rig.plane.run_singletons()
            await rig.plane.run_singletons()
        assert len(looked) == 2

    async def fails(part: MoveLimits) -> None:
        raise Conflict("on purpose")

    run(sqlite_url, test)


def test_nobody_rests_while_the_ledger_may_be_an_old_copy(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        looked = await quiet(rig)
        rig.plane.lineage.restored = True
        await rig.plane.run_singletons()
        await rig.plane.run_singletons()
        assert len(looked) == 2
        rig.plane.lineage.restored = False

    run(sqlite_url, test)


def test_a_part_that_cannot_tell_looks(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        looked = await quiet(rig)
        monkeypatch.setattr(MoveLimits, "is_due", fails)
        await rig.plane.run_singletons()
        monkeypatch.undo()
        assert len(looked) == 1

    def fails(part: MoveLimits) -> bool:
        raise ValueError("on purpose")

    run(sqlite_url, test)


@pytest.mark.parametrize("kind", sorted(RESTING, key=str))
def test_a_part_rests_only_on_tables_that_are_what_events_lead_to(kind: type[Part]) -> None:
    """The doctor compares those, row by row: nothing changes there without an event."""
    assert {table.name for table in kind.wakes} <= FOLDED.keys()
    assert kind.wakes
