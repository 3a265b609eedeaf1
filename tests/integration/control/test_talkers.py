"""Who talks with whom: declared, kept with a generation, and gone by wherever a VM is placed."""

import pytest

from roost.base.errors import InvalidRequest, NoFit, NotFound
from roost.parts.routes import Answered
from roost.wire.bodies import ConstraintsBody, DryRun, MigrateVM, NearBody, SetVM
from roost.wire.plans import CreatePlan, PlanDetail
from roost.wire.recommendations import AskRecommendations
from roost.wire.topology import ApplyTopology, LinkBody, NodeBody, SetTraffic, TrafficBody
from tests.integration.control.rig import OPERATOR, Rig, body_of, run, run_two


def two_racks(*, uplink: float = 10_000.0, taken: float = 0.0) -> ApplyTopology:
    """Return hosts a and b on one switch, c and d on another: 0.2 ms within, 2.2 ms across.

    `uplink` is that of the first, of which a share is `taken`.
    """
    hosts = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
    nodes = [NodeBody(id=name, type="host") for name in hosts]
    nodes += [NodeBody(id=name) for name in ("r1", "r2", "core")]
    links = [
        LinkBody(source=name, dest=rack, bandwidth=10_000, latency=0.1)
        for name, rack in hosts.items()
    ]
    links += [
        LinkBody(source="r1", dest="core", bandwidth=uplink, latency=1.0, utilization=taken),
        LinkBody(source="r2", dest="core", bandwidth=10_000, latency=1.0),
    ]
    return ApplyTopology(nodes=nodes, links=links)


async def racks(rig: Rig, topology: ApplyTopology | None = None) -> None:
    """Give a rig four hosts in two racks, and say how they are joined."""
    for name in "abcd":
        await rig.host(name)
    await rig.plane.topology.apply(topology or two_racks(), OPERATOR)
    await rig.hear()


def talk(source: str, dest: str, rate: float) -> SetTraffic:
    """Return one pair."""
    return SetTraffic(pairs=[TrafficBody(source=source, dest=dest, rate=rate)])


def near(vm: str, latency: float | None = None, bandwidth: float | None = None) -> ConstraintsBody:
    """Return a bound."""
    return ConstraintsBody(near=[NearBody(vm=vm, latency=latency, bandwidth=bandwidth)])


def on(host: str) -> ConstraintsBody:
    """Return a pin."""
    return ConstraintsBody(hosts=[host])


