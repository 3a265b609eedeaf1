"""Constraints as objects: made, changed, tried, checked and deleted, and what they do to VMs."""

from typing import Any

import pytest

from roost.base.errors import Conflict, Forbidden, NoFit, NotFound, RuleError
from roost.parts.access import Principal
from roost.wire.bodies import CreateProject, MigrateVM, ResizeVM
from roost.wire.constraints import (
    ChangeConstraint,
    CheckConstraints,
    CreateConstraint,
    DryRunConstraint,
    ListConstraints,
)
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

SSD = 'host.labels["disk"] == "ssd"'
MEMBER = Principal("mia", "member", project="shop")


async def two_hosts(rig: Rig) -> None:
    await rig.host("slow", cpu=8, memory=64, labels={"disk": "hdd"})
    await rig.host("fast", cpu=8, memory=64, labels={"disk": "ssd"})


async def rule(rig: Rig, name: str = "ssd", expression: Any = SSD, **more: Any) -> Any:
    who = more.pop("who", ADMIN)
    key = more.pop("key", None)
    body = CreateConstraint(name=name, expression=expression, **more)
    return await rig.plane.constraints.create(body, who, key)


async def violated(rig: Rig) -> list[tuple[str, str, str]]:
    found = await rig.plane.constraints.check(CheckConstraints(), ADMIN)
    assert found.total == len(found.violations)
    return [(each.name, each.host, each.rule) for each in found.violations]


def test_a_hard_rule_holds_from_its_making_to_its_end(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        assert (await rig.create("before")).host == "slow"
        made = await rule(rig, description="only where disks are quick")
        assert (made.id, made.kind, made.version, made.form) == ("ssd", "hard", 1, "cel")
        assert made.tree == {"left": 'host.labels["disk"]', "operator": "eq", "right": "ssd"}
        assert (await rig.create("under")).host == "fast"
        page = await rig.plane.constraints.list(ListConstraints(), ADMIN)
        assert [each.id for each in page.constraints] == ["ssd"]
        assert (await rig.plane.constraints.get("ssd", None, OPERATOR)).expression == SSD
        assert await violated(rig) == [("before", "slow", "ssd")]
        assert (await rig.state("before"))[1] == "slow"
        await rig.plane.constraints.delete("ssd", None, ADMIN)
        assert (await rig.create("after")).host == "slow"
        with pytest.raises(NotFound, match="no rule 'ssd' of the fleet"):
            await rig.plane.constraints.get("ssd", None, ADMIN)
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_rules_are_there_after_a_restart(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig)
        await rig.restart()
        assert (await rig.create("vm")).host == "fast"

    run(database_url, test)
