"""Rules that hold under a condition, and rules that relax for a VM that waits."""

from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import InvalidRequest, NoFit
from roost.control.create import relaxing
from roost.control.memory.roster import Roster
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import events, relaxations
from roost.model.flow import PlaceRequest
from roost.wire.constraints import (
    ChangeConstraint,
    CheckConstraints,
    CreateConstraint,
    DryRunConstraint,
)
from roost.wire.priorities import CreatePriorityClass
from tests.integration.control.rig import ADMIN, Rig, run

SSD = 'host.labels["disk"] == "ssd"'


async def two_hosts(rig: Rig) -> None:
    await rig.host("slow", cpu=8, memory=64, labels={"disk": "hdd"})
    await rig.host("fast", cpu=8, memory=64, labels={"disk": "ssd"})


async def rule(rig: Rig, **more: Any) -> Any:
    body = CreateConstraint(name="ssd", expression=SSD, **more)
    return await rig.plane.constraints.create(body, ADMIN)


async def shown(rig: Rig) -> Any:
    return await rig.plane.constraints.get("ssd", None, ADMIN)


async def told(rig: Rig, like: str, vm: str = "") -> list[str]:
    """Return the kinds of events, of those that begin so, in their order; of one VM or all."""
    query = select(events.c.kind).where(events.c.kind.like(f"{like}%")).order_by(events.c.seq)
    if vm:
        query = query.where(events.c.subject == f"vm/{vm}")
    return [row["kind"] for row in await rig.rows(query)]


