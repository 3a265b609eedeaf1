"""Groups as objects: seen, made, changed and deleted, with hard rules exact throughout."""

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, NoFit, NotFound
from roost.ledger.schema.tables import events, groups, members
from roost.parts.access import Principal
from roost.wire.bodies import CreateProject
from roost.wire.groups import CreateGroup, GroupVMs, ListGroups, SetGroupRule
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

APART = {"name": "apart", "rule": "anti-affinity"}
MEMBER = Principal("mia", "member", "lab")


async def fleet(rig: Rig, count: int = 4, zones: int = 2, cpu: int = 8) -> None:
    for n in range(count):
        await rig.host(f"h{n}", cpu=cpu, memory=64, zone=f"z{n % zones}", rack=f"r{n}")


async def on(rig: Rig, name: str, host: str, **given: object) -> None:
    """Create a VM on a host."""
    await rig.create(name, constraints={"hosts": [host]}, **given)


def rule(kind: str, scope: str = "host", *, hard: bool = True, max_skew: int = 1) -> SetGroupRule:
    return SetGroupRule(rule=kind, scope=scope, hard=hard, max_skew=max_skew)  # type: ignore[arg-type]


async def make(rig: Rig, name: str = "apart", kind: str = "anti-affinity", **given: object) -> None:
    body = CreateGroup(name=name, rule=kind, **given)  # type: ignore[arg-type]
    await rig.plane.groups.create(body, OPERATOR)


async def add(rig: Rig, group: str, *vms: str) -> None:
    await rig.plane.groups.add(group, None, GroupVMs(vms=list(vms)), OPERATOR)


async def remove(rig: Rig, group: str, *vms: str) -> None:
    await rig.plane.groups.remove(group, None, GroupVMs(vms=list(vms)), OPERATOR)


async def kinds(rig: Rig) -> list[str]:
    query = select(events.c.kind).where(events.c.subject.like("group/%")).order_by(events.c.seq)
    return [row["kind"] for row in await rig.rows(query)]


