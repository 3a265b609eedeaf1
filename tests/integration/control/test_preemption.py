"""Room is made for VMs that wait by VMs of lower priority: moved, else stopped."""

from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, Forbidden, InvalidRequest, NoFit, NotFound, Unavailable
from roost.control.create.queueing import Queue
from roost.control.preempt import tending
from roost.ledger.schema.tables import holds, preemptions
from roost.parts.access import Principal
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import CreateProject, CreateVM, DemandBody, DryRun, MigrateVM, RejectionBody
from roost.wire.groups import SetBudget
from roost.wire.policies import ChangePolicy, CreatePolicy
from roost.wire.priorities import ChangePriorityClass, CreatePriorityClass
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_dead_hosts import LONG_S, switch_off
from tests.integration.control.test_reservations import reserve, shop


async def classes(rig: Rig) -> None:
    """Make a class that displaces others, one that never does, and one for those who are."""
    for body in (
        CreatePriorityClass(name="high", value=100),
        CreatePriorityClass(name="calm", value=50, preempts="never"),
        CreatePriorityClass(name="low", value=-10),
    ):
        await rig.plane.priorities.create(body, ADMIN)


async def wait_for(rig: Rig, name: str, host: str, rounds: int = 8) -> None:
    """Let everybody act until a VM runs on a host."""
    for _ in range(rounds):
        await rig.settle(keep=True)
        if await rig.state(name) == ("running", host):
            return
    raise AssertionError(f"{name} is {await rig.state(name)}")


