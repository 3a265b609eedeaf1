"""Two processes on one PostgreSQL, each with a roster that may be behind the other's."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from roost.base.errors import Conflict, NoFit, PlacementContended, QuotaExceeded, RoostError
from roost.control.create.pending import MOST_TRIES
from roost.control.hosts.registering import locked_host
from roost.control.survive.fencing import fence
from roost.ledger.schema.tables import host_amounts, host_liveness, vms
from roost.ledger.writes.transaction import Tx
from roost.testing.clock import HandClock
from roost.wire.bodies import ConfirmDead, CreateProject, CreateVMs, QuotaBody, ResizeVM
from tests.databases import PostgresServer
from tests.integration.control.rig import (
    ADMIN,
    OPERATOR,
    TIMERS,
    Rig,
    body_of,
    digest_of,
    rig_on,
    run_two,
)
from tests.turns import draws_in_turn

APART = {"name": "apart", "rule": "anti-affinity"}


async def kept(rig: Rig, column: Any = vms.c.id) -> list[Any]:
    return [next(iter(row.values())) for row in await rig.rows(select(column))]


def test_a_storm_on_both_overbooks_nothing_and_keeps_every_rule(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        for n in range(6):
            await one.host(f"h{n}", cpu=10, memory=64)
        await two.plane.follower.catch_up()
        quota = QuotaBody(vms=25)
        await one.plane.projects.create(CreateProject(name="lab", quota=quota), ADMIN)
        asked = []
        for n in range(60):
            rig = (one, two)[n % 2]
            asked.append(rig.create(f"v{n}", project="lab"))
            if n < 10:
                asked.append(rig.create(f"g{n}", groups=[APART]))
            asked.append(rig.create(f"w{n}", strategy="least_loaded"))
        found = await asyncio.gather(*asked, return_exceptions=True)
        wrong = [each for each in found if isinstance(each, BaseException)]
        assert all(isinstance(each, (NoFit, QuotaExceeded)) for each in wrong), wrong
        rows = await one.rows(select(vms))
        assert len(rows) == 60  # every core is taken, none twice
        assert sum(row["project"] == "lab" for row in rows) <= 25
        apart = [row["host"] for row in rows if row["name"].startswith("g")]
        assert len(set(apart)) == len(apart)
        used = await kept(one, host_amounts.c.cpu_milli_committed)
        assert used == [10_000] * 6
        await one.check()
        await two.check()

    run_two(postgres_url, test)


def test_a_stale_proposal_is_placed_again(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1", cpu=1)
        await one.host("h2", cpu=1)
        await two.plane.follower.catch_up()
        assert (await one.create("a")).host == "h1"
        assert two.committed("h1") == 0
        assert (await two.create("b")).host == "h2"
        await one.plane.vms.delete("a", None, OPERATOR)
        await one.settle()
        assert (await two.create("c")).host == "h1"  # a refusal asks what others did first
        await one.plane.hosts.cordon("h2", OPERATOR)
        await one.plane.vms.delete("b", None, OPERATOR)
        await one.settle()
        with pytest.raises(NoFit):
            await two.create("d")

    run_two(postgres_url, test)


def test_a_vm_that_loses_again_and_again_is_contended(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1", cpu=20, memory=64)
        await two.plane.follower.catch_up()
        claim = two.store.claim
        tries = 0

        async def too_late(*given: Any, **rest: Any) -> Any:
            nonlocal tries
            tries += 1
            await one.plane.hosts.cordon("h1", OPERATOR)
            await one.plane.hosts.uncordon("h1", OPERATOR)
            return await claim(*given, **rest)

        two.store.claim = too_late  # type: ignore[method-assign]
        with pytest.raises(PlacementContended):
            await two.create("web")
        assert tries == MOST_TRIES
        batch = CreateVMs(vms=[body_of("a"), body_of("b")], atomic=True)
        with pytest.raises(PlacementContended):
            await two.plane.admit.create_many(batch, OPERATOR, None, digest_of(batch))
        two.store.claim = claim  # type: ignore[method-assign]
        assert await kept(one) == []
        assert two.committed("h1") == 0
        await two.create("web")

    run_two(postgres_url, test)


def test_a_group_that_the_other_process_filled_is_seen_in_time(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        for n in range(3):
            await one.host(f"h{n}")
        await two.plane.follower.catch_up()
        rule = {"selector": {"app": "db"}, "rule": "anti-affinity"}
        first = await one.create("a", labels={"app": "db"})
        await one.create("b", labels={"app": "db"}, affinity=[rule])
        third = await two.create("c", labels={"app": "db"})  # has not heard of the rule
        hosts = await kept(one, vms.c.host)
        assert len(set(hosts)) == 3, (first.host, third.host)
        with pytest.raises(NoFit):
            await two.create("d", labels={"app": "db"})

    run_two(postgres_url, test)


def test_a_move_on_a_process_that_knows_too_little_keeps_to_the_rule(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        for n in range(2):
            await one.host(f"h{n}")
        await two.plane.follower.catch_up()
        await one.running("a", groups=[APART])
        await one.running("b", groups=[APART])
        with pytest.raises((NoFit, Conflict)):
            await two.migrate("a", "h1")
        await one.check()

    run_two(postgres_url, test)


def test_the_same_key_on_both_makes_one_vm(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1", cpu=1)
        await two.plane.follower.catch_up()
        body = body_of("web")
        asked = [
            rig.plane.admit.create(body, OPERATOR, "k", digest_of(body)) for rig in (one, two) * 5
        ]
        found = await asyncio.gather(*asked)
        assert len({each.vm.id for each in found}) == 1

    run_two(postgres_url, test)


def test_a_new_host_is_welcomed_by_a_process_that_is_behind(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1")
        agent = await one.host("h2", plane=two)
        assert agent.welcome is not None
        assert two.number("h2") == 2

    run_two(postgres_url, test)


def test_only_one_of_two_keeps_and_the_other_takes_over(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1")
        await one.create("web", cpu=9, on_no_fit="queue")
        for _ in range(10):
            one.clock.move(TIMERS.watch_s)
            await asyncio.gather(one.plane.run_singletons(), two.plane.run_singletons())
            holding = [rig.plane.leases.singleton("queue").token is not None for rig in (one, two)]
            assert sum(holding) == 1
        first, other = (one, two) if holding[0] else (two, one)
        await first.plane.run_singletons()
        await other.plane.run_singletons()
        for _ in range(int(TIMERS.singleton_s / TIMERS.watch_s) + 1):
            other.clock.move(TIMERS.watch_s)
            await other.plane.run_singletons()
        assert other.plane.leases.singleton("queue").token == 2
        await first.plane.run_singletons()
        assert first.plane.leases.singleton("queue").token is None

    run_two(postgres_url, test)


@pytest.mark.parametrize("seed", range(3))
def test_fences_and_renewals_that_race_agree(postgres_url: str, seed: int) -> None:
    async def test(one: Rig, two: Rig) -> None:
        rng = Random(seed)
        for n in range(4):
            await one.host(f"h{n}", guard=1.0)
        await two.plane.follower.catch_up()
        for _ in range(4):
            live = [agent for agent in one.agents.values() if agent.connected]
            rows = await one.rows(select(host_liveness))
            seen = {row["host"]: row["evidence"] for row in rows}
            for agent in live:
                agent.refusal = None
                agent.heartbeat()
                agent.speak()

            def fence_of(name: str, evidence: int) -> Callable[[Tx], object]:
                return lambda tx: fence(tx, locked_host(tx, name), "lease", "race", evidence)

            racing: list[Any] = [
                two.store.write(fence_of(agent.name, seen[one.number(agent.name)]))
                for agent in live
            ]
            racing.append(one.plane.evidence.flush())
            rng.shuffle(racing)
            found = await asyncio.gather(*racing, return_exceptions=True)
            wrong = [e for e in found if isinstance(e, Exception) and not isinstance(e, Conflict)]
            assert not wrong
            await one.plane.follower.catch_up()
            for agent in live:
                agent.listen()
                entry = one.plane.roster.entry(agent.name)
                assert entry is not None
                renewed = agent.lease.deadline == one.clock.now + TIMERS.lease_s
                assert (entry.row.fenced is None) == renewed  # one of them, never both or neither
                assert (agent.refusal is not None) == (not renewed)
            one.clock.move(3)
            for agent in one.agents.values():
                if not agent.connected:
                    agent.connect(one.plane)
            await one.settle()

    run_two(postgres_url, test)


def test_a_fence_of_one_is_known_to_the_sessions_of_the_other(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        agent = await one.host("h1", plane=two)
        await one.plane.follower.catch_up()
        await one.plane.run_singletons()
        one.clock.move(1)
        for _ in range(9):
            one.clock.move(TIMERS.watch_s)
            await one.plane.run_singletons()
        await one.plane.hosts.confirm_dead("h1", ConfirmDead(reason="x"), ADMIN)
        agent.heartbeat()
        agent.speak()
        await two.plane.evidence.flush()
        agent.listen()
        assert agent.refusal is not None
        assert agent.refusal.fenced

    run_two(postgres_url, test)


# Random interleavings

steps = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(
            ["create", "apart", "labelled", "batch", "atomic", "delete", "resize", "migrate",
             "cordon", "uncordon", "follow", "round", "keep"]
        ),
        st.integers(0, 5),
    ),
    min_size=4,
    max_size=18,
)  # fmt: skip


async def act(rig: Rig, what: str, number: int, at: int) -> None:
    """Do one thing on one process; a refusal is as good as a success."""
    plane = rig.plane
    vm, host = f"v{number}", f"h{number % 3}"
    rule = {"selector": {"app": "db"}, "rule": "anti-affinity"}
    match what:
        case "create":
            await rig.create(vm, cpu=1 + number % 2, strategy=("first_fit", "best_fit")[at % 2])
        case "apart":
            await rig.create(vm, groups=[APART])
        case "labelled":
            rules = [rule] if number % 2 else []
            await rig.create(vm, labels={"app": "db"}, affinity=rules)
        case "batch" | "atomic":
            body = CreateVMs(vms=[body_of(f"b{at}-{n}") for n in range(3)], atomic=what == "atomic")
            await plane.admit.create_many(body, OPERATOR, None, digest_of(body))
        case "delete":
            await plane.vms.delete(vm, None, OPERATOR)
        case "resize":
            await plane.vms.resize(vm, None, ResizeVM(cpu=1 + number % 3), OPERATOR)
        case "migrate":
            await rig.migrate(vm)
        case "cordon":
            await plane.hosts.cordon(host, OPERATOR)
        case "uncordon":
            await plane.hosts.uncordon(host, OPERATOR)
        case "follow":
            await plane.follower.catch_up()
        case "keep":
            await plane.run_singletons()


async def interleave(url: str, plan: list[tuple[int, str, int]]) -> None:
    clock = HandClock()
    async with (
        rig_on(url, clock=clock, name="first") as one,
        rig_on(url, clock=clock, name="second") as two,
    ):
        two.agents = one.agents
        for n in range(3):
            await one.host(f"h{n}", cpu=3)
        await two.plane.follower.catch_up()
        for start in range(0, len(plan), 3):  # three things at a time, on stale rosters
            some = plan[start : start + 3]
            acts = [
                act((one, two)[which], what, number, start + at)
                for at, (which, what, number) in enumerate(some)
            ]
            found = await asyncio.gather(*acts, return_exceptions=True)
            wrong = [e for e in found if e is not None and not isinstance(e, RoostError)]
            assert wrong == []
            if any(what == "round" for _, what, _ in some):
                await one.one_round()
            assert (await one.plane.doctor()).findings == []
        await one.settle(keep=True)
        await two.check()


@draws_in_turn(6)
@given(plan=steps)
def test_whatever_two_processes_do_at_once_the_laws_hold(
    postgres: PostgresServer, plan: list[tuple[int, str, int]]
) -> None:
    url = postgres.new_database("roost_template")
    asyncio.run(asyncio.wait_for(interleave(url, plan), 120))
