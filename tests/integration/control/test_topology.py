"""The topology as a row: applied, followed by another process, asked for paths, used by plans."""

import pytest

from roost.base.errors import InvalidRequest
from roost.wire.plans import CreatePlan
from roost.wire.topology import ApplyTopology, LinkBody, NodeBody, TopologyBody
from tests.integration.control.rig import OPERATOR, Rig, run, run_two


def star(*hosts: str, bandwidth: float = 10_000.0) -> ApplyTopology:
    """Return hosts around one switch."""
    return ApplyTopology(
        nodes=[NodeBody(id="s"), *(NodeBody(id=name, type="host") for name in hosts)],
        links=[LinkBody(source=name, dest="s", bandwidth=bandwidth, latency=0.1) for name in hosts],
    )


def test_a_topology_is_assumed_until_it_is_applied(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b", "c"):
            await rig.host(name)
        assert (await rig.plane.topology.get()).source == "labels"
        made = await rig.plane.topology.apply(star("a", "b"), OPERATOR)
        assert (made.source, made.generation, made.missing) == ("declared", 1, ["c"])
        again = await rig.plane.topology.apply(star("a", "b", "c"), OPERATOR)
        assert again.generation == 2
        await rig.hear()
        path = await rig.plane.topology.path("a", "c")
        assert (path.nodes, path.latency_ms, path.free_mbit) == (["a", "s", "c"], 0.2, 10_000)
        await rig.restart()
        assert (await rig.plane.topology.get()).generation == 2
        await rig.check()

    run(database_url, test)


def test_what_is_wrong_with_a_topology_is_told_and_nothing_is_kept(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        with pytest.raises(InvalidRequest, match="'ghost', which is not registered"):
            await rig.plane.topology.apply(star("a", "ghost"), OPERATOR)
        split = star("a", "b")
        split.links.pop()
        with pytest.raises(InvalidRequest, match="2 islands"):
            await rig.plane.topology.apply(split, OPERATOR)
        with pytest.raises(InvalidRequest, match="must be above 0"):
            await rig.plane.topology.apply(star("a", "b", bandwidth=0.0), OPERATOR)
        assert (await rig.plane.topology.get()).generation == 0

    run(database_url, test)


def test_a_move_over_a_narrow_path_is_predicted_to_take_longer(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.running("vm")
        await rig.host("b")
        ask = CreatePlan(goal="move", vms=["vm"], dry_run=True)

        async def total_s() -> float:
            found = await rig.plane.plans.create(ask, OPERATOR)
            return float(found.body.listed[0].predicted.total_s)  # type: ignore[union-attr]

        wide = await total_s()
        await rig.plane.topology.apply(star("a", "b", bandwidth=100.0), OPERATOR)
        await rig.hear()
        assert await total_s() > 5 * wide

    run(database_url, test)


@pytest.mark.turns(1)
def test_another_process_hears_of_a_new_topology(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await first.host("a")
        await first.host("b")
        await second.plane.follower.catch_up()
        await first.plane.topology.apply(star("a", "b"), OPERATOR)
        await second.plane.follower.catch_up()
        found: TopologyBody = await second.plane.topology.get()
        assert (found.source, found.generation) == ("declared", 1)

    run_two(postgres_url, test)
