"""Members learn nothing of another project's VMs and groups by a preemption, on either side of it.

Everything that a member of either project can read is searched for the names and ids of the other.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, RoostError
from roost.control.preempt.choosing import Choosing, Plan
from roost.ledger.schema.tables import preemptions, vms
from roost.parts.access import Principal
from roost.wire.bodies import CreateProject
from roost.wire.groups import SetBudget
from roost.wire.priorities import ListPreemptions
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_preemption import classes, wait_for

#: A member of each project; the VMs, groups and the project itself have its animal in their names.
MEMBERS = {each: Principal(f"m-{each}", "member", project=each) for each in ("zebra", "quokka")}
Late = Callable[[Rig], Awaitable[object]]


async def two_projects(rig: Rig, count: int = 1, **given: Any) -> None:
    """Let VMs of one project fill a host for which a VM of the other waits."""
    await classes(rig)
    for name in MEMBERS:
        await rig.plane.projects.create(CreateProject(name=name), ADMIN)
    await rig.host("h1", cpu=2)
    group = {"name": "quokka-web", "rule": "spread", "hard": False}
    for n in range(count):
        await rig.running(f"quokka-{n}", project="quokka", cpu=2 // count, priority_class="low",
                          groups=[group], **{"restart": "elsewhere", **given})  # fmt: skip
    await rig.create("zebra-new", project="zebra", cpu=2, priority_class="high", on_no_fit="queue")
    await rig.plane.follower.catch_up()


async def read_by(rig: Rig, who: Principal) -> list[str]:
    """Return all that a member can read about its VMs, the preemptions and what happened."""
    found: list[Any] = [await rig.plane.events.page(0, 1000, who)]
    found.append(await rig.plane.asking.list(ListPreemptions(), who))
    for row in await rig.rows(select(vms).where(vms.c.project == who.project)):
        found.append(await rig.plane.vms.get(row["id"], None, who))
        found.append(await rig.plane.asking.get(row["id"], None, who))
    return [msgspec.json.encode(each).decode() for each in found]


async def keep_apart(rig: Rig, *answers: object) -> None:
    """Search what members of each project read for the other; `answers` are the zebra's."""
    ids = {row["id"]: row["project"] for row in await rig.rows(select(vms))}
    for name, who in MEMBERS.items():
        (other,) = set(MEMBERS) - {name}
        read = await read_by(rig, who)
        if name == "zebra":
            read += [msgspec.json.encode(each).decode() for each in answers]
        words = {other, *(vm for vm, project in ids.items() if project == other)}
        leaks = [(word, text) for text in read for word in words if word in text]
        assert not leaks, f"a member of {name} reads {leaks}"


async def ask(rig: Rig) -> object:
    """Let a member ask for room; return the answer, or the error as it is sent."""
    try:
        return await rig.plane.asking.begin("zebra-new", None, MEMBERS["zebra"])
    except RoostError as error:
        return error.as_json()


@pytest.mark.parametrize("count", [1, 2])
def test_nobody_is_named_while_vms_are_stopped(database_url: str, count: int) -> None:
    async def test(rig: Rig) -> None:
        await two_projects(rig, count)
        planned = await rig.plane.asking.get("zebra-new", None, MEMBERS["zebra"])
        asked = await ask(rig)
        assert len(await rig.rows(select(preemptions))) == 1
        pending = (await rig.get("zebra-new", "zebra")).pending
        assert pending is not None
        told = "a VM of another project" if count == 1 else "2 VMs of other projects"
        assert pending.message == f"room is being made for 'zebra-new' on h1: {told}"
        await keep_apart(rig, planned, asked)
        for _ in range(4):
            await rig.settle(keep=True)
            await keep_apart(rig)
        assert (await rig.get("zebra-new", "zebra")).state == "running"
        stopped = (await rig.get("quokka-0", "quokka")).pending
        assert stopped is not None
        # The operator, who sees all, is told for whom.
        events = (await rig.plane.events.page(0, 1000, OPERATOR)).events
        (mark, *_) = [e.changes["displaced"] for e in events if e.kind == "vm.displaced"]
        assert (await rig.get("zebra-new", "zebra")).id in str(mark)

    run(database_url, test)


async def _spend_the_budget(rig: Rig) -> None:
    await rig.plane.groups.set_budget("quokka-web", "quokka", SetBudget(at_most=0), ADMIN)


async def _delete(rig: Rig) -> None:
    await rig.plane.vms.delete("quokka-0", "quokka", ADMIN)


async def _delete_at_once(rig: Rig) -> None:
    await _delete(rig)
    await rig.settle(check=False)


@pytest.mark.parametrize("late", [_spend_the_budget, _delete, _delete_at_once])
def test_why_nobody_leaves_is_not_explained_to_a_member(
    database_url: str, late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_projects(rig)
        choose = Choosing.choose

        async def then(self: Choosing, *given: Any, **named: Any) -> Plan | None:
            plan = await choose(self, *given, **named)
            await late(rig)
            return plan

        with monkeypatch.context() as slow:
            slow.setattr(Choosing, "choose", then)
            answer = await ask(rig)
        assert "no room is made yet" in str(answer)
        await keep_apart(rig, answer)

    run(database_url, test)


def test_why_a_preemption_ends_names_nobody(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_projects(rig)
        asked = await ask(rig)
        # From now on it may not be stopped.
        (old,) = await rig.rows(select(vms).where(vms.c.name == "quokka-0"))
        await rig.set_restart(old["id"], "here")
        for _ in range(3):
            await rig.settle(keep=True)
        assert await rig.rows(select(preemptions)) == []
        await keep_apart(rig, asked)

    run(database_url, test)


def test_vms_of_the_same_project_are_named(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="preempt")
        pending = (await rig.get("new")).pending
        assert pending is not None
        assert pending.message == "room is being made for 'new' on h1: old (stop)"
        await wait_for(rig, "new", "h1")
        stopped = (await rig.get("old")).pending
        assert stopped is not None

    run(database_url, test)


def test_an_operator_is_told_why_nobody_leaves(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_projects(rig)
        choose = Choosing.choose

        async def then(self: Choosing, *given: Any, **named: Any) -> Plan | None:
            plan = await choose(self, *given, **named)
            await _spend_the_budget(rig)
            return plan

        with monkeypatch.context() as slow:
            slow.setattr(Choosing, "choose", then)
            with pytest.raises(Conflict, match="budget of group 'quokka-web'"):
                await rig.plane.asking.begin("zebra-new", "zebra", OPERATOR)

    run(database_url, test)