def test_a_vm_goes_near_the_one_that_it_talks_with(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        await rig.running("db", constraints=on("d"))
        await rig.running("other", constraints=on("c"))  # a and b are emptier
        plain = await rig.create("plain")
        assert plain.host == "a"
        made = await rig.plane.topology.set_traffic(
            talk("default/web", "default/db", 500), OPERATOR
        )
        assert (made.generation, made.pairs[0].known) == (1, False)
        web = await rig.create("web")
        assert web.host in ("c", "d")
        assert web.placement is not None
        dry = await rig.plane.questions.dry_run(DryRun(**_fields("web")), OPERATOR)
        assert dry.host in ("c", "d")
        terms = {each.name: each.value for each in dry.breakdown}
        if dry.host != "d":
            assert terms["distance to talkers"] > 0
        assert (await rig.plane.topology.traffic()).pairs[0].known
        gone = await rig.plane.topology.set_traffic(talk("default/web", "default/db", 0), OPERATOR)
        assert (gone.generation, gone.pairs) == (2, [])
        await rig.check()

    run(database_url, test)


def _fields(name: str) -> dict:
    return {"name": name, "demand": body_of(name).demand}


def test_recommendations_tell_how_far_each_host_is(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        await rig.running("db", constraints=on("d"))
        await rig.running("web")
        await rig.plane.topology.set_traffic(talk("default/web", "default/db", 300), OPERATOR)
        found = await rig.plane.questions.recommend(AskRecommendations(vm="web"), OPERATOR)
        far = {
            each.host: {t.name: t.value for t in each.breakdown}.get("distance to talkers", 0)
            for each in found.recommendations
        }
        assert far["d"] == 0
        assert 0 < far["c"] < far["b"]
        assert found.recommendations[0].host == "d"

    run(database_url, test)


def test_what_must_be_near_is_near_or_refused_with_the_nearest(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        db = await rig.running("db", constraints=on("d"))
        web = await rig.create("web", constraints=near("db", latency=0.5))
        assert web.host in ("c", "d")
        assert web.constraints["near"] == [{"vm": "db", "latency": 0.5}]
        both, wide = near("db", latency=0.1), near(db.id, bandwidth=20_000)
        both.not_hosts = wide.not_hosts = ["d"]
        with pytest.raises(NoFit, match=r"at most 0\.1 ms to db, nearest c with 0\.2 ms"):
            await rig.create("too-near", constraints=both)
        with pytest.raises(NoFit, match="at least 20000 Mbit/s to vm-"):
            await rig.create("too-wide", constraints=wide)
        await rig.restart()  # bounds are in specs: the next process knows them, too
        talks = rig.plane.roster.talkers.of(db.id, "default/db", (), ())
        assert {(each.name, each.most_us) for each in talks} == {(web.id, 500)}

    run(database_url, test)


def test_a_bound_holds_for_both_ends_on_every_path(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        db = await rig.running("db")
        web = await rig.running("web", constraints=near("db", latency=0.5))
        assert (db.host, web.host) == ("a", "a")
        # Neither the one that asked for it nor the other may be moved away.
        for name in ("web", "db"):
            with pytest.raises(NoFit, match=r"latency at most 0\.5 ms"):
                await rig.plane.moves.migrate(name, None, MigrateVM(host="c"), OPERATOR)
        plan = await rig.plane.plans.create(
            CreatePlan(goal="drain", hosts=["a"], dry_run=True), OPERATOR
        )
        assert {each.target for each in plan.body.listed} == {"b"}
        plan = await rig.plane.plans.create(
            CreatePlan(goal="drain", hosts=["a", "b"], dry_run=True), OPERATOR
        )
        assert not plan.body.listed
        await rig.move("db", "b")
        await rig.check()

    run(database_url, test)


def test_bounds_on_nobody_or_without_a_network_are_refused(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.running("db")
        with pytest.raises(InvalidRequest, match="no network is described"):
            await rig.create("web", constraints=near("db", latency=1))
        await rig.host("b")
        star = two_racks()
        star.nodes = [n for n in star.nodes if n.id not in ("c", "d", "r2")]
        star.links = [e for e in star.links if e.source not in ("c", "d", "r2")]
        await rig.plane.topology.apply(star, OPERATOR)
        with pytest.raises(NotFound, match="no VM 'ghost' to be near to"):
            await rig.create("web", constraints=near("ghost", latency=1))
        with pytest.raises(InvalidRequest, match="is not said"):
            await rig.create("web", constraints=near("db"))
        nobody = ConstraintsBody(near=[NearBody(latency=1)])
        with pytest.raises(InvalidRequest, match="one VM or one group"):
            await rig.create("web", constraints=nobody)
        for source, says in (
            ("db", "names no VM"), ("default/db", "talk with itself"), ("group:x", "names no VM"),
        ):  # fmt: skip
            with pytest.raises(InvalidRequest, match=says):
                await rig.plane.topology.set_traffic(talk(source, "default/db", 5), OPERATOR)
        with pytest.raises(InvalidRequest, match="-5, not between 0"):
            await rig.plane.topology.set_traffic(talk("default/x", "default/db", -5), OPERATOR)

    run(database_url, test)


def test_hosts_behind_a_saturated_uplink_are_avoided(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig, two_racks(uplink=1000.0, taken=0.5))
        await rig.running("one", constraints=on("c"))
        await rig.running("two", constraints=on("a"))
        await rig.running("three", constraints=on("b"))
        assert rig.plane.roster.engine.network.saturated == frozenset()
        free = rig.plane.topology.bandwidth(0, 2)
        assert free == 500 * 125_000
        await rig.plane.topology.set_traffic(talk("default/one", "default/two", 400), OPERATOR)
        assert rig.plane.topology.bandwidth(0, 2) == 100 * 125_000  # a move shares it with tenants
        assert (await rig.create("calm")).host == "a"
        await rig.plane.topology.set_traffic(talk("default/one", "default/two", 900), OPERATOR)
        assert rig.plane.roster.engine.network.saturated == {"a", "b"}
        assert (await rig.create("next")).host == "c"
        shown = await rig.plane.questions.dry_run(
            DryRun(**_fields("pinned"), constraints=on("b")), OPERATOR
        )
        assert "saturated uplink" in {each.name for each in shown.breakdown}
        await rig.check()

    run(database_url, test)


def test_a_group_that_talks_is_expanded_to_its_members(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        for index, host in enumerate("cd"):
            await rig.running(f"db-{index}", constraints=on(host), groups=[
                {"name": "dbs", "rule": "anti-affinity"} if not index else "dbs"])  # fmt: skip
        await rig.plane.topology.set_traffic(
            talk("default/web", "group:default/dbs", 300), OPERATOR
        )
        assert (await rig.create("web")).host in ("c", "d")

    run(database_url, test)


@pytest.mark.turns(1)
def test_another_process_hears_of_traffic_and_goes_by_it(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await racks(first)
        await first.running("db", constraints=on("d"))
        await first.plane.topology.set_traffic(talk("default/web", "default/db", 500), OPERATOR)
        await second.plane.follower.catch_up()
        await second.plane.topology.tell()
        found = await second.plane.questions.dry_run(DryRun(**_fields("web")), OPERATOR)
        assert found.host in ("c", "d")

    run_two(postgres_url, test)


def test_a_plan_brings_talkers_together_and_then_finds_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        await rig.running("db", constraints=on("d"))
        await rig.running("web", constraints=ConstraintsBody(not_hosts=["b", "c", "d"]))
        await rig.running("log", constraints=ConstraintsBody(not_hosts=["a", "c", "d"]))
        web, log = await rig.get("web"), await rig.get("log")
        assert (web.host, log.host) == ("a", "b")
        for name in ("web", "log"):
            await rig.plane.vms.set(name, None, SetVM(not_hosts=[]), OPERATOR)
        for name, rate in (("web", 500), ("log", 1)):  # what the second sends is not worth a move
            await rig.plane.topology.set_traffic(
                talk(f"default/{name}", "default/db", rate), OPERATOR
            )
        told = await rig.plane.plans.recommend()
        assert "talkers" in [each.goal for each in told.recommendations]
        made = await rig.plane.plans.create(CreatePlan(goal="talkers", apply=True), OPERATOR)
        assert isinstance(made, PlanDetail)
        assert [(each.name, each.target) for each in made.listed] == [("web", "d")]
        assert made.listed[0].why == "its 500 Mbit/s go 2.24 ms far, then 0.00"
        await rig.pass_by(30)
        assert (await rig.get("web")).host == "d"
        again = await rig.plane.plans.create(CreatePlan(goal="talkers", dry_run=True), OPERATOR)
        assert isinstance(again, Answered)
        assert isinstance(again.body, PlanDetail)
        assert again.body.moves == 0
        await rig.check()

    run(database_url, test)
