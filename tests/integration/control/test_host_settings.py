"""What operators set about hosts in place of what agents say: it holds, and survives them."""

import json

import pytest
from msgspec.structs import replace

from roost.agent.capacity import HostCapacity
from roost.base.errors import InvalidRequest, NoFit
from roost.testing.agent import inventory
from roost.wire.agentlink import AmountInfo, TaintInfo, Welcome
from roost.wire.bodies import SetHost, SetMaintenance, TaintBody
from roost.wire.hostsettings import with_limits
from tests.integration.control.rig import OPERATOR, Rig, run
from tests.integration.control.typed import typing

WRONG: tuple[tuple[str, ...], ...] = (
    ("--overcommit", "gpu=2"),
    ("--overcommit", "cpu=0"),
    ("--taint", "a:b"),
    ("--label", "x"),
    ("--taint", "x-"),
    ("--as-agent", "name"),
    (),
)


def told(rig: Rig, host: str) -> Welcome:
    """Return what an agent was told last about its host."""
    return [each for each in rig.agents[host].heard if isinstance(each, Welcome)][-1]


def test_overcommitment_holds_at_once_and_after_the_agent_registers_anew(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h0", 4, 8)
        for n in range(4):
            await rig.running(f"a{n}")
        with pytest.raises(NoFit):
            await rig.create("b")
        await rig.plane.hosts.set("h0", SetHost(overcommit={"cpu": 2}), OPERATOR)
        await rig.settle()
        assert (told(rig, "h0").ratio_milli, told(rig, "h0").reserve) == ({"cpu": 2000}, {})
        await rig.running("b")
        agent.disconnect()
        agent.inventory = inventory(4, 8, labels={"new": "yes"})  # another boot of the machine
        agent.connect(rig.plane)
        await rig.settle()
        assert told(rig, "h0").ratio_milli == {"cpu": 2000}
        host = await rig.plane.hosts.get("h0")
        assert (host.cpu_milli.capacity, host.labels) == (8000, {"new": "yes"})
        await rig.restart()
        assert (await rig.plane.hosts.get("h0")).cpu_milli.capacity == 8000

    run(database_url, test)


def test_why_a_host_is_closed_is_told_until_it_is_open_again(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h0", 4, 8)
        hosts = rig.plane.hosts
        assert (await hosts.cordon("h0", OPERATOR, "a new disk")).closed == "a new disk"
        assert (await hosts.cordon("h0", OPERATOR)).closed == "a new disk"
        found = await hosts.set("h0", SetHost(overcommit={"cpu": 2}), OPERATOR)
        assert (found.closed, found.overridden) == ("a new disk", ["overcommit.cpu"])
        found = await hosts.set_maintenance("h0", SetMaintenance(on=True), OPERATOR)
        assert (found.closed, found.admin) == ("a new disk", "maintenance")
        agent.disconnect()
        agent.connect(rig.plane)
        await rig.restart()
        assert (await rig.plane.hosts.get("h0")).closed == "a new disk"
        found = await rig.plane.hosts.uncordon("h0", OPERATOR)
        assert (found.closed, found.overridden) == ("", ["overcommit.cpu"])

    run(database_url, test)


def test_an_agent_counts_by_what_it_is_told() -> None:
    mine = inventory(4, 8)
    counted = HostCapacity(with_limits(mine, {"memory": 1 << 30}, {"cpu": 2500}))
    assert counted._capacity["cpu_milli"] == 10_000
    assert counted._capacity["memory_bytes"] == 7 << 30
    assert with_limits(mine, {}, {}) is mine


def test_a_taint_keeps_vms_away_and_a_reserve_takes_room(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        await rig.running("here")
        await rig.plane.hosts.set("h0", SetHost(taints=[TaintBody(key="gpu")]), OPERATOR)
        await rig.settle()
        with pytest.raises(NoFit):
            await rig.create("plain")
        await rig.create("bound", constraints={"tolerations": [{"key": "gpu"}]})
        rig.shrunk = True  # below what it has promised
        await rig.plane.hosts.set("h0", SetHost(taints=None, reserve={"cpu": 3}), OPERATOR)
        await rig.settle()
        host = await rig.plane.hosts.get("h0")
        assert (host.cpu_milli.capacity, host.cpu_milli.committed) == (1000, 2000)
        assert (host.taints, host.overridden) == ([], ["reserve.cpu"])
        with pytest.raises(NoFit):
            await rig.create("plain")
        with pytest.raises(InvalidRequest, match="nothing"):
            await rig.plane.hosts.set("h0", SetHost(), OPERATOR)
        again = await rig.plane.hosts.set("h0", SetHost(reserve={"cpu": "3000m"}), OPERATOR)
        assert again.generation == host.generation  # as it was: nothing is written

    run(sqlite_url, test)


def test_host_set_as_it_is_typed(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8, labels={"zone": "a"})
        await rig.host("h1", 4, 8, labels={"zone": "a"})
        await rig.host("h2", 4, 8)
        async with typing(rig, monkeypatch) as type_:
            await type_("host", "set", "-l", "zone=a", "--taint", "gpu=yes", "--label", "tier=gold")
            shown = json.loads((await type_("host", "show", "h1", "-o", "json")).output)
            assert shown["taints"] == [{"key": "gpu", "value": "yes", "effect": "no-place"}]
            assert shown["labels"] == {"zone": "a", "tier": "gold"}
            assert "h2" in (await type_("place", "--cpu", "1", "--memory", "1GiB")).output
            await type_("host", "set", "h0", "--taint", "gpu-", "--label", "tier-")
            said = await type_("host", "set", "h0", "--overcommit", "cpu=2", "--reserve", "cpu=1")
            assert "cpu x2" in said.output
            # What is not named stays.
            more = await type_("host", "set", "h0", "--reserve", "memory=1GiB")
            assert "1 cores, 1 GiB memory" in more.output
            await type_("host", "set", "h0", "--as-agent", "reserve", "--as-agent", "overcommit")
            again = json.loads((await type_("host", "show", "h0", "-o", "json")).output)
            assert again["overridden"] == ["labels", "taints"]
            for wrong in WRONG:
                assert "error" in (await type_("host", "set", "h0", *wrong, rc=2)).output
            assert (await type_("host", "set", "nope", "--taint", "a", rc=3)).output

    run(sqlite_url, test)


FULL = TaintInfo("roost/disk-full")


def test_what_an_agent_sees_of_its_host_stands_beside_taints_that_were_set(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h0", 4, 8)
        await rig.plane.hosts.set("h0", SetHost(taints=[TaintBody(key="gpu")]), OPERATOR)
        agent.disconnect()
        agent.inventory = replace(agent.inventory, taints=[FULL])
        agent.connect(rig.plane)
        await rig.settle()
        assert {each["key"] for each in (await rig.plane.hosts.get("h0")).taints} == {
            "gpu", FULL.key,
        }  # fmt: skip
        tolerant = {"tolerations": [{"key": "gpu"}]}
        with pytest.raises(NoFit):
            await rig.create("web", constraints=tolerant)
        async with typing(rig, monkeypatch) as typed:
            await typed("host", "set", "h0", "--taint", "gold=yes")
        agent.disconnect()
        agent.inventory = replace(agent.inventory, taints=[])
        agent.connect(rig.plane)
        await rig.settle()
        keys = {each["key"] for each in (await rig.plane.hosts.get("h0")).taints}
        assert keys == {"gpu", "gold"}
        mine = SetHost(taints=[TaintBody(key=FULL.key)])
        with pytest.raises(InvalidRequest, match="an agent alone"):
            await rig.plane.hosts.set("h0", mine, OPERATOR)

    run(database_url, test)


def test_a_host_that_has_grown_beyond_what_its_overcommitment_can_count_registers(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h0", 4, 8)
        with pytest.raises(InvalidRequest, match="more than 2\\^48"):
            await rig.plane.hosts.set("h0", SetHost(overcommit={"memory": 60_000}), OPERATOR)
        await rig.plane.hosts.set("h0", SetHost(overcommit={"memory": 1000}), OPERATOR)
        agent.disconnect()
        agent.inventory = replace(agent.inventory, memory_bytes=AmountInfo(2**46))
        agent.connect(rig.plane)
        await rig.settle()
        host = await rig.plane.hosts.get("h0")
        assert host.health == "online"
        assert 2**47 < host.memory_bytes.capacity <= 2**48

    run(sqlite_url, test)
