"""Two processes on one PostgreSQL: one changes a group while the other places VMs into it.

The law is the doctor's: no hard rule is ever broken, no member is of a group that is gone. Each
race is also run on builds that are broken on purpose, and must find the law broken there.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any

import pytest
from sqlalchemy import literal, select

from roost.base.errors import Conflict, NoFit, NotFound
from roost.control.groups import defining
from roost.control.groups import groups as changing
from roost.ledger.claims.proposals import Proposal, outpaced
from roost.ledger.postgres import claims as postgresclaims
from roost.ledger.schema.rows import GroupRow
from roost.ledger.schema.tables import groups
from roost.ledger.writes.transaction import Tx
from roost.wire.groups import CreateGroup, GroupVMs, SetGroupRule
from tests.integration.control.rig import OPERATOR, Rig, run, run_two

APART = SetGroupRule(rule="anti-affinity")
NEAR = SetGroupRule(rule="affinity", hard=False, weight=100)
EVEN = SetGroupRule(rule="spread", hard=False)

Change = Callable[[Rig], Awaitable[object]]
Race = Callable[[Rig, Rig], Awaitable[None]]


async def fleet(one: Rig, two: Rig, rule: SetGroupRule, hosts: int = 3) -> None:
    """Some hosts, a group, and a VM on the first host that is no member yet."""
    for n in range(hosts):
        await one.host(f"h{n}", cpu=8, memory=64)
    body = CreateGroup(name="g", rule=rule.rule, hard=rule.hard, weight=rule.weight)
    await one.plane.groups.create(body, OPERATOR)
    await one.create("old", constraints={"hosts": ["h0"]})
    await one.settle()
    await two.plane.follower.catch_up()


async def meanwhile(rig: Rig, change: Change, other: Rig, asked: Awaitable[Any]) -> Any:
    """Let `other` change something after `rig` has decided and before it commits, once."""
    claim = rig.store.claim
    left = 1

    async def too_late(*given: Any, **rest: Any) -> Any:
        nonlocal left
        if left:
            left = 0
            await change(other)
        return await claim(*given, **rest)

    rig.store.claim = too_late  # type: ignore[method-assign]
    try:
        return await asked
    finally:
        rig.store.claim = claim  # type: ignore[method-assign]


def adding(*vms: str) -> Change:
    return lambda rig: rig.plane.groups.add("g", None, GroupVMs(vms=list(vms)), OPERATOR)


def ruling(rule: SetGroupRule) -> Change:
    return lambda rig: rig.plane.groups.set_rule("g", None, rule, OPERATOR)


async def lawful(one: Rig, two: Rig) -> None:
    for rig in (one, two):
        assert (await rig.plane.doctor()).findings == []
        await rig.check()


async def a_member_is_added(one: Rig, two: Rig) -> None:
    await fleet(one, two, APART)
    made = await meanwhile(two, adding("old"), one, two.create("new", groups=["g"]))
    await lawful(one, two)
    assert made.host == "h1"


async def the_rule_is_set(one: Rig, two: Rig) -> None:
    await fleet(one, two, NEAR)
    await adding("old")(one)
    await two.plane.follower.catch_up()
    made = await meanwhile(two, ruling(APART), one, two.create("new", groups=["g"]))
    await lawful(one, two)
    assert made.host == "h1"


async def it_is_made_again_with_another_rule(one: Rig, two: Rig) -> None:
    await fleet(one, two, EVEN)
    await one.create("far", constraints={"hosts": ["h2"]}, groups=["g"])
    await two.plane.follower.catch_up()

    async def change(rig: Rig) -> None:
        await rig.plane.groups.delete("g", None, OPERATOR, force=True)
        await rig.plane.groups.create(CreateGroup(name="g", rule="anti-affinity"), OPERATOR)
        await adding("old")(rig)

    made = await meanwhile(two, change, one, two.create("new", groups=["g"]))
    await lawful(one, two)
    assert made.host == "h1"


async def one_that_waits_loses_its_group(one: Rig, two: Rig) -> None:
    await fleet(one, two, APART)
    asked = two.create("waits", groups=["g"], on_no_fit="queue", cpu=100)
    with contextlib.suppress(Conflict):
        await meanwhile(two, lambda rig: rig.plane.groups.delete("g", None, OPERATOR), one, asked)
    await lawful(one, two)
    assert await one.row("waits") is None


async def a_rule_is_set_that_does_not_hold(one: Rig, two: Rig) -> None:
    await fleet(one, two, NEAR)
    await adding("old")(one)
    await two.create("new", groups=["g"])
    with contextlib.suppress(Conflict):
        await ruling(APART)(one)
    await lawful(one, two)


RACES = (
    a_member_is_added,
    the_rule_is_set,
    it_is_made_again_with_another_rule,
    one_that_waits_loses_its_group,
    a_rule_is_set_that_does_not_hold,
)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_a_create_sees_what_another_process_did_to_its_group(postgres_url: str, race: Race) -> None:
    run_two(postgres_url, race)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_a_create_sees_what_was_done_to_its_group_meanwhile(sqlite_url: str, race: Race) -> None:
    run(sqlite_url, lambda rig: race(rig, rig))


# Planted mistakes


def _members_alone(tx: Tx, row: GroupRow, **values: Any) -> GroupRow:
    """Change a group and leave its generation as it is."""
    changed = tx.change(groups, {"id": row.id}, generation=row.generation, **values)
    assert changed is not None
    return GroupRow(**changed)


def _who_waits_depends_on_nothing(
    proposals: Sequence[Proposal], alive: Iterable[int], *rest: Any
) -> list[int]:
    waits = [index for index in alive if proposals[index].claim is None]
    return [index for index in outpaced(proposals, alive, *rest) if index not in waits]


#: What is wrong: the module, the name in it, and what stands there instead; the race that finds it.
BROKEN: dict[str, tuple[Any, str, Any, Race]] = {
    "a member joins and the generation stays": (
        changing, "_advance", _members_alone, a_member_is_added,
    ),
    "a rule is set and the generation stays": (
        changing, "_advance", _members_alone, the_rule_is_set,
    ),
    "a group begins with generation 0": (
        defining, "_HEAD", select(literal(0)), it_is_made_again_with_another_rule,
    ),
    "whoever waits joins a group that is gone": (
        postgresclaims, "outpaced", _who_waits_depends_on_nothing, one_that_waits_loses_its_group,
    ),
    "nobody asks whether a rule holds": (
        changing, "_require_holds", lambda *given: None, a_rule_is_set_that_does_not_hold,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_build_is_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    module, name, instead, race = BROKEN[mistake]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises((AssertionError, KeyError)) as found:
        run_two(postgres_url, race)
    assert "group" in str(found.value) or "KeyError" in repr(found)


# Everything at once


def test_a_storm_of_changes_and_creates_keeps_every_rule(postgres_url: str) -> None:
    random = Random("groups")
    rules = (APART, EVEN, NEAR, SetGroupRule(rule="affinity"), SetGroupRule(rule="spread"))

    def one_thing(rig: Rig, n: int) -> Awaitable[object]:
        objects, old = rig.plane.groups, GroupVMs(vms=[f"v{random.randrange(12)}"])
        group = f"g{random.randrange(2)}"
        match random.randrange(9):
            case 0:
                return objects.set_rule(group, None, random.choice(rules), OPERATOR)
            case 1 | 2:
                return objects.add(group, None, old, OPERATOR)
            case 3:
                return objects.remove(group, None, old, OPERATOR)
            case 4 if n % 4 == 0:
                return objects.delete(group, None, OPERATOR, force=True)
            case 5:
                body = CreateGroup(name=group, rule="anti-affinity")
                return objects.create(body, OPERATOR)
            case 6:
                return rig.plane.vms.delete(old.vms[0], None, OPERATOR)
        return rig.create(f"v{n}", groups=[group], on_no_fit=random.choice(["fail", "queue"]))

    async def test(one: Rig, two: Rig) -> None:
        for n in range(6):
            await one.host(f"h{n}", cpu=8, memory=64)
        for name in ("g0", "g1"):
            await one.plane.groups.create(CreateGroup(name=name, rule="anti-affinity"), OPERATOR)
        await two.plane.follower.catch_up()
        for n in range(12):
            await one.create(f"v{n}", strategy="least_loaded")
        told: Counter[str] = Counter()
        for n in range(12, 112, 10):
            things = [one_thing((one, two)[m % 2], m) for m in range(n, n + 10)]
            for found in await asyncio.gather(*things, return_exceptions=True):
                if isinstance(found, BaseException):
                    assert isinstance(found, (Conflict, NoFit, NotFound)), found
                    told[type(found).__name__] += 1
            await one.settle(check=False)
            await lawful(one, two)
        assert told["Conflict"]
        assert told.total() < 80

    run_two(postgres_url, test)
