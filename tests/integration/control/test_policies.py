"""Policies as objects, and that what they say binds the VMs that are created under them."""

import threading

import pytest
from sqlalchemy import delete, select, update

from roost.base.errors import Conflict, InvalidRequest, NoFit, NotFound
from roost.control.create.charging import FleetCharges
from roost.control.create.pending import PendingCreate
from roost.control.policies import putting
from roost.control.rules import conflicts, reading
from roost.ledger.schema.tables import events, policies, policy_versions, projects
from roost.ledger.writes.transaction import Tx, constraints_generation
from roost.placement.rules import binding
from roost.rules import checking, parsing
from roost.rules.syntax import Expr
from roost.wire.bodies import AffinityBody, MigrateVM
from roost.wire.policies import (
    ApplyPolicy,
    ChangePolicy,
    ComparePolicy,
    CreatePolicy,
    DryRunPolicy,
    ListPolicies,
    OvercommitBody,
    PolicyDetail,
    PolicyRuleBody,
    RollBackPolicy,
    SpreadBody,
    VMPolicyBody,
    WeightsBody,
)
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run, run_two
from tests.integration.control.test_constraint_races import PLACING, meanwhile

SSD = 'host.labels["disk"] == "ssd"'


async def fleet(rig: Rig) -> None:
    for name, disk in (("a", "hdd"), ("b", "hdd"), ("c", "ssd"), ("d", "ssd")):
        await rig.host(name, cpu=4, memory=64, labels={"disk": disk})


def rule(name: str, expression: str, **more: object) -> PolicyRuleBody:
    return PolicyRuleBody(name=name, expression=expression, **more)  # type: ignore[arg-type]


async def policy(rig: Rig, name: str = "databases", **more: object) -> PolicyDetail:
    more.setdefault("rules", [rule("ssd", SSD)])
    return await rig.plane.policies.create(CreatePolicy(name=name, **more), ADMIN)  # type: ignore[arg-type]