def test_a_waiting_vm_displaces_a_lower_one_that_waits_then(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        made = await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        assert made.state == "pending"
        await wait_for(rig, "new", "h1")
        old = await rig.get("old")
        assert (old.state, old.host) == ("pending", None)
        assert old.pending is not None
        await rig.host("h2", cpu=2)
        await wait_for(rig, "old", "h2")
        await rig.settle(keep=True)
        assert rig.plane.roster.displaced == {}

    run(database_url, test)


def test_a_vm_that_finds_another_host_is_moved(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=4)
        await rig.host("h2", cpu=1)
        await rig.running("a", cpu=3)
        await rig.running("small", constraints={"hosts": ["h1", "h2"]})
        assert await rig.state("small") == ("running", "h1")
        await rig.create("new", cpu=1, priority_class="high", on_no_fit="queue",
                         constraints={"hosts": ["h1"]})  # fmt: skip
        await wait_for(rig, "new", "h1")
        assert await rig.state("small") == ("running", "h2")

    run(database_url, test)


def test_equal_and_calm_ones_displace_nobody(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=1)
        await rig.running("old", priority_class="high", restart="elsewhere")
        await rig.create("equal", priority_class="high", on_no_fit="queue")
        await rig.settle(keep=True)
        await rig.plane.vms.delete("old", None, OPERATOR)
        await wait_for(rig, "equal", "h1")
        await rig.plane.vms.delete("equal", None, OPERATOR)
        await rig.settle(keep=True)
        await rig.running("low", priority_class="low", restart="elsewhere")
        await rig.create("calm", priority_class="calm", on_no_fit="queue")
        await rig.create("plain", priority=99, on_no_fit="queue")
        for _ in range(3):
            await rig.settle(keep=True)
        assert await rig.state("low") == ("running", "h1")

    run(database_url, test)


def test_a_policys_word_comes_before_that_of_the_class(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.plane.policies.create(CreatePolicy(name="meek", preemption="never"), ADMIN)
        await rig.plane.policies.create(CreatePolicy(name="bold", preemption="lower"), ADMIN)
        await rig.host("h1", cpu=1)
        await rig.running("old", priority_class="low", restart="elsewhere")
        with pytest.raises(InvalidRequest, match="its policy lets it displace nobody"):
            await rig.create("no", priority_class="high", policy="meek", on_no_fit="preempt")
        with pytest.raises(InvalidRequest, match="no priority class"):
            await rig.create("no", priority=9, policy="bold", on_no_fit="preempt")
        for policy, victims in (("meek", None), ("bold", ["old"])):
            dry = DryRun(
                name="dry", demand=DemandBody(cpu=1, memory="1GiB"), priority_class="calm",
                policy=policy, on_no_fit="queue",
            )  # fmt: skip
            answer = await rig.plane.questions.dry_run(dry, OPERATOR)
            assert isinstance(answer, RejectionBody)
            shown = answer.preemption
            assert (shown and [each.name for each in shown.victims]) == victims
        await rig.create("new", priority_class="high", policy="meek", on_no_fit="queue")
        await rig.settle(keep=True)
        assert await rig.state("old") == ("running", "h1")
        assert await rig.plane.preempting.list_all() == []
        with pytest.raises(Conflict, match="its policy 'meek' lets it displace nobody"):
            await rig.plane.asking.begin("new", None, OPERATOR)
        await rig.plane.policies.change("meek", ChangePolicy(preemption="lower"), ADMIN)
        await wait_for(rig, "new", "h1")

    run(database_url, test)


def test_under_a_bold_policy_a_calm_vm_displaces_lower_ones(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.plane.policies.create(CreatePolicy(name="bold", preemption="lower"), ADMIN)
        await rig.host("h1", cpu=1)
        await rig.running("old", priority_class="low", restart="elsewhere")
        await rig.create("calm", priority_class="calm", policy="bold", on_no_fit="queue")
        await wait_for(rig, "calm", "h1")

    run(database_url, test)


def test_who_may_only_be_moved_is_never_stopped(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=1)
        await rig.running("old", priority_class="low")  # restart: here
        await rig.create("new", priority_class="high", on_no_fit="queue")
        for _ in range(3):
            await rig.settle(keep=True)
        assert await rig.state("old") == ("running", "h1")
        assert await rig.state("new") == ("pending", None)

    run(database_url, test)


def test_freed_room_is_held_from_a_direct_create(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=4)
        for n in range(4):
            await rig.running(f"v{n}", priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=3, priority_class="high", on_no_fit="queue")
        await rig.plane.run_singletons()  # begun
        await rig.plane.run_singletons()  # stopped
        for _ in range(6):
            await rig.one_round()  # copies are destroyed, room becomes free and is held
        thief = await rig.create("thief", priority=1000, on_no_fit="queue")
        assert thief.state == "pending"
        await wait_for(rig, "new", "h1")
        await rig.check()

    run(database_url, test)


def test_budgets_keep_members_from_being_displaced(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        group = {"name": "web", "rule": "spread", "hard": False}
        for n in range(2):
            await rig.running(f"w{n}", groups=[group], priority_class="low", restart="elsewhere")
        await rig.plane.groups.set_budget("web", None, SetBudget(at_most=1), OPERATOR)
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        for _ in range(3):
            await rig.settle(keep=True)
        assert [(await rig.state(f"w{n}"))[0] for n in range(2)] == ["running", "running"]
        await rig.create("one", cpu=1, priority_class="high", on_no_fit="queue")
        await wait_for(rig, "one", "h1")
        assert sorted([(await rig.state(f"w{n}"))[0] for n in range(2)]) == ["pending", "running"]

    run(database_url, test)


def test_a_preemption_survives_a_restart_and_ends_with_its_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        for n in range(2):
            await rig.running(f"v{n}", priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        await rig.plane.run_singletons()
        await rig.restart()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle(check=False)
        await rig.plane.vms.delete("new", None, OPERATOR)
        for _ in range(4):
            await rig.pass_by(20)
            await rig.settle(keep=True)
        states = sorted([await rig.state(f"v{n}") for n in range(2)])
        assert states == [("running", "h1"), ("running", "h1")]
        assert await rig.plane.preempting.list_all() == []

    run(database_url, test)


def test_a_create_makes_room_or_is_refused(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        with pytest.raises(NoFit):
            await rig.create("huge", cpu=3, priority_class="high", on_no_fit="preempt")
        with pytest.raises(InvalidRequest, match="no priority class"):
            await rig.create("plain", cpu=2, priority=9, on_no_fit="preempt")
        with pytest.raises(NotFound, match="no priority class 'hihg'"):
            await rig.create("typo", priority_class="hihg")
        dry = DryRun(
            name="new", demand=DemandBody(cpu=2, memory="1GiB"), priority_class="high",
            on_no_fit="preempt",
        )  # fmt: skip
        answer = await rig.plane.questions.dry_run(dry, OPERATOR)
        assert isinstance(answer, RejectionBody)
        assert answer.preemption is not None
        assert [(v.name, v.how) for v in answer.preemption.victims] == [("old", "stop")]
        made = await rig.create("new", cpu=2, priority_class="high", on_no_fit="preempt")
        assert made.state == "pending"
        assert len(await rig.plane.preempting.list_all()) == 1
        await wait_for(rig, "new", "h1")

    run(database_url, test)


def test_victims_are_found_although_the_database_was_away_at_first(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        asked = {"cpu": 2, "priority_class": "high", "on_no_fit": "preempt"}
        catch_up = rig.plane.follower.catch_up

        async def away() -> None:
            monkeypatch.setattr(rig.plane.follower, "catch_up", catch_up)
            raise Unavailable("the database is away")

        rig.plane.roster.ranked = False  # as in a process that has just started
        monkeypatch.setattr(rig.plane.follower, "catch_up", away)
        with pytest.raises(Unavailable):
            await rig.create("new", **asked)
        assert (await rig.create("new", **asked)).state == "pending"
        await wait_for(rig, "new", "h1")

    run(database_url, test)


def test_a_displaced_vm_displaces_nobody_until_it_has_run(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.plane.priorities.create(CreatePriorityClass(name="top", value=1000), ADMIN)
        await rig.host("h1", cpu=1)
        await rig.host("h2", cpu=1)
        await rig.running("middle", priority_class="high", restart="elsewhere")
        await rig.running("lowest", priority_class="low", restart="elsewhere",
                          constraints={"hosts": ["h2"]})  # fmt: skip
        await rig.create("top", priority_class="top", on_no_fit="queue",
                         constraints={"hosts": ["h1"]})  # fmt: skip
        await wait_for(rig, "top", "h1")
        for _ in range(3):
            await rig.settle(keep=True)
        assert await rig.state("lowest") == ("running", "h2")
        assert (await rig.state("middle"))[0] == "pending"

    run(database_url, test)


def test_room_adds_up_for_the_first_in_line_and_no_create_takes_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=3)
        for n in range(3):
            await rig.running(f"v{n}")
        await rig.create("big", cpu=3, on_no_fit="queue")
        rig.clock.move(100)
        await rig.plane.vms.delete("v0", None, OPERATOR)
        await rig.settle()
        await rig.plane.run_singletons()  # the first in line, patient by now
        await rig.plane.follower.catch_up()
        assert (await rig.create("thief", on_no_fit="queue")).state == "pending"
        for n in (1, 2):
            await rig.plane.vms.delete(f"v{n}", None, OPERATOR)
            await rig.settle()
            assert (await rig.create(f"thief{n}", on_no_fit="queue")).state == "pending"
        seen = (await rig.get("big")).pending
        assert seen is not None
        await wait_for(rig, "big", "h1")
        assert await rig.rows(select(holds)) == []

    run(database_url, test, patience_s=60.0)


def test_what_is_held_for_one_that_goes_is_free_again(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=2)
        for n in range(2):
            await rig.running(f"v{n}")
        await rig.create("big", cpu=2, on_no_fit="queue")
        rig.clock.move(100)
        await rig.plane.vms.delete("v0", None, OPERATOR)
        await rig.settle()
        await rig.plane.run_singletons()
        assert len(await rig.rows(select(holds))) == 1
        await rig.plane.vms.delete("big", None, OPERATOR)
        await rig.settle(keep=True)
        assert await rig.rows(select(holds)) == []
        assert (await rig.create("small")).host == "h1"

    run(database_url, test, patience_s=60.0)


def test_classes_and_budgets_refuse_bad_input(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        create, change = rig.plane.priorities.create, rig.plane.priorities.change
        with pytest.raises(Conflict, match="already"):
            await create(CreatePriorityClass(name="high", value=1), ADMIN)
        with pytest.raises(Forbidden):
            await create(CreatePriorityClass(name="mine", value=1), OPERATOR)
        for name in ("high", "low"):
            await change(name, ChangePriorityClass(default=True), ADMIN)
        found = (await rig.plane.priorities.list()).classes
        assert [each.name for each in found if each.default] == ["low"]
        await rig.host("h1")
        made = await rig.create("plain")
        assert (made.priority, made.priority_class) == (-10, "low")
        with pytest.raises(InvalidRequest, match="is not that of"):
            await rig.create("both", priority=3, priority_class="high")
        with pytest.raises(Conflict, match="1 VMs have"):
            await rig.plane.priorities.delete("low", ADMIN)
        await rig.plane.priorities.delete("low", ADMIN, force=True)
        group = {"name": "g", "rule": "spread", "hard": False}
        await rig.create("member", groups=[group])
        with pytest.raises(Conflict, match="limits nothing"):
            await rig.plane.groups.set_budget("g", None, SetBudget(at_most=2), OPERATOR)
        with pytest.raises(InvalidRequest):
            await rig.plane.groups.set_budget("g", None, SetBudget(at_most=1, share=0.5), OPERATOR)

    run(database_url, test)


def test_a_drain_and_a_move_by_hand_keep_the_budget(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.host("h2")
        group = {"name": "g", "rule": "affinity", "hard": False}
        for n in range(2):
            await rig.running(f"w{n}", groups=[group])
        await rig.plane.groups.set_budget("g", None, SetBudget(share=0.5), OPERATOR)
        await rig.migrate("w0", "h2")
        with pytest.raises(Conflict, match="disruption budget"):
            await rig.migrate("w1", "h2")
        await rig.plane.moves.migrate(
            "w1", None, MigrateVM(host="h2", ignore_budget=True), OPERATOR
        )
        await rig.settle()
        shown = await rig.plane.groups.get("g", None, OPERATOR)
        assert shown.budget is not None
        assert (shown.budget.allowed, shown.budget.away) == (1, 0)
        await rig.plane.groups.set_budget("g", None, SetBudget(at_most=0), OPERATOR)
        await rig.plane.hosts.drain("h2", OPERATOR)
        for _ in range(3):
            await rig.settle(keep=True)
        assert await rig.state("w0") == ("running", "h2")
        await rig.plane.groups.set_budget("g", None, SetBudget(), OPERATOR)
        await wait_for(rig, "w0", "h1")

    run(database_url, test)


def test_a_vm_whose_host_has_not_heard_that_it_may_run_elsewhere_is_not_stopped(
    database_url: str,
) -> None:
    """The end of the host's lease would not stop the copy, and another would be started."""

    async def test(rig: Rig) -> None:
        await classes(rig)
        lost = await rig.host("h1", cpu=2, guard=5.0)
        await rig.running("old", cpu=2, priority_class="low")
        lost.disconnect()
        await rig.set_restart("old", "elsewhere")
        assert (await rig.row("old")).restart == "elsewhere_asked"
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        await rig.pass_by(4, silent=("h1",))
        assert (await rig.row("old")).host is not None
        await rig.host("h2", cpu=2)
        await rig.host("h3", cpu=2)
        await rig.pass_by(LONG_S, silent=("h1",))  # looks that no VM has two copies

    run(database_url, test)


def test_a_host_is_fenced_for_a_vm_that_was_displaced_there(database_url: str) -> None:
    asked = []

    async def command(name: str) -> bool:
        asked.append(name)
        return True

    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        for _ in range(2):
            await rig.plane.run_singletons()
            await rig.plane.follower.catch_up()
        assert (await rig.row("old")).host is None
        switch_off(rig, "h1")
        await rig.host("h2", cpu=4)
        await rig.pass_by(LONG_S)
        assert asked
        assert await rig.state("old") == ("running", "h2")

    run(database_url, test, fence_command=command)


def test_a_vm_that_draws_on_a_reservation_is_not_stopped_in_vain(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await shop(rig, cpu=4)
        await reserve(rig, cores=4)
        await rig.running("own", project="shop", cpu=4, priority_class="low", restart="elsewhere")
        assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 1
        before = await rig.row("own")
        await rig.create("new", cpu=4, priority_class="high", on_no_fit="queue")
        await rig.pass_by(20)
        assert (await rig.row("own")).generation == before.generation

    run(database_url, test, dated=True)


def test_nobody_is_stopped_for_a_vm_that_has_found_a_host_meanwhile(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive = tending.arrive

    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        await rig.plane.run_singletons()
        queue = next(part for part in rig.plane.parts if isinstance(part, Queue))

        async def late(*given: Any, **named: Any) -> bool:
            found = await arrive(*given, **named)
            await rig.host("h2", cpu=2)
            await queue.look()
            await rig.plane.follower.catch_up()
            return found

        monkeypatch.setattr(tending, "arrive", late)
        await rig.plane.run_singletons()
        monkeypatch.undo()
        await rig.settle(keep=True)
        assert await rig.state("old") == ("running", "h1")
        assert await rig.state("new") == ("running", "h2")

    run(database_url, test)


def test_a_member_gives_no_priority_above_that_of_members(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        await rig.host("h1", cpu=8)
        member = Principal("mia", "member", project="lab")

        async def create(name: str, **given: Any) -> None:
            demand = DemandBody(cpu=1, memory="1GiB")
            body = CreateVM(name=name, project="lab", demand=demand, **given)
            await rig.plane.admit.create(body, member, None, b"")

        for given in ({"priority_class": "high"}, {"priority": 1}):
            with pytest.raises(Forbidden, match="a priority of 0 at most"):
                await create("v", **given)
        await create("low", priority_class="low")
        await create("plain")
        await rig.plane.priorities.change("calm", ChangePriorityClass(default=True), ADMIN)
        await create("as-others")
        assert (await rig.get("as-others", "lab")).priority == 50
        with pytest.raises(Forbidden, match="a priority of 50 at most"):
            await create("v", priority_class="high")

    run(database_url, test)


def test_a_vm_that_a_host_refused_displaces_nobody(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=4)
        for number in range(4):
            await rig.running(f"v{number}", priority_class="low", restart="elsewhere")
        made = await rig.create("new", priority_class="high", on_no_fit="queue")
        refused = 0
        for _ in range(20):
            await rig.plane.run_singletons()
            await rig.plane.follower.catch_up()
            row = await rig.row("new")
            if row.host is not None:
                code = "insufficient_resources"
                said = SeenVM(made.id, row.generation, "failed", code, "full", "capacity")
                await rig.report("h1", said)
                refused += 1
            else:
                await rig.one_round()
            running = [(await rig.state(f"v{number}"))[0] for number in range(4)].count("running")
            assert running >= 3
        assert refused >= 1

    run(database_url, test)


def test_a_victim_that_leaves_by_itself_is_waited_for(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=4)
        for name in ("a", "b"):
            await rig.running(name, cpu=2, priority_class="low", restart="elsewhere")
        only = {"hosts": ["h1"]}
        await rig.create("new", cpu=4, priority_class="high", on_no_fit="queue", constraints=only)
        await rig.plane.run_singletons()
        await rig.host("h2", cpu=2)
        await rig.migrate("b", "h2")
        await rig.plane.run_singletons()
        await rig.plane.follower.catch_up()
        assert len(await rig.rows(select(preemptions))) == 1
        await wait_for(rig, "new", "h1")
        assert await rig.state("b") == ("running", "h2")

    run(database_url, test)


def test_room_for_the_first_in_line_is_not_held_on_a_host_that_is_lost(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", cpu=4)
        await rig.running("a", cpu=3)
        await rig.create("big", cpu=4, on_no_fit="queue")
        await rig.running("x", cpu=1)
        await rig.pass_by(20)
        await rig.plane.vms.delete("x", None, OPERATOR)
        await rig.pass_by(10)
        assert await rig.rows(select(holds))
        await rig.host("h2", cpu=4)
        await rig.create("b", cpu=1, constraints={"hosts": ["h2"]})
        lost.disconnect()
        await rig.pass_by(76, silent=("h1",))
        assert {row["host"] for row in await rig.rows(select(holds))} <= {rig.number("h2")}

    run(database_url, test, patience_s=16.0)


def test_who_is_refused_each_time_is_not_in_the_way_of_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = tending.begin

    def refused(tx: Any, vm: Any, plan: Any) -> Any:
        if vm.name == "first":
            raise Conflict("an earlier host has yet to answer", vm=vm.id)
        return begin(tx, vm, plan)

    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=1)
        await rig.running("old", priority_class="low", restart="elsewhere")
        for name in ("first", "second"):
            await rig.create(name, priority_class="high", on_no_fit="queue")
        await rig.pass_by(20)
        assert await rig.state("second") == ("running", "h1")

    monkeypatch.setattr(tending, "begin", refused)
    monkeypatch.setattr(tending, "_MOST_ASKED", 1)
    run(database_url, test)
