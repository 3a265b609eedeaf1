"""Constraints as objects: made, changed, tried, checked and deleted, and what they do to VMs."""

from time import process_time
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NoFit,
    NotFound,
    RuleError,
)
from roost.control.rules import writing
from roost.ledger.schema.rows import ConstraintRow
from roost.ledger.schema.tables import constraints, events, hosts, vm_specs
from roost.ledger.writes.transaction import Tx, advance_constraints
from roost.parts.access import Principal
from roost.wire.bodies import (
    AffinityBody,
    CreateProject,
    GroupBody,
    MigrateVM,
    QuotaBody,
    ResizeVM,
    SetLabels,
    SetQuota,
)
from roost.wire.constraints import (
    ChangeConstraint,
    CheckConstraints,
    CreateConstraint,
    DryRunConstraint,
    ListConstraints,
)
from roost.wire.policies import ApplyPolicy, CreatePolicy
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_bad_hosts import plant

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


def test_a_change_of_kind_is_kept_and_told_as_a_change(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig)
        changed = await rig.plane.constraints.change(
            "ssd", None, ChangeConstraint(kind="soft", weight=0.5), ADMIN
        )
        assert (changed.kind, changed.weight, changed.version) == ("soft", 0.5, 2)
        told = select(events.c.kind).order_by(events.c.seq.desc())
        last = await rig.store.read(lambda found: found.execute(told).scalars().first())
        assert last == "constraint.changed"
        assert await violated(rig) == []
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def quota(vms: int) -> SetQuota:
    return SetQuota(quota=QuotaBody(vms=vms))


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