def test_a_group_is_made_shown_and_used_by_creates(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await make(rig)
        empty = await rig.plane.groups.get("apart", None, OPERATOR)
        assert (empty.members, empty.holds, empty.vms) == (0, True, [])
        await rig.running("a", groups=["apart"])
        await rig.running("b", groups=["apart"])
        shown = await rig.plane.groups.get("apart", "default", OPERATOR)
        assert (shown.rule, shown.scope, shown.hard, shown.members) == (
            "anti-affinity", "host", True, 2,
        )  # fmt: skip
        assert sorted((m.name, m.host, m.zone, m.state) for m in shown.vms) == [
            ("a", "h0", "z0", "running"), ("b", "h1", "z1", "running"),
        ]  # fmt: skip
        with pytest.raises(NoFit):
            await rig.create("c", groups=["apart"])
        with pytest.raises(Conflict, match="already"):
            await make(rig)

    run(database_url, test)


def test_the_same_key_makes_a_group_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        body = CreateGroup(name="apart", rule="anti-affinity")
        first = await rig.plane.groups.create(body, OPERATOR, "key")
        assert await rig.plane.groups.create(body, OPERATOR, "key") == first
        other = CreateGroup(name="apart", rule="spread")
        with pytest.raises(Conflict, match="key"):
            await rig.plane.groups.create(other, OPERATOR, "key")
        assert await kinds(rig) == ["group.created"]
        await rig.plane.groups.delete("apart", None, OPERATOR)
        with pytest.raises(Conflict, match="deleted since"):
            await rig.plane.groups.create(body, OPERATOR, "key")

    run(database_url, test)


def test_a_member_that_breaks_a_hard_rule_where_it_is_is_refused(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await make(rig)
        await on(rig, "a", "h0")
        await on(rig, "b", "h0")
        await on(rig, "c", "h1")
        await add(rig, "apart", "a", "c")
        with pytest.raises(Conflict, match="'a' on host 'h0', VM 'b' on host 'h0'"):
            await add(rig, "apart", "b")
        shown = await rig.plane.groups.get("apart", None, OPERATOR)
        assert (shown.members, shown.holds) == (2, True)
        await rig.settle()
        await remove(rig, "apart", "a")
        await add(rig, "apart", "b")
        await rig.check()
        assert (await rig.get("b")).groups == ["apart"]
        assert (await rig.get("a")).groups == []
        assert await kinds(rig) == ["group.created", "group.joined", "group.left", "group.joined"]

    run(database_url, test)


def test_adding_and_removing_twice_changes_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await make(rig)
        await on(rig, "a", "h0")
        await add(rig, "apart", "a", "a")
        await add(rig, "apart", "a")
        await remove(rig, "apart", "a")
        await remove(rig, "apart", "a")
        await rig.plane.groups.set_rule("apart", None, rule("anti-affinity"), OPERATOR)
        assert await kinds(rig) == ["group.created", "group.joined", "group.left"]

    run(database_url, test)


def test_members_that_were_added_count_for_the_next_create(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await make(rig)
        await on(rig, "old", "h0")
        await add(rig, "apart", "old")
        assert (await rig.create("new", groups=["apart"])).host == "h1"
        with pytest.raises(NoFit):
            await rig.create("third", groups=["apart"])
        await remove(rig, "apart", "old")
        assert (await rig.create("third", groups=["apart"])).host == "h0"
        await rig.restart()
        await rig.check()

    run(database_url, test)


@pytest.mark.parametrize(
    ("kind", "scope", "said"),
    [
        ("anti-affinity", "zone", "share the zone 'z0'"),
        ("affinity", "zone", "and not in 'z0'"),
        ("affinity", "host", "is in the host"),
    ],
)
def test_a_hard_rule_that_does_not_hold_now_is_refused(
    database_url: str, kind: str, scope: str, said: str
) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 4)
        await make(rig, "g", "spread")
        for name, host in (("a", "h0"), ("b", "h2"), ("c", "h1")):
            await on(rig, name, host)
        await add(rig, "g", "a", "b", "c")
        with pytest.raises(Conflict, match=said):
            await rig.plane.groups.set_rule("g", None, rule(kind, scope), OPERATOR)
        assert (await rig.plane.groups.get("g", None, OPERATOR)).rule == "spread"
        soft = rule(kind, scope, hard=False)
        shown = await rig.plane.groups.set_rule("g", None, soft, OPERATOR)
        assert (shown.rule, shown.hard, shown.holds) == (kind, False, False)
        assert said in " ".join(shown.broken)

    run(database_url, test)


def test_another_rule_binds_the_next_create_and_a_softer_one_frees_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2, zones=1)
        await make(rig, "g", "anti-affinity")
        await rig.create("a", groups=["g"])
        await rig.create("b", groups=["g"])
        await rig.create("w", groups=["g"], on_no_fit="queue")
        assert (await rig.state("w"))[0] == "pending"
        await rig.plane.groups.set_rule("g", None, rule("affinity", "zone"), OPERATOR)
        await rig.settle(keep=True)
        assert (await rig.state("w"))[0] == "running"
        assert (await rig.plane.groups.get("g", None, OPERATOR)).holds
        await rig.plane.groups.set_rule("g", None, rule("spread", "host", max_skew=1), OPERATOR)
        hosts = [(await rig.create(f"s{n}", groups=["g"])).host for n in range(3)]
        assert sorted(hosts) == ["h0", "h1", "h1"] or sorted(hosts) == ["h0", "h0", "h1"]

    run(database_url, test)


def test_a_host_of_unknown_rack_proves_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0")
        await make(rig, "g", "affinity", scope="rack")
        await on(rig, "a", "h0")
        with pytest.raises(Conflict, match="'h0', whose rack is unknown"):
            await add(rig, "g", "a")

    run(database_url, test)


def test_a_member_that_moves_counts_in_both_places(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 3)
        await make(rig)
        await on(rig, "still", "h1")
        await on(rig, "there", "h0")
        await rig.create("mover", constraints={"hosts": ["h2", "h1"]})
        await rig.settle()
        assert (await rig.state("mover"))[1] == "h1"
        await rig.migrate("mover", "h2")
        await add(rig, "apart", "there", "mover")
        with pytest.raises(Conflict, match="'h1'"):
            await add(rig, "apart", "still")
        await rig.settle()
        await add(rig, "apart", "still")

    run(database_url, test)


def test_a_group_with_members_is_deleted_only_by_force(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await rig.create("a", groups=[APART])
        await rig.create("w", groups=[APART], on_no_fit="queue", cpu=100)
        with pytest.raises(Conflict, match="2 members"):
            await rig.plane.groups.delete("apart", None, OPERATOR)
        await rig.plane.groups.delete("apart", None, OPERATOR, force=True)
        with pytest.raises(NotFound):
            await rig.plane.groups.get("apart", None, OPERATOR)
        assert await rig.rows(select(members)) == await rig.rows(select(groups)) == []
        assert (await rig.get("a")).groups == []
        with pytest.raises(NotFound, match="no group"):
            await rig.create("b", groups=["apart"])
        await rig.create("b", groups=[APART | {"rule": "affinity"}])
        await rig.check()
        await rig.restart()

    run(database_url, test)


def test_a_rule_about_labels_is_shown_and_left_to_the_labels(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await rig.create(
            "a",
            labels={"app": "db"},
            affinity=[{"selector": {"app": "db"}, "rule": "anti-affinity"}],
        )
        page = await rig.plane.groups.list(ListGroups(), OPERATOR)
        (found,) = page.groups
        assert (found.selector, found.members) == ({"app": "db"}, 1)
        assert found.id.startswith("labels-")
        shown = await rig.plane.groups.get(found.id, None, OPERATOR)
        assert [vm.name for vm in shown.vms] == ["a"]
        with pytest.raises(Conflict, match="labels decide"):
            await add(rig, found.id, "a")
        with pytest.raises(Conflict, match="rule about labels"):
            await rig.plane.groups.set_rule(found.id, None, rule("spread"), OPERATOR)
        with pytest.raises(Conflict, match="1 members"):
            await rig.plane.groups.delete(found.id, None, OPERATOR, force=True)
        await rig.plane.vms.delete("a", None, OPERATOR)
        await rig.settle()
        await rig.plane.groups.delete(found.id, None, OPERATOR)
        await rig.create("b", labels={"app": "db"})
        await rig.create("c", labels={"app": "db"})
        assert {(await rig.get("b")).host, (await rig.get("c")).host} == {"h0"}
        await rig.check()

    run(database_url, test)


def test_groups_are_listed_in_pages_and_by_what_they_are(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for n in range(5):
            await make(rig, f"g{n}", "spread" if n % 2 else "affinity")
        first = await rig.plane.groups.list(ListGroups(limit=3), OPERATOR)
        assert [group.name for group in first.groups] == ["g0", "g1", "g2"]
        rest = await rig.plane.groups.list(ListGroups(limit=3, after=first.next), OPERATOR)
        assert ([group.name for group in rest.groups], rest.next) == (["g3", "g4"], None)
        spread = await rig.plane.groups.list(ListGroups(rule="spread"), OPERATOR)
        assert [group.name for group in spread.groups] == ["g1", "g3"]
        named = await rig.plane.groups.list(ListGroups(name="g2", project="default"), OPERATOR)
        assert [group.name for group in named.groups] == ["g2"]

    run(database_url, test)


def test_members_of_a_group_are_shown_in_pages(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 1)
        await make(rig, "g", "spread", hard=False)
        for n in range(5):
            await rig.create(f"v{n}", groups=["g"])
        first = await rig.plane.groups.get("g", None, OPERATOR, 3)
        rest = await rig.plane.groups.get("g", None, OPERATOR, 3, first.next)
        assert len(first.vms) == 3
        assert {vm.name for vm in first.vms + rest.vms} == {f"v{n}" for n in range(5)}
        assert (first.members, rest.next) == (5, None)

    run(database_url, test)


def test_a_member_of_a_project_has_its_groups_alone(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        await make(rig)
        own = CreateGroup(name="mine", rule="spread", project="lab")
        await rig.plane.groups.create(own, MEMBER)
        await rig.create("a", project="lab")
        await rig.create("b")
        await rig.plane.groups.add("mine", None, GroupVMs(vms=["a"]), MEMBER)
        listed = await rig.plane.groups.list(ListGroups(), MEMBER)
        assert [group.name for group in listed.groups] == ["mine"]
        assert (await rig.plane.groups.list(ListGroups(project="default"), MEMBER)).groups == []
        for attempt in (
            rig.plane.groups.get("apart", "default", MEMBER),
            rig.plane.groups.get("apart", None, MEMBER),
            rig.plane.groups.create(
                CreateGroup(name="x", rule="spread", project="default"), MEMBER
            ),
            rig.plane.groups.delete("apart", "default", MEMBER),
            rig.plane.groups.add("mine", None, GroupVMs(vms=["b"]), MEMBER),
            rig.plane.groups.add("mine", "lab", GroupVMs(vms=["b"]), OPERATOR),
            rig.plane.groups.set_rule("apart", "default", rule("spread"), MEMBER),
        ):
            with pytest.raises(NotFound):
                await attempt

    run(database_url, test)


def test_what_is_being_deleted_joins_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await make(rig)
        await rig.running("a", groups=["apart"])
        await rig.running("b")
        await rig.plane.vms.delete("b", None, OPERATOR)
        with pytest.raises(Conflict, match="being deleted"):
            await add(rig, "apart", "b")
        await rig.plane.vms.delete("a", None, OPERATOR)
        await remove(rig, "apart", "a")
        await rig.settle()
        assert await rig.rows(select(members)) == []

    run(database_url, test)
