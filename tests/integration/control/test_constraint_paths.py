"""A hard rule holds on every path that gives a VM a host: each path, and a rule in its way."""

from typing import Any

import pytest

from roost.base.errors import NoFit
from roost.control.survive.requested import RequestedRecovery
from roost.parts.access import Principal
from roost.wire.bodies import (
    CapacityQuestion,
    ConfirmDead,
    CreateVMs,
    DemandBody,
    DryRun,
    MigrateVM,
    RejectionBody,
)
from roost.wire.constraints import CreateConstraint
from tests.integration.control.rig import (
    ADMIN,
    GIB,
    OPERATOR,
    TIMERS,
    Rig,
    body_of,
    digest_of,
    run,
)

SSD = 'host.labels["disk"] == "ssd"'
VIEWER = Principal("vera", "viewer")


async def fleet(rig: Rig) -> None:
    """Two hosts without the disks that the rule asks for, then two with them."""
    for name, disk in (("a", "hdd"), ("b", "hdd"), ("c", "ssd"), ("d", "ssd")):
        await rig.host(name, cpu=4, memory=64, labels={"disk": disk})


async def rule(rig: Rig, expression: str = SSD, **more: Any) -> None:
    body = CreateConstraint(name="ssd", expression=expression, **more)
    await rig.plane.constraints.create(body, ADMIN)


def test_creates_one_by_one_in_batches_and_all_or_none(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rule(rig)
        assert (await rig.create("one")).host == "c"
        for atomic in (False, True):
            names = [f"{atomic}-{n}" for n in range(3)]
            body = CreateVMs(vms=[body_of(name) for name in names], atomic=atomic)
            made = await rig.plane.admit.create_many(body, OPERATOR, None, digest_of(body))
            assert {each.host for each in made.batch.results} <= {"c", "d"}
        with pytest.raises(NoFit) as caught:
            await rig.create("large", cpu=4)
        reasons = caught.value.details["rejection"]["reasons"]
        assert "rule" in [each["reason"] for each in reasons]

    run(database_url, test)


def test_questions_about_vms_that_are_not_there(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rule(rig, selector={"tier": "db"})
        demand = DemandBody(cpu=2, memory=GIB)
        ask = rig.plane.questions
        db = {"tier": "db"}
        found = await ask.dry_run(DryRun(name="x", demand=demand, labels=db), VIEWER)
        assert found.host == "c"  # type: ignore[union-attr]
        assert (await ask.dry_run(DryRun(name="x", demand=demand), VIEWER)).host == "a"  # type: ignore[union-attr]
        counted = await ask.capacity(CapacityQuestion(name="x", demand=demand, labels=db), VIEWER)
        assert counted.count == 4
        counted = await ask.capacity(CapacityQuestion(name="x", demand=demand), VIEWER)
        assert counted.count == 8

    run(database_url, test)


def test_a_rehearsed_loss_keeps_the_rules_of_those_who_are_there(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rig.create("db", cpu=4, labels={"tier": "db"}, constraints={"not_hosts": ["a", "b"]})
        demand = DemandBody(cpu=4, memory=GIB)
        question = CapacityQuestion(name="x", demand=demand, survive="host")
        before = await rig.plane.questions.capacity(question, VIEWER)
        await rule(rig, 'host.name == "c"', selector={"tier": "db"})
        after = await rig.plane.questions.capacity(question, VIEWER)
        assert (before.count, after.count) == (2, 0)

    run(database_url, test)


def test_the_queue(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rule(rig)
        for name in ("x", "y"):
            await rig.create(name, cpu=4)
        waits = await rig.create("waits", cpu=4, on_no_fit="queue")
        assert waits.host is None
        await rig.settle()
        await rig.pass_by(6)
        assert (await rig.get("waits")).host is None
        await rig.plane.vms.delete("y", None, OPERATOR)
        await rig.settle()
        await rig.pass_by(6)
        assert (await rig.get("waits")).host == "d"

    run(database_url, test)


def test_one_that_waits_is_tried_again_when_the_rule_is_gone(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rule(rig, "host.name == 'nowhere'", force=True)
        await rig.create("waits", on_no_fit="queue")
        await rig.pass_by(6)
        assert (await rig.get("waits")).host is None
        await rig.plane.constraints.delete("ssd", None, ADMIN)
        await rig.pass_by(6)
        assert (await rig.get("waits")).host == "a"

    run(database_url, test)


def test_moves(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rig.running("vm")
        await rule(rig)
        with pytest.raises(NoFit, match="ssd"):
            await rig.plane.moves.migrate("vm", None, MigrateVM(host="b"), OPERATOR)
        await rig.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
        await rig.settle()
        assert await rig.state("vm") == ("running", "c")

    run(database_url, test)


def test_drains(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rig.running("vm")
        await rig.running("large", cpu=3)
        await rule(rig)
        for name in ("x", "y"):
            await rig.create(name, cpu=3)
        await rig.settle()
        await rig.plane.hosts.drain("a", OPERATOR)
        await rig.pass_by(20)
        await rig.settle()
        assert (await rig.state("vm"))[1] in ("c", "d")
        assert (await rig.state("large"))[1] == "a"
        state = await rig.plane.hosts.drain_state("a")
        assert [each["vm"] for each in state.blocked] == ["large"]

    run(database_url, test)


def test_recovery(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rig.running("vm", restart="elsewhere")
        await rule(rig)
        lost = rig.agents.pop("a")
        lost.disconnect()
        for copy in lost.copies.values():
            copy.state = "stopped"
        await rig.pass_by(2 * TIMERS.lease_s + TIMERS.offline_s)
        await rig.plane.hosts.confirm_dead("a", ConfirmDead(reason="it burns"), ADMIN)
        ask = next(part for part in rig.plane.parts if isinstance(part, RequestedRecovery))
        await ask.host("a", OPERATOR)
        await rig.settle()
        assert (await rig.state("vm"))[1] == "c"

    run(database_url, test)


def test_vms_of_groups(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rule(rig)
        apart = {"name": "g", "rule": "anti-affinity"}
        assert (await rig.create("g1", groups=[apart])).host == "c"
        assert (await rig.create("g2", groups=["g"])).host == "d"
        with pytest.raises(NoFit):
            await rig.create("g3", groups=["g"])

    run(database_url, test)


def test_an_explanation_names_the_rule(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rig.running("vm")
        await rule(rig)
        found = await rig.plane.vms.explain("vm", None, ["a"], OPERATOR)
        assert found.verdicts[0].reasons == ["rule"]
        asked = await rig.plane.questions.dry_run(
            DryRun(name="x", demand=DemandBody(cpu=40, memory=GIB)), VIEWER
        )
        assert isinstance(asked, RejectionBody)

    run(database_url, test)
