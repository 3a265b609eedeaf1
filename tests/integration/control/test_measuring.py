"""Measurements of the network: which agents are asked, what is believed, what is proposed."""

import asyncio

import pytest

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.topology.measuring import NOT_HERE, SWITCHED_OFF, TOO_OLD
from roost.testing.agent import ModelAgent
from roost.wire.agentlink import ProbeInfo, ProbeOrder, ProbeReply
from roost.wire.topology import MeasurementBody, MeasureTopology, SetTraffic, TrafficBody
from tests.integration.control.rig import OPERATOR, Rig, run


async def prober(rig: Rig, name: str, rack: str = "r1", mbit: float = 900.0) -> ModelAgent:
    """Let a host join whose agent finds 0.2 ms and so many Mbit/s."""
    agent = ModelAgent(name, rig.clock.monotonic)
    agent.inventory.zone, agent.inventory.rack = "z", rack
    agent.probe = ProbeInfo(f"10.0.0.{1 + len(rig.agents)}:7071")
    agent.probes = lambda order: (
        ProbeReply(order.number, 0.4, 0.5, mbit, mbit + 10)
        if order.address
        else ProbeReply(order.number)
    )
    rig.agents[name] = agent
    agent.connect(rig.plane)
    await rig.settle(check=False)
    return agent


async def measured(rig: Rig, hosts: list[str] | None = None) -> MeasurementBody:
    """Measure, and return what came out; time passes for who waits."""
    found = await rig.plane.measuring.begin(MeasureTopology(hosts=hosts or []))
    for _ in range(2000):
        if found.state != "running":
            break
        for agent in rig.agents.values():
            rig.step(agent)
        await rig.hear()
        await asyncio.sleep(0)
        if found.state == "running" and not any(a.inbox or a.outbox for a in rig.agents.values()):
            await rig.clock.pass_by(0.5)
    assert found.state == "done"
    return found