def test_a_rule_holds_while_the_fleet_is_loaded(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        made = await rule(rig, when="fleet.load > 0.4", until="fleet.load < 0.2", dwell_s=30)
        assert (made.holds, made.active, made.enabled, made.dwell_s) == (False, False, True, 30)
        assert (await rig.create("early", cpu=7)).host == "slow"
        await rig.pass_by(10)
        on = await shown(rig)
        assert (on.holds, on.version) == (True, 1)
        assert on.switched_at is not None
        assert (await rig.create("loaded")).host == "fast"
        check = await rig.plane.constraints.check(CheckConstraints(), ADMIN)
        assert [each.name for each in check.violations] == ["early"]
        await rig.settle()
        await rig.plane.vms.delete("early", None, ADMIN)
        await rig.settle()
        await rig.pass_by(10)
        assert (await shown(rig)).holds, "the dwell is not over"
        await rig.pass_by(30)
        assert not (await shown(rig)).holds
        assert (await rig.create("late")).host == "slow"
        switched = ["constraint.switched_on", "constraint.switched_off"]
        assert await told(rig, "constraint.switched") == switched
        await rig.restart()
        assert (await rig.create("later")).host == "slow"
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_a_rule_holds_at_some_times_of_the_day(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        # It is 00:16 in UTC, and 01:16 in Berlin (in 1970).
        await rule(rig, when="fleet.hour == 1 && fleet.minute < 30", time_zone="Europe/Berlin")
        assert (await shown(rig)).holds
        assert (await rig.create("early")).host == "fast"
        rig.clock.move(900)
        await rig.pass_by(10)
        assert not (await shown(rig)).holds
        assert (await rig.create("late")).host == "slow"

    run(database_url, test)


def test_another_condition_counts_at_once_and_none_means_always(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig, when="fleet.vms > 100")
        assert not (await shown(rig)).holds
        change = rig.plane.constraints.change
        changed = await change("ssd", None, ChangeConstraint(when="fleet.vms >= 0"), ADMIN)
        assert (changed.holds, changed.version) == (True, 2)
        assert changed.versions[1].when == "fleet.vms > 100"
        await change("ssd", None, ChangeConstraint(when="fleet.vms > 100"), ADMIN)
        assert (await rig.create("any")).host == "slow"
        always = await change("ssd", None, ChangeConstraint(when=None), ADMIN)
        assert (always.holds, always.when, always.dwell_s) == (True, None, None)
        assert (await rig.create("ruled")).host == "fast"
        with pytest.raises(InvalidRequest, match="this rule always holds"):
            await change("ssd", None, ChangeConstraint(until="fleet.vms > 1"), ADMIN)
        body = DryRunConstraint(expression=SSD, when="fleet.vms > 100")
        tried = await rig.plane.constraints.dry_run(body, ADMIN)
        assert (tried.holds_now, tried.violated) == (False, 1)

    run(database_url, test)


async def waits_for_ssd(rig: Rig, **more: Any) -> None:
    """Let one VM wait under a rule that leaves it no room."""
    await two_hosts(rig)
    await rule(rig, **more)
    await rig.create("full", cpu=8)
    waits = await rig.create("waits", on_no_fit="queue")
    assert waits.host is None
    await rig.settle()


def test_a_rule_relaxes_for_a_vm_that_has_waited(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await waits_for_ssd(rig, relax_after_s=60)
        await rig.pass_by(20)
        assert [row["relaxed_ms"] for row in await rig.rows(select(relaxations))] == [None]
        await rig.restart()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle()
        await rig.pass_by(20)
        assert (await rig.get("waits")).host is None
        await rig.pass_by(40)
        found = await rig.get("waits")
        assert found.host == "slow"
        assert found.placement is not None
        assert found.placement.relaxed == ["ssd"]
        assert "rule ssd" in " ".join(term.name for term in found.placement.breakdown)
        kinds = ["vm.rule_wait_begun", "vm.rules_relaxed"]
        assert await told(rig, "vm.rule%") == kinds
        assert await rig.rows(select(relaxations)) == []
        check = await rig.plane.constraints.check(CheckConstraints(), ADMIN)
        assert [(each.name, each.host) for each in check.violations] == [("waits", "slow")]
        with pytest.raises(NoFit):  # it is relaxed for VMs that wait, and for no others
            await rig.create("new", cpu=2)
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_who_waits_under_which_rule_is_compared_only_when_that_may_be_different(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await waits_for_ssd(rig, relax_after_s=600)
        asked: list[str] = []
        request_of = relaxing.request_of

        def counted(vm: VMRow, roster: Roster) -> PlaceRequest:
            asked.append(vm.name)
            return request_of(vm, roster)

        await rig.pass_by(10)
        monkeypatch.setattr(relaxing, "request_of", counted)
        await rig.pass_by(60)
        assert asked == []
        await rig.create("also", on_no_fit="queue")
        await rig.pass_by(10)
        assert {*asked} == {"waits", "also"}
        assert len(await rig.rows(select(relaxations))) == 2
        await rig.pass_by(560)
        assert (await rig.get("waits")).host == "slow"

    run(database_url, test)


def test_why_a_vm_waits_says_when_a_rule_relaxes_and_that_it_has(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await waits_for_ssd(rig, relax_after_s=60)
        await rig.create("also-full", cpu=8, constraints={"hosts": ["fast"]}, on_no_fit="queue")
        await rig.pass_by(10)
        await rig.plane.constraints.change("ssd", None, ChangeConstraint(kind="hard"), ADMIN)
        rig.plane.roster.room += 1
        await rig.pass_by(10)
        said = (await rig.get("waits")).pending
        assert said is not None
        assert "rule 'ssd' relaxes for it at 1970-01-01T00:" in said.message
        await rig.plane.hosts.cordon("slow", ADMIN)
        await rig.pass_by(80)
        rig.plane.roster.room += 1
        await rig.pass_by(10)
        said = (await rig.get("waits")).pending
        assert said is not None
        assert "rule 'ssd' is relaxed for it since 1970-01-01T00:" in said.message

    run(database_url, test)


def test_a_changed_rule_is_waited_for_anew(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await waits_for_ssd(rig, relax_after_s=60)
        await rig.plane.hosts.cordon("slow", ADMIN)
        await rig.pass_by(80)
        [row] = await rig.rows(select(relaxations))
        assert row["relaxed_ms"] is not None
        change = rig.plane.constraints.change
        await change("ssd", None, ChangeConstraint(relax_after_s=600), ADMIN)
        await rig.plane.hosts.uncordon("slow", ADMIN)
        await rig.pass_by(80)
        assert (await rig.get("waits")).host is None
        [row] = await rig.rows(select(relaxations))
        assert (row["version"], row["relaxed_ms"]) == (2, None)
        await change("ssd", None, ChangeConstraint(relax_after_s=None), ADMIN)
        await rig.pass_by(10)
        assert await rig.rows(select(relaxations)) == []
        with pytest.raises(InvalidRequest, match="only a hard rule relaxes"):
            await rig.plane.constraints.create(
                CreateConstraint(name="x", expression=SSD, kind="soft", relax_after_s=5), ADMIN
            )
        await change("ssd", None, ChangeConstraint(relax_after_s=60), ADMIN)
        with pytest.raises(InvalidRequest, match="only a hard rule relaxes") as refused:
            await change("ssd", None, ChangeConstraint(kind="soft"), ADMIN)
        assert "--no-relax" in str(refused.value.hint)
        await change("ssd", None, ChangeConstraint(kind="soft", relax_after_s=None), ADMIN)
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_what_is_noted_about_a_vm_ends_with_its_waiting(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await waits_for_ssd(rig, relax_after_s=600)
        await rig.pass_by(10)
        assert len(await rig.rows(select(relaxations))) == 1
        await rig.plane.vms.delete("waits", None, ADMIN)
        await rig.settle()
        await rig.pass_by(10)
        assert await rig.rows(select(relaxations)) == []
        assert (await told(rig, "vm.rule"))[-1] == "vm.rule_wait_ended"
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_a_vm_that_room_was_made_for_waits_under_no_rule_any_more(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for body in (
            CreatePriorityClass(name="high", value=100),
            CreatePriorityClass(name="low", value=-10),
        ):
            await rig.plane.priorities.create(body, ADMIN)
        await two_hosts(rig)
        await rig.plane.hosts.cordon("fast", ADMIN)
        await rig.running("sitting", cpu=8, priority_class="low", restart="elsewhere")
        await rule(rig, relax_after_s=60)
        await rig.create("urgent", cpu=8, priority_class="high", on_no_fit="queue")
        await rig.pass_by(120)
        await rig.settle(keep=True)
        urgent = await rig.get("urgent")
        assert urgent.host == "slow"
        query = select(events.c.note).where(events.c.kind == "vm.placed")
        [note] = [row["note"] for row in await rig.rows(query)]
        assert note == "on slow, where room was made for it, with ssd relaxed"
        assert urgent.id not in {row["vm"] for row in await rig.rows(select(relaxations))}
        kinds = ["vm.rule_wait_begun", "vm.rules_relaxed"]
        assert (await told(rig, "vm.rule", urgent.id)) == kinds, "it waits no more at once"

    run(database_url, test)


async def nothing_is_relaxed_early(rig: Rig) -> None:
    await waits_for_ssd(rig, relax_after_s=300)
    await rig.pass_by(30)
    assert (await rig.get("waits")).host is None


def test_nothing_is_relaxed_before_its_time(database_url: str) -> None:
    run(database_url, nothing_is_relaxed_early)


def test_a_build_that_forgets_how_long_a_vm_has_waited_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = relaxing.plan

    def hasty(waiting: dict[str, PlaceRequest], rules: Any, known: Any, now_ms: int) -> Any:
        made = real(waiting, rules, known, now_ms)
        made.relax += [row for found in known.values() for row in found.values()]
        return made

    monkeypatch.setattr(relaxing, "plan", hasty)
    with pytest.raises(AssertionError):
        run(sqlite_url, nothing_is_relaxed_early)