def test_a_vm_is_bound_by_the_policy_that_it_names(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await policy(rig, strategy="first_fit", restart="elsewhere")
        assert (await rig.create("free")).host == "a"
        db = await rig.create("db", policy="databases")
        assert (db.host, db.policy, db.strategy) == ("c", "databases", "first_fit")
        assert db.restart == "elsewhere"
        assert (await rig.create("own", policy="databases", strategy="least_loaded")).host == "d"
        with pytest.raises(NotFound) as caught:
            await rig.create("lost", policy="database")
        assert "databases" in str(caught.value.hint)

    run(database_url, test)


def test_the_default_of_a_project_is_for_those_who_name_none(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await policy(rig)
        await rig.plane.policies.apply("default", ApplyPolicy(policy="databases"), ADMIN)
        assert (await rig.create("db")).host == "c"
        assert (await rig.plane.projects.get("default", ADMIN)).policy == "databases"
        [listed] = (await rig.plane.policies.list(ListPolicies(), ADMIN)).policies
        assert listed.projects == ["default"]
        await rig.plane.policies.apply("default", ApplyPolicy(policy=None), ADMIN)
        assert (await rig.create("web")).host == "a"
        with pytest.raises(InvalidRequest):
            await rig.plane.policies.apply("default", ApplyPolicy(policy="none"), ADMIN)

    run(database_url, test)


def test_versions_differences_and_a_way_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await policy(rig, strategy="first_fit")
        policies = rig.plane.policies
        change = ChangePolicy(rules=[rule("zone", 'host.name != "a"')], strategy=None)
        changed = await policies.change("databases", change, ADMIN)
        assert (changed.version, [each.version for each in changed.versions]) == (2, [2, 1])
        found = await policies.diff("databases", ComparePolicy())
        said = {each.field: (each.before, each.after) for each in found.differences}
        assert said["strategy"] == ("first_fit", None)
        assert said["rules.ssd.expression"] == (SSD, None)
        assert said["rules.zone.expression"] == (None, 'host.name != "a"')
        assert (await rig.create("b", policy="databases")).host == "b"
        back = await policies.roll_back("databases", RollBackPolicy(version=1), ADMIN)
        assert (back.version, back.strategy, back.rules[0].name) == (3, "first_fit", "ssd")
        assert (await rig.create("c", policy="databases")).host == "c"
        same = await policies.diff("databases", ComparePolicy(of=1, to=3))
        assert same.differences == []
        with pytest.raises(InvalidRequest, match="has no version 9"):
            await policies.roll_back("databases", RollBackPolicy(version=9), ADMIN)
        with pytest.raises(Conflict):
            await policies.change("databases", ChangePolicy(version=1, strategy="random"), ADMIN)

    run(database_url, test)


def test_a_policy_in_use_is_not_deleted(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        policies = rig.plane.policies
        await policy(rig)
        await policy(rig, "other")
        await rig.create("db", policy="databases")
        await rig.create("look", affinity=[_like_a_policy()], labels={"policy": "other"})
        with pytest.raises(Conflict, match="that of VM"):
            await policies.delete("databases", ADMIN)
        await policies.delete("other", ADMIN)  # a label that looks like it is no use of it
        await policies.apply("default", ApplyPolicy(policy="databases"), ADMIN)
        await rig.plane.vms.delete("db", None, OPERATOR)
        await rig.settle()
        with pytest.raises(Conflict, match="the default of project 'default'"):
            await policies.delete("databases", ADMIN)
        await policies.apply("default", ApplyPolicy(policy=None), ADMIN)
        await policies.delete("databases", ADMIN)
        with pytest.raises(NotFound):
            await rig.create("late", policy="databases")

    run(database_url, test)


def _like_a_policy() -> AffinityBody:
    return AffinityBody(selector={"policy": "other"}, rule="spread", hard=False)


def test_rules_of_a_policy_are_parsed_beside_the_event_loop(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(text: str) -> Expr:
        threads.append(threading.current_thread())
        return parsing.parse(text)

    threads: list[threading.Thread] = []
    for module in (binding, checking, reading):
        monkeypatch.setattr(module, "parse", noted)

    async def test(rig: Rig) -> None:
        await fleet(rig)
        some = iter(range(9))

        def rules() -> list[PolicyRuleBody]:
            return [rule("r", f"vm.priority >= -{next(some)}")]  # of which none is known yet

        await rig.plane.policies.dry_run(DryRunPolicy(name="p", rules=rules(), requests=0))
        await policy(rig, "p", rules=rules())
        await rig.plane.policies.change("p", ChangePolicy(rules=rules()), ADMIN)
        assert threads
        assert threading.main_thread() not in threads

    run(sqlite_url, test)


def test_an_answer_says_that_not_all_rules_were_compared(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        rules = [rule("ssd", SSD), rule("low", "vm.priority >= 0")]
        asked = DryRunPolicy(name="p", rules=rules, requests=0)
        whole = await rig.plane.policies.dry_run(asked)
        assert not [each for each in whole.says if "not all compared" in each]
        monkeypatch.setattr(conflicts, "MOST_STEPS", 1)
        cut_short = await rig.plane.policies.dry_run(asked)
        assert [each for each in cut_short.says if "not all compared" in each]
        made = await policy(rig, "p", rules=rules)
        assert [each for each in made.notes if "not all compared" in each]

    run(database_url, test)


def test_rules_are_tried_on_hosts_within_the_same_bound(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        monkeypatch.setattr(conflicts, "contradictions", lambda *asked: iter(()))
        rules = [rule(f"r-{name}", f'host.name != "{name}"') for name in "abcde"]
        asked = DryRunPolicy(name="p", rules=rules, requests=0)
        assert (
            "'policy:p/r-c' and 'policy:p/r-d'" in (await rig.plane.policies.dry_run(asked)).says[0]
        )  # a, b, c, d: four hosts, and each pair leaves two
        # Four are found in turn: after 4, 3, 2 and 1 of the rest, and then they are enough.
        for most, cut in ((5 + 10 + 10, False), (5 + 10 + 9, True), (5 + 9, True), (4, True)):
            monkeypatch.setattr(conflicts, "MOST_STEPS", most)
            found = await rig.plane.policies.dry_run(asked)
            assert any("not all compared" in each for each in found.says) is cut

    run(sqlite_url, test)


def test_conflicts_are_named_before_a_policy_is_made(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        tape = 'host.labels["disk"] == "tape"'
        with pytest.raises(Conflict, match="none of 4 hosts passes rule 'policy:p/tape'"):
            await policy(rig, "p", rules=[rule("tape", tape)])
        with pytest.raises(Conflict, match="contradict each other") as caught:
            await policy(rig, "p", rules=[rule("ssd", SSD), rule("tape", tape)])
        [first, *_] = caught.value.details["conflicts"]
        assert (first["rules"], first["parts"]) == (
            ["policy:p/ssd", "policy:p/tape"],
            [SSD, tape],
        )
        small = 'vm.demand.memory <= quantity("8Gi")'
        large = 'vm.priority >= 0 && quantity("16Gi") <= vm.demand.memory'
        with pytest.raises(Conflict, match="contradict each other"):
            await policy(rig, "p", rules=[rule("small", small), rule("large", large)])
        pair = [rule("ssd", SSD), rule("a", 'host.name.startsWith("a")')]
        with pytest.raises(Conflict, match="none of 4 hosts passes both"):
            await policy(rig, "p", rules=pair)
        made = await policy(rig, "p", rules=pair, force=True)
        assert [each.kind for each in made.conflicts] == ["no_host"]

    run(database_url, test)


def test_a_dry_run_takes_past_requests_again(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        for name in ("one", "two", "gone"):
            await rig.create(name, cpu=2)
        await rig.plane.vms.delete("gone", None, OPERATOR)
        await rig.settle()
        body = DryRunPolicy(name="databases", project="default", rules=[rule("ssd", SSD)])
        found = await rig.plane.policies.dry_run(body)
        assert (found.replayed, found.under) == (3, 3)
        moved = {each.name: (each.before, each.after) for each in found.requests}
        assert moved == {"one": ("a", "c"), "two": ("a", "c"), "gone": ("b", "d")}
        assert (found.refused, found.violated) == (0, 2)
        assert {each.name for each in found.violations} == {"one", "two"}
        whole = await rig.plane.policies.dry_run(
            DryRunPolicy(project="default", rules=[rule("none", "false")])
        )
        assert (whole.refused, whole.elsewhere) == (3, 0)
        assert whole.conflicts[0].kind == "unsatisfied"
        assert (await rig.get("one")).host == "a"

    run(database_url, test)


def test_bad_bundles_are_refused(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        for message, more in (
            ("all weights are 0", {"weights": WeightsBody()}),
            ("weighs no resources", {"weights": WeightsBody(cpu=1), "strategy": "random"}),
            ("twice", {"rules": [rule("x", SSD), rule("x", SSD)]}),
            ("overcommitment", {"rules": [rule("overcommit-cpu", SSD)]}),
        ):
            with pytest.raises(InvalidRequest, match=message):
                await policy(rig, **more)
        made = await policy(rig, overcommit=OvercommitBody(cpu=3))
        assert "overcommit cpu less than 3" in made.notes[0]
        with pytest.raises(Conflict, match="already"):
            await policy(rig)

    run(database_url, test)


def test_overcommitment_is_bounded_also_for_two_at_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await policy(rig, rules=[], overcommit=OvercommitBody(cpu=0.5))
        for n in range(4):
            await rig.create(f"vm{n}", cpu=2, policy="databases")
        with pytest.raises(NoFit):
            await rig.create("more", cpu=1, policy="databases")
        assert (await rig.create("free", cpu=2)).host is not None

    run(database_url, test)


def test_vms_of_a_policy_are_spread_those_of_before_included(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await policy(rig, rules=[], strategy="first_fit")
        for name in ("one", "two"):
            assert (await rig.create(name, policy="databases")).host == "a"
        spread = SpreadBody(kind="hard", max_skew=2)
        await rig.plane.policies.change("databases", ChangePolicy(spread=spread), ADMIN)
        hosts = [(await rig.create(f"vm{n}", policy="databases")).host for n in range(4)]
        assert hosts == ["b", "b", "c", "c"]
        assert (await rig.create("free", strategy="first_fit")).host == "a"
        assert (await rig.get("vm0")).groups == []  # nobody named it
        body = DryRunPolicy(name="databases", spread=None)
        found = await rig.plane.policies.dry_run(body)
        assert found.elsewhere == 5  # "free", which then finds host a full, included
        for name in ("one", "two", "vm0", "vm1", "vm2", "vm3"):
            await rig.plane.vms.delete(name, None, OPERATOR)
        await rig.settle()
        await rig.plane.policies.delete("databases", ADMIN)

    run(database_url, test)


async def behind(first: Rig, second: Rig) -> str | None:
    """Create a VM by a process that has not heard yet of a policy's new rule; return its host."""
    await fleet(first)
    await policy(first, rules=[])
    await second.plane.follower.catch_up()
    change = ChangePolicy(rules=[rule("ssd", SSD)])
    await first.plane.policies.change("databases", change, ADMIN)
    return (await second.create("db", policy="databases", strategy="first_fit")).host


def test_a_process_that_is_behind_commits_nothing_against_a_policy(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        assert await behind(first, second) == "c"

    run_two(postgres_url, test)


def test_a_build_that_does_not_compare_policies_is_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FleetCharges._note_generations

    def forgets(charges: FleetCharges, ask: PendingCreate) -> None:
        whole(charges, ask)
        ask.constraints = None  # type: ignore[assignment]

    monkeypatch.setattr(FleetCharges, "_note_generations", forgets)

    async def test(first: Rig, second: Rig) -> None:
        assert await behind(first, second) == "a"

    run_two(postgres_url, test)


def test_a_policy_is_not_deleted_from_under_a_vm_that_is_created(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await fleet(first)
        await policy(first, rules=[])
        await second.plane.follower.catch_up()
        await first.plane.policies.delete("databases", ADMIN)
        for more in ({}, {"on_no_fit": "queue", "cpu": 64}):
            with pytest.raises((Conflict, NotFound)):
                await second.create("db", policy="databases", **more)

    run_two(postgres_url, test)


async def put(rig: Rig, vm: str, name: str | None) -> VMPolicyBody:
    return await rig.plane.policies.put_under(vm, None, ApplyPolicy(policy=name), OPERATOR)


def test_a_vm_is_put_under_another_policy_and_told_what_it_breaks(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await policy(rig)
        await policy(rig, "spread", rules=[], spread=SpreadBody(scope="host"))
        await rig.running("vm")
        said = await put(rig, "vm", "databases")
        assert (said.policy, said.version, said.host, said.changed) == ("databases", 1, "a", True)
        [broken] = said.violations
        assert broken.rule == "policy:databases/ssd"
        assert not (await put(rig, "vm", "databases")).changed
        kinds = select(events.c.kind, events.c.note).where(events.c.kind == "vm.policy_set")
        [told] = await rig.rows(kinds)
        assert told["note"] == "from no policy to databases"
        assert (await rig.get("vm")).policy == "databases"
        await rig.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
        await rig.settle()
        assert (await rig.get("vm")).host == "c"
        await rig.restart()
        assert (await rig.get("vm")).policy == "databases"
        with pytest.raises(Conflict, match="still that of VM"):
            await rig.plane.policies.delete("databases", ADMIN)
        assert (await put(rig, "vm", None)).violations == []
        await rig.plane.policies.delete("databases", ADMIN)
        with pytest.raises(InvalidRequest, match="no policy 'databases'"):
            await put(rig, "vm", "databases")
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_a_vm_joins_the_spread_of_the_policy_it_is_put_under(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        for name in ("one", "two"):
            await policy(rig, name, rules=[], spread=SpreadBody(scope="host"))
        await rig.create("vm")
        await rig.create("other")
        await rig.create("old", policy="two", constraints={"hosts": ["b"]})

        async def groups(vm: str) -> list[str]:
            row = await rig.row(vm)
            assert row is not None
            roster = rig.plane.roster
            return [roster.groups[each].name for each in roster.groups_of.get(row.id, ())]

        await put(rig, "vm", "one")
        assert await groups("vm") == ["~policy one"]
        await put(rig, "vm", "two")
        await put(rig, "other", "two")
        assert [await groups(vm) for vm in ("vm", "other", "old")] == [["~policy two"]] * 3
        await put(rig, "vm", None)
        assert await groups("vm") == []
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


async def a_vm_is_put_under_a_policy_while_it_moves_off(one: Rig, two: Rig) -> None:
    await fleet(one)
    await policy(one)
    await one.running("vm")
    await two.plane.follower.catch_up()
    asked = two.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
    await meanwhile(two, PLACING, lambda rig: put(rig, "vm", "databases"), one, asked)
    row = await one.row("vm")
    assert row is not None
    assert row.target == 3  # c, the first with an ssd


def test_no_move_is_decided_under_the_policy_of_before(postgres_url: str) -> None:
    run_two(postgres_url, a_vm_is_put_under_a_policy_while_it_moves_off)


def test_a_build_that_does_not_move_the_generation_is_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = lambda tx: constraints_generation(tx.connection)  # noqa: E731
    monkeypatch.setattr(putting, "advance_constraints", stays)
    with pytest.raises(AssertionError):
        run_two(postgres_url, a_vm_is_put_under_a_policy_while_it_moves_off)


def test_the_doctor_finds_policies_that_are_not_whole(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        for name in ("gone", "cut", "other"):
            await policy(rig, name)
        vm = await rig.create("vm", policy="gone")

        def spoil(tx: Tx) -> None:
            tx.connection.execute(update(projects).values(policy="gone"))
            tx.connection.execute(delete(policies).where(policies.c.name == "gone"))
            tx.connection.execute(delete(policy_versions).where(policy_versions.c.policy == "cut"))
            tx.connection.execute(
                update(policies).where(policies.c.name == "other").values(description="else")
            )

        await rig.store.write(spoil)
        found = {each.message for each in (await rig.plane.doctor()).findings
                 if each.check == "policies"}  # fmt: skip
        assert found == {
            f"VM {vm.id!r} is under 'gone', which does not exist",
            "project 'default' is under 'gone', which does not exist",
            "'cut' is at version 1, which is not kept",
            "'other' is not what its version 1 says",
            "version 1 is of 'gone', which does not exist",
        }

    with pytest.raises(AssertionError, match="gone"):  # the rig's own last look finds it, too
        run(database_url, test)