def test_a_measured_topology_is_proposed_and_applied_by_hand(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await prober(rig, "a")
        await prober(rig, "b")
        await prober(rig, "c", "r2", 400.0)
        await rig.plane.topology.set_traffic(
            SetTraffic(pairs=[TrafficBody(source="p/a", dest="p/b", rate=5.0)]), OPERATOR
        )
        found = await measured(rig)
        assert (found.method, found.done, found.islands) == ("all pairs", 3, 1)
        assert [(p.source, p.dest, p.latency, p.out, p.back) for p in found.pairs] == [
            ("a", "b", 0.2, 900.0, 910.0),
            ("a", "c", 0.2, 900.0, 910.0),
            ("b", "c", 0.2, 900.0, 910.0),
        ]
        assert {p.proposed_bandwidth for p in found.pairs} == {900.0}
        assert (await rig.plane.topology.get()).source == "labels"  # nothing has changed
        assert found.proposal is not None
        applied = await rig.plane.topology.apply(found.proposal, OPERATOR)
        assert (applied.source, applied.missing) == ("declared", [])
        path = await rig.plane.topology.path("a", "c")
        assert (path.latency_ms, path.free_mbit) == (pytest.approx(0.2, abs=0.001), 900.0)
        assert len((await rig.plane.topology.traffic()).pairs) == 1  # what was declared stays
        await rig.check()

    run(database_url, test)


def test_what_cannot_be_measured_is_said_and_never_zero(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await prober(rig, "a")
        await prober(rig, "b")
        (await prober(rig, "slow")).probes = lambda order: (
            ProbeReply(order.number, 0.4, 0.5, None, None) if order.address else None
        )
        await rig.host("old")
        (await prober(rig, "off")).probe = ProbeInfo()
        (await prober(rig, "taken")).probe = ProbeInfo(why="port 7071 cannot be opened")
        (await prober(rig, "odd")).probe = ProbeInfo("http://elsewhere")
        for name in ("off", "taken", "odd"):
            rig.agents[name].connect(rig.plane)
        await rig.settle(check=False)
        (await prober(rig, "gone")).disconnect()
        found = await measured(rig)
        why = {each.host: each.why for each in found.unable}
        assert why == {
            "gone": NOT_HERE,
            "odd": "its agent names 'http://elsewhere', which is no address of a probe port",
            "off": SWITCHED_OFF,
            "old": TOO_OLD,
            "taken": "port 7071 cannot be opened",
        }
        by = {(p.source, p.dest): p for p in found.pairs}
        assert by["a", "b"].state == "done"
        silent = by["a", "slow"]
        assert silent.state == "failed"
        assert silent.why == "the agent of slow has not answered within 5 s"
        assert (silent.latency, silent.out) == (None, None)
        assert found.proposal is not None
        assert [n.id for n in found.proposal.nodes if n.type == "host"] == ["a", "b", "slow"]
        assert found.inferred == ["slow"]
        assert found.left_out == ["gone", "odd", "off", "old", "taken"]
        assert not any(isinstance(each, ProbeOrder) for each in rig.agents["old"].heard)

    run(database_url, test)


@pytest.mark.parametrize(
    "said",
    [
        '"round_trip_ms":-1',
        '"round_trip_ms":NaN',
        '"round_trip_ms":Infinity',
        '"round_trip_ms":1e7',
        '"out_mbit":0',
        '"out_mbit":-5',
        '"out_mbit":1e300',
        '"back_mbit":1e999',
        '"back_mbit":"fast"',
    ],
)
def test_a_figure_that_cannot_be_true_ends_the_connection(sqlite_url: str, said: str) -> None:
    async def test(rig: Rig) -> None:
        await prober(rig, "b")
        liar = await prober(rig, "a")

        def lie(order: ProbeOrder) -> None:
            data = f'{{"type":"probed","number":{order.number},{said}}}'
            liar.outbox.append(data.encode())

        liar.probes = lie  # type: ignore[assignment]
        found = await measured(rig)
        assert found.pairs[0].state == "failed"
        assert (found.pairs[0].latency, found.pairs[0].out, found.proposal) == (None, None, None)
        assert not liar.connected

    run(sqlite_url, test)


def test_an_agent_answers_only_what_it_was_asked(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        one, other = await prober(rig, "a"), await prober(rig, "b")
        stranger = await prober(rig, "c", "r2")
        words = set[str]()

        def listen(order: ProbeOrder) -> ProbeReply:
            words.add(order.word)
            for number in range(50):  # whatever others were asked
                stranger._say(ProbeReply(number, 0.001, 0.001, 1e9, 1e9))
            return ProbeReply(order.number)

        other.probes = listen
        found = await measured(rig, ["a", "b"])
        assert (found.pairs[0].latency, found.pairs[0].out) == (0.2, 900.0)
        assert one.connected
        assert stranger.connected
        await measured(rig, ["a", "b"])
        assert len(words) == 2
        assert all(len(word) == 40 for word in words)

    run(sqlite_url, test)


def test_one_measurement_at_a_time_and_it_can_be_cancelled(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in "abc":
            await prober(rig, name)
        planned = await rig.plane.measuring.begin(MeasureTopology(dry_run=True))
        assert (planned.state, len(planned.pairs), planned.most_s) == ("planned", 3, 81.0)
        found = await rig.plane.measuring.begin(MeasureTopology())
        with pytest.raises(Conflict, match=f"{found.id} is under way"):
            await rig.plane.measuring.begin(MeasureTopology())
        ended = await rig.plane.measuring.cancel(found.id)
        assert ended.state == "cancelled"
        assert {(p.state, p.why) for p in ended.pairs} == {("failed", "it was cancelled")}
        assert ended.proposal is None
        assert await rig.plane.measuring.get(found.id) is ended
        for wrong in (planned.id, "x"):
            with pytest.raises(NotFound, match="knows no measurement"):
                await rig.plane.measuring.get(wrong)
        with pytest.raises(NotFound, match="no host 'ghost'"):
            await rig.plane.measuring.begin(MeasureTopology(hosts=["ghost"]))
        with pytest.raises(InvalidRequest, match="1 hosts can measure, and it takes two"):
            await rig.plane.measuring.begin(MeasureTopology(hosts=["a"]))

    run(sqlite_url, test)