def test_a_rule_reads_what_a_project_has(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.plane.projects.create(CreateProject(name="shop", quota=QuotaBody(vms=3)), ADMIN)
        await rig.create("far")
        await rule(rig, "few", "project.vms + 1 < project.most_vms", project="shop")
        await rule(rig, "small", 'project.committed.cpu + vm.demand.cpu <= cores("4")')
        await rig.create("a", project="shop", cpu=2)
        with pytest.raises(NoFit, match="rule 'small'"):
            await rig.create("b", project="shop", cpu=3)
        waits = await rig.create("b", project="shop", cpu=3, on_no_fit="queue")
        assert waits.host is None
        # Who waits counts as well, but not for itself.
        with pytest.raises(NoFit, match=r"project\.vms"):
            await rig.create("c", project="shop")
        tried = DryRunConstraint(name="t", expression="project.vms == 0")
        said = await rig.plane.constraints.dry_run(tried, ADMIN)
        assert sorted(each.name for each in said.violations) == ["a"]
        await rig.plane.vms.resize("b", "shop", ResizeVM(cpu=2), ADMIN)
        await rig.pass_by(10)
        assert (await rig.get("b", "shop")).host is not None
        with pytest.raises(NoFit, match="does not let 'b' grow"):
            await rig.plane.vms.resize("b", "shop", ResizeVM(cpu=3), ADMIN)
        assert await violated(rig) == []
        await rig.plane.projects.set_quota("shop", quota(4), ADMIN)
        with pytest.raises(NoFit, match="rule 'small'"):
            await rig.create("c", project="shop")
        await rig.plane.vms.delete("a", "shop", ADMIN)
        await rig.settle()
        await rig.create("c", project="shop")
        assert (await rig.plane.doctor()).findings == []
        await rig.restart()
        with pytest.raises(NoFit, match="rule 'small'"):
            await rig.create("d", project="shop", cpu=2)

    run(database_url, test)


def test_rules_are_there_after_a_restart(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig)
        await rig.restart()
        assert (await rig.create("vm")).host == "fast"

    run(database_url, test)


def test_a_rule_is_changed_by_versions(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        made = await rule(rig, key="once")
        assert await rule(rig, key="once") == made
        with pytest.raises(Conflict, match="a rule 'ssd' of the fleet already"):
            await rule(rig)
        change = rig.plane.constraints.change
        off = await change("ssd", None, ChangeConstraint(enabled=False), ADMIN)
        assert (off.version, off.enabled) == (2, False)
        assert (await rig.create("anywhere")).host == "slow"
        same = await change("ssd", None, ChangeConstraint(enabled=False), ADMIN)
        assert same == off
        with pytest.raises(Conflict, match="is at version 2, not 1"):
            await change("ssd", None, ChangeConstraint(enabled=True, version=1), ADMIN)
        tree = {"left": "host.name", "operator": "eq", "right": "fast"}
        new = await change("ssd", None, ChangeConstraint(expression=tree, enabled=True), ADMIN)
        assert (new.version, new.form, new.expression) == (3, "tree", 'host.name == "fast"')
        assert [each.version for each in new.versions] == [3, 2, 1]
        assert new.versions[-1].expression == SSD
        assert (await rig.create("there")).host == "fast"
        await rig.plane.constraints.delete("ssd", None, ADMIN)
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_a_key_has_its_answer_whatever_the_fleet_is_by_now(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        made = await rule(rig, key="once")
        await rig.plane.hosts.set_labels("fast", SetLabels(labels={"disk": "hdd"}), OPERATOR)
        await rig.plane.follower.catch_up()
        assert await rule(rig, key="once") == made
        with pytest.raises(Conflict, match="none of 2 hosts"):
            await rule(rig, "again", key="twice")
        await rig.plane.constraints.delete("ssd", None, ADMIN)
        with pytest.raises(Conflict, match="made rule 'ssd', which was deleted since"):
            await rule(rig, key="once")

    run(database_url, test)


def test_a_mistake_is_told_with_its_place(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(RuleError) as caught:
            await rule(rig, expression='host.zoen == "a"')
        error = caught.value.as_json()["error"]
        assert (error["code"], error["details"]["line"]) == ("invalid_rule", 1)
        assert error["details"]["picture"].splitlines()[1].strip("^ ") == ""
        assert error["hint"] == "Maybe host.zone is meant."

    run(database_url, test)


def test_a_rule_binds_those_that_it_is_for(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await rule(rig, "dbs", selector={"tier": "db"})
        assert (await rig.create("web")).host == "slow"
        assert (await rig.create("db", labels={"tier": "db"})).host == "fast"
        await rule(rig, "shop", project="shop", who=MEMBER)
        assert (await rig.create("cart", project="shop")).host == "fast"
        assert (await rig.create("blog")).host == "slow"
        await rule(rig, "one", 'host.name == "slow"', project="default", vm="web", who=OPERATOR)
        await rig.settle()
        with pytest.raises(NoFit, match="'default/one'"):
            await rig.plane.moves.migrate("web", None, MigrateVM(host="fast"), OPERATOR)
        seen = await rig.plane.constraints.list(ListConstraints(), MEMBER)
        assert [each.id for each in seen.constraints] == ["dbs", "shop/shop"]

    run(database_url, test)


def test_a_rule_of_a_policy_binds_those_who_are_under_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        policies = rig.plane.policies
        with pytest.raises(NotFound, match="no policy 'databases'"):
            await rule(rig, policy="databases")
        await policies.create(CreatePolicy(name="databases"), ADMIN)
        await rule(rig, policy="databases")
        assert (await rig.create("web")).host == "slow"
        assert (await rig.create("db", policy="databases")).host == "fast"
        assert await violated(rig) == []
        await policies.put_under("web", None, ApplyPolicy(policy="databases"), ADMIN)
        assert await violated(rig) == [("web", "slow", "ssd")]
        await policies.apply("default", ApplyPolicy(policy="databases"), ADMIN)
        assert (await rig.create("by-default")).host == "fast"
        await policies.apply("default", ApplyPolicy(policy=None), ADMIN)
        with pytest.raises(Conflict, match="that of rule 'ssd'"):
            await policies.delete("databases", ADMIN)

    run(database_url, test)


def test_who_may_make_rules(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        with pytest.raises(Forbidden, match="only an administrator"):
            await rule(rig, who=OPERATOR)
        with pytest.raises(NotFound):
            await rule(rig, project="default", who=MEMBER)
        with pytest.raises(NotFound, match="no project 'none'"):
            await rule(rig, project="none")

    run(database_url, test)


def test_a_rule_that_leaves_nobody_a_host_needs_force(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.create("db", labels={"tier": "db"})
        nvme = 'vm.labels["tier"] != "db" || host.labels["disk"] == "nvme"'
        with pytest.raises(Conflict, match="none of 2 hosts passes for VM 'db'"):
            await rule(rig, expression=nvme)
        soft = await rule(rig, "soft", nvme, kind="soft", weight=0.5)
        assert (soft.kind, soft.weight) == ("soft", 0.5)
        with pytest.raises(Conflict, match="none of 2 hosts"):
            await rig.plane.constraints.change("soft", None, ChangeConstraint(kind="hard"), ADMIN)
        await rule(rig, expression=nvme, force=True)
        with pytest.raises(NoFit):
            await rig.create("db2", labels={"tier": "db"})
        assert await violated(rig) == [("db", "slow", "ssd")]

    run(database_url, test)


def test_rules_that_leave_nobody_a_host_together_need_force(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig)
        with pytest.raises(Conflict, match="none of 2 hosts passes both 'ssd' and 'slow'") as told:
            await rule(rig, "slow", 'host.name == "slow"')
        [conflict] = told.value.details["conflicts"]
        assert (conflict["kind"], conflict["rules"]) == ("no_host", ["ssd", "slow"])
        with pytest.raises(Conflict, match="'ssd' and 'hdd' contradict each other"):
            await rule(rig, "hdd", 'host.labels["disk"] == "hdd"')
        soft = await rule(rig, "hdd", 'host.labels["disk"] == "hdd"', kind="soft")
        with pytest.raises(Conflict, match="'ssd' and 'hdd' contradict each other"):
            await rig.plane.constraints.change("hdd", None, ChangeConstraint(kind="hard"), ADMIN)
        await rig.plane.constraints.delete("ssd", None, ADMIN)
        changed = ChangeConstraint(kind="hard", version=soft.version)
        await rig.plane.constraints.change("hdd", None, changed, ADMIN)
        await rule(rig, force=True)
        with pytest.raises(NoFit):
            await rig.create("nowhere")

    run(database_url, test)


def test_three_rules_that_no_host_passes_are_named_and_no_fourth(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in "abc":
            await rig.host(name, cpu=8, memory=64)
        for name, away in (("one", "a"), ("idle", "x"), ("two", "b")):
            await rule(rig, name, f'host.name != "{away}"')
        with pytest.raises(Conflict, match="none of 3 hosts passes all of") as told:
            await rule(rig, "three", 'host.name != "c"')
        [conflict] = told.value.details["conflicts"]
        assert conflict["rules"] == ["one", "two", "three"]
        assert (await rule(rig, "three", 'host.name != "c"', selector={"a": "b"}, force=True)).holds

    run(sqlite_url, test)


def test_a_rule_that_goes_with_another_for_no_vm_that_is_there_is_made_and_told(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig, selector={"tier": "db"})
        slow = 'host.labels["disk"] == "hdd"'
        body = DryRunConstraint(expression=slow, selector={"app": "web"})
        found = await rig.plane.constraints.dry_run(body, OPERATOR)
        assert (found.locks_out, [each.rules for each in found.conflicts]) == (
            False,
            [["ssd", "dry-run"]],
        )
        assert "contradict each other" in found.says[0]
        made = await rule(rig, "slow", slow, selector={"app": "web"})
        assert [each.kind for each in made.conflicts] == ["contradiction"]
        assert not (await rule(rig, "other", slow, selector={"tier": "web"})).conflicts
        await rig.plane.constraints.delete("slow", None, ADMIN)
        await rig.create("both", labels={"tier": "db", "app": "web"})
        with pytest.raises(Conflict, match="'ssd' and 'slow' contradict each other"):
            await rule(rig, "slow", slow, selector={"app": "web"})

    run(sqlite_url, test)


def test_a_dry_run_says_what_would_be_and_writes_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.create("db", labels={"tier": "db"})
        await rig.create("web")
        body = DryRunConstraint(expression=SSD, selector={"tier": "db"})
        applied = rig.plane.follower.applied
        found = await rig.plane.constraints.dry_run(body, OPERATOR)
        assert (found.hosts, found.vms, found.violated, found.locks_out) == (2, 1, 1, False)
        assert [(each.vms, each.hosts) for each in found.classes] == [(1, 1)]
        assert [(each.name, each.host) for each in found.violations] == [("db", "slow")]
        assert found.says == ["1 of 1 VMs would be in the wrong place; they stay where they are"]
        await rig.plane.follower.catch_up()
        assert rig.plane.follower.applied == applied
        assert await violated(rig) == []

    run(database_url, test)


def test_a_vm_in_the_wrong_place_may_stop_start_and_shrink_but_not_grow(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.running("vm", cpu=2)
        await rule(rig)
        await rig.plane.vms.stop("vm", None, OPERATOR)
        await rig.settle()
        await rig.plane.vms.start("vm", None, OPERATOR)
        await rig.settle()
        await rig.plane.vms.resize("vm", None, ResizeVM(cpu=1), OPERATOR)
        with pytest.raises(NoFit, match="rule 'ssd' does not let 'vm' grow on host 'slow'"):
            await rig.plane.vms.resize("vm", None, ResizeVM(cpu=3), OPERATOR)
        await rig.settle()
        assert await rig.state("vm") == ("running", "slow")

    run(database_url, test)


def test_no_vm_grows_on_a_host_that_rules_know_nothing_of(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.running("vm", cpu=2)
        await rule(rig, expression='!has(host.labels.disk) || host.labels["disk"] == "ssd"')
        [known] = await rig.rows(select(hosts.c.inventory).where(hosts.c.name == "slow"))
        await plant(rig.store, "slow", [])
        await rig.restart()
        assert rig.plane.roster.set_aside().keys() == {"slow"}
        with pytest.raises(NoFit, match="the host is set aside"):
            await rig.plane.vms.resize("vm", None, ResizeVM(cpu=3), OPERATOR)
        await plant(rig.store, "slow", msgspec.json.decode(known["inventory"]))
        await rig.restart()

    run(sqlite_url, test)


def test_no_vm_grows_of_which_rules_know_nothing(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.running("vm", cpu=2)
        await rule(rig)
        [known] = await rig.rows(select(vm_specs.c.spec))

        async def keep(text: str) -> None:
            said = update(vm_specs).values(spec=text)
            await rig.store.write(lambda tx: tx.connection.execute(said))
            await rig.restart()

        await keep("{")
        with pytest.raises(Conflict, match="what VM 'vm' asked for cannot be read"):
            await rig.plane.vms.resize("vm", None, ResizeVM(cpu=3), OPERATOR)
        await keep(known["spec"])

    run(sqlite_url, test)


def test_a_rule_expires(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig, expires_in_s=60)
        assert (await rig.create("early")).host == "fast"
        await rig.pass_by(70)
        found = await rig.plane.constraints.get("ssd", None, ADMIN)
        assert (found.enabled, found.version) == (False, 2)
        assert (await rig.create("late")).host == "slow"
        change = rig.plane.constraints.change
        with pytest.raises(Conflict, match="rule 'ssd' has expired"):
            await change("ssd", None, ChangeConstraint(enabled=True), ADMIN)
        await change("ssd", None, ChangeConstraint(enabled=True, expires_in_s=600), ADMIN)
        await rig.pass_by(70)
        assert (await rig.create("again")).host == "fast"
        await rig.pass_by(600)
        await change("ssd", None, ChangeConstraint(enabled=True, expires_in_s=None), ADMIN)
        await rig.pass_by(70)
        assert (await rig.create("for-good")).host == "fast"

    run(database_url, test)


def test_rules_are_bounded(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        monkeypatch.setattr(writing, "MOST_CONSTRAINTS", 3)
        for n in range(3):
            await rule(rig, f"r{n}")
        with pytest.raises(Conflict, match="there are 3 rules already"):
            await rule(rig, "r3")
        assert (await rig.plane.constraints.list(ListConstraints(), ADMIN)).next is None
        monkeypatch.setattr(writing, "_VERSIONED", writing._VERSIONED._replace(most=2))
        for n in range(4):
            change = ChangeConstraint(priority=n + 1)
            found = await rig.plane.constraints.change("r0", None, change, ADMIN)
        assert [each.version for each in found.versions] == [5, 4]
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def kilobyte(n: int) -> str:
    """Return a rule of a kilobyte that no other rule is equal to, and that most VMs pass."""
    terms = [f"has(vm.labels.the_key_{n}_of_number_{at})" for at in range(28)]
    return f"!({' || '.join(terms)}) || {SSD}"


def test_of_ten_thousand_rules_of_a_kilobyte_a_thousand_are_kept_and_the_rest_refused(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)

        def fill(tx: Tx) -> None:
            """Make all of them in one event: to follow a thousand takes a minute."""
            changes: dict[str, Any] = {"constraints": {}, "constraint_versions": {}}
            filed = writing._VERSIONED.file
            for n in range(1_000):
                body = CreateConstraint(name=f"r{n}", expression=kilobyte(n))
                row = writing.new_row(
                    tx, body.name, body.name, None, body, kilobyte(n), "cel", ADMIN, 0, {}
                )
                tx.insert(constraints, msgspec.structs.asdict(row))
                changes["constraints"][row.id] = row
                changes["constraint_versions"] |= filed(tx, row.id, row)["constraint_versions"]
            changes["constraints_generation"] = advance_constraints(tx)
            tx.event("constraint.created", "constraint/r0", changes)

        assert 1_000 <= len(kilobyte(0)) <= 1_400
        await rig.store.write(fill)
        for n in (1_000, 5_000, 9_999):
            with pytest.raises(
                Conflict, match="there are 1000 rules already, and no more are taken"
            ):
                await rule(rig, f"r{n}", kilobyte(n), force=True)
        begun = process_time()
        await rig.restart()  # reads and checks them all
        assert (await rig.create("free", cpu=1)).host == "slow"
        assert (await rig.create("bound", labels={"the_key_7_of_number_3": "yes"})).host == "fast"
        assert process_time() - begun < 60

    run(sqlite_url, test)


def test_no_project_takes_the_places_of_others_rules(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        monkeypatch.setattr(writing, "MOST_CONSTRAINTS", 5)
        monkeypatch.setattr(writing, "MOST_OF_PROJECTS", 3)
        monkeypatch.setattr(writing, "MOST_OF_A_PROJECT", 2)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        for n in range(2):
            await rule(rig, f"r{n}", project="shop")
        with pytest.raises(Conflict, match="there are 2 rules of project 'shop' already"):
            await rule(rig, "r2", project="shop", who=MEMBER)
        await rule(rig, "r0", project="default")
        with pytest.raises(Conflict, match="there are 3 rules of projects already"):
            await rule(rig, "r1", project="default")
        for n in range(2):
            await rule(rig, f"r{n}")

    run(sqlite_url, test)


def test_a_rule_for_a_vm_goes_with_it(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        for name in ("gone", "stays"):
            await rig.running(name)
            await rule(rig, name, 'host.name == "slow"', project="default", vm=name)
        await rule(rig, force=True)  # these two have no host by both rules
        await rig.plane.vms.delete("gone", None, OPERATOR)
        await rig.settle()
        await rig.pass_by(10)
        page = await rig.plane.constraints.list(ListConstraints(), ADMIN)
        assert [each.id for each in page.constraints] == ["default/stays", "ssd"]

    run(sqlite_url, test)


@pytest.mark.parametrize(
    "expression",
    [
        "x" * 16_385,
        f'host.name.matches("{"a" * 100_000}")',
        "(" * 1000 + "true" + ")" * 1000,
        'project.committed["vendor.example/card"] < 5',
    ],
    ids=["long", "long pattern", "deep", "what projects do not count"],
)
def test_what_cannot_be_a_rule_is_refused(sqlite_url: str, expression: str) -> None:
    async def test(rig: Rig) -> None:
        body = {"name": "r", "expression": expression}
        with pytest.raises((InvalidRequest, msgspec.ValidationError)):
            await rig.plane.constraints.create(msgspec.convert(body, CreateConstraint), ADMIN)

    run(sqlite_url, test)


def test_a_tree_that_is_nested_too_deep_is_refused(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        tree: dict[str, Any] = {"left": "host.name", "operator": "eq", "right": "a"}
        for _ in range(1000):
            tree = {"logicalOperator": "NOT", "subExpressions": [tree]}
        with pytest.raises(InvalidRequest):
            await rule(rig, expression=tree)

    run(sqlite_url, test)


def test_nobody_passes_a_rule_that_cannot_be_read(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rule(rig, selector={"tier": "db"})

        def spoil(tx: Tx) -> None:
            row = tx.find(constraints, id="ssd")
            assert row is not None
            writing.update(tx, ConstraintRow(**row), expression="host.moon == 1")

        await rig.store.write(spoil)
        with pytest.raises(NoFit):
            await rig.create("db", labels={"tier": "db"})
        assert (await rig.create("web")).host == "slow"
        found = (await rig.plane.doctor()).findings
        assert [each.check for each in found] == ["constraints"]
        await rig.plane.constraints.delete("ssd", None, ADMIN)

    run(sqlite_url, test)


@pytest.mark.parametrize(
    ("later", "passes", "told"),
    [
        ({"kind": "advice"}, False, "nobody passes it: kind 'advice'"),
        ({"selector": '["tier"]'}, False, "nobody passes it: Expected `object`"),
        ({"priority": 10**9}, False, "nobody passes it: priority 1000000000"),
        ({"kind": "soft", "expression": "host.moon == 1"}, True, "it prefers no host: "),
        ({"kind": "soft", "priority": 10**9}, True, "it prefers no host: "),
    ],
    ids=["kind", "selector", "priority", "soft", "soft priority"],
)
def test_a_rule_of_a_later_release_stops_nobody_who_does_not_place_vms_of_its_scope(
    sqlite_url: str, later: dict[str, Any], passes: bool, told: str
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await rule(rig, project="shop")
        await rule(rig, "other")

        def spoil(tx: Tx) -> None:
            row = tx.change(constraints, {"id": "shop/ssd"}, **later)
            assert row is not None
            writing.update(tx, ConstraintRow(**row))

        await rig.store.write(spoil)
        for _ in range(2):
            if passes:
                assert (await rig.create("web", project="shop")).host == "fast"
            else:
                with pytest.raises(NoFit, match="'shop/ssd'"):
                    await rig.create("web", project="shop")
            assert (await rig.create("blog")).host == "fast"
            [found] = (await rig.plane.doctor()).findings
            assert f"rule 'shop/ssd' cannot be read, so {told}" in found.message
            for name, project in (("web", "shop"), ("blog", None)):
                if passes or project is None:
                    await rig.plane.vms.delete(name, project, ADMIN)
            await rig.settle(check=False)
            await rig.restart()
            for agent in rig.agents.values():
                agent.connect(rig.plane)
        await rig.plane.constraints.delete("ssd", "shop", ADMIN)

    run(sqlite_url, test)


def test_a_rule_that_is_not_there_cannot_be_checked(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.create("web")
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await rule(rig)
        await rule(rig, project="default")
        check = rig.plane.constraints.check
        with pytest.raises(NotFound, match="no rule 'ss' of the fleet"):
            await check(CheckConstraints(rule="ss"), ADMIN)
        for who, name in ((ADMIN, "shop/ssd"), (MEMBER, "default/ssd")):
            with pytest.raises(NotFound, match="no rule 'ssd' of project"):
                await check(CheckConstraints(rule=name), who)
        for name in ("ssd", "default/ssd"):
            found = await check(CheckConstraints(rule=name), ADMIN)
            assert [each.rule for each in found.violations] == [name]

    run(sqlite_url, test)


def test_a_weight_that_would_count_as_nothing_is_refused(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        with pytest.raises(InvalidRequest, match=r"weight 0\.0004 counts as 0"):
            await rule(rig, kind="soft", weight=0.0004)
        assert (await rule(rig, kind="soft", weight=0.0006)).weight == 0.001

    run(sqlite_url, test)


@pytest.mark.parametrize("expression", ['"db" in vm.groups', 'group.name == "db"'])
def test_rules_read_groups_by_their_names(sqlite_url: str, expression: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        group = GroupBody(name="db", rule="affinity", scope="zone", hard=False)
        apart = AffinityBody(
            selector={"tier": "web"}, rule="anti-affinity", scope="host", hard=False
        )
        await rig.running("first", groups=[group], affinity=[apart])
        await rule(rig, expression=f"!({expression}) || {SSD}", force=True)
        await rule(rig, "few", "size(vm.groups) <= 1")
        named = {"groups": ["db"], "labels": {"tier": "web"}}
        assert (await rig.create("member", **named)).host == "fast"
        another = GroupBody(name="web", rule="affinity", scope="zone", hard=False)
        assert (await rig.create("other", groups=[another])).host == "slow"
        assert [name for name, *_ in await violated(rig)] == ["first"]
        with pytest.raises(NoFit, match="'ssd'"):
            await rig.plane.vms.resize("first", None, ResizeVM(cpu=2), OPERATOR)

    run(sqlite_url, test)
