"""Hard rules of groups, also when everything happens at once and when labels make the group."""

import asyncio

import pytest

from roost.base.errors import Conflict, NoFit, NotFound
from roost.wire.bodies import CreateVMs
from tests.integration.control.rig import OPERATOR, Rig, body_of, digest_of, run

APART = {"name": "apart", "rule": "anti-affinity"}
TOGETHER = {"name": "together", "rule": "affinity", "scope": "zone"}
EVEN = {"name": "even", "rule": "spread", "scope": "zone"}


async def fleet(rig: Rig, count: int = 6, zones: int = 2, cpu: int = 8) -> None:
    for n in range(count):
        await rig.host(f"h{n}", cpu=cpu, memory=64, zone=f"z{n % zones}")


async def hosts_of(rig: Rig, *names: str) -> list[str]:
    rows = [await rig.row(name) for name in names]
    return [rig.plane.roster.host_name(row.host) or "" for row in rows if row is not None]


def test_members_stay_apart_under_a_storm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 6)
        asked = [rig.create(f"v{n}", groups=[APART]) for n in range(10)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [each for each in found if isinstance(each, BaseException)]
        assert len(refused) == 4
        assert all(isinstance(each, NoFit) for each in refused)
        assert len({each.host for each in found if not isinstance(each, BaseException)}) == 6

    run(database_url, test, inline=False)


def test_members_stay_together_and_even_under_a_storm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 6, zones=3)
        asked = [
            rig.create(f"{rule['name']}{n}", groups=[rule], strategy="least_loaded")
            for n in range(6)
            for rule in (TOGETHER, EVEN)
        ]
        await asyncio.gather(*asked)
        zones = {name: agent.inventory.zone for name, agent in rig.agents.items()}
        together = await hosts_of(rig, *(f"together{n}" for n in range(6)))
        assert len({zones[host] for host in together}) == 1
        even = [zones[host] for host in await hosts_of(rig, *(f"even{n}" for n in range(6)))]
        assert sorted(even.count(zone) for zone in set(even)) == [2, 2, 2]
        assert (await rig.plane.doctor()).notes == []

    run(database_url, test, inline=False)


def test_a_batch_and_an_atomic_batch_keep_to_the_rule(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 3)
        each = CreateVMs(vms=[body_of(f"v{n}", groups=[APART]) for n in range(4)])
        found = await rig.plane.admit.create_many(each, OPERATOR, None, digest_of(each))
        assert (found.batch.created, found.batch.failed) == (3, 1)
        other = APART | {"name": "apart2"}
        all_or_none = CreateVMs(
            vms=[body_of(f"w{n}", groups=[other]) for n in range(4)], atomic=True
        )
        with pytest.raises(NoFit):
            await rig.plane.admit.create_many(all_or_none, OPERATOR, None, digest_of(all_or_none))
        await rig.check()

    run(database_url, test)


def test_a_rule_belongs_to_the_group(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        with pytest.raises(NotFound, match="no group"):
            await rig.create("a", groups=["apart"])
        await rig.create("a", groups=[APART])
        with pytest.raises(Conflict, match="exists with rule"):
            await rig.create("b", groups=[APART | {"rule": "affinity"}])
        await rig.create("b", groups=["apart"])
        assert len(set(await hosts_of(rig, "a", "b"))) == 2

    run(database_url, test)


def test_a_rule_about_labels_counts_vms_that_were_there_before(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 3)
        await rig.create("old", labels={"app": "db", "tier": "1"})
        await rig.create("other", labels={"app": "web"})
        rule = {"selector": {"app": "db"}, "rule": "anti-affinity"}
        await rig.create("new", labels={"app": "db"}, affinity=[rule])
        assert len(set(await hosts_of(rig, "old", "new"))) == 2
        await rig.create("third", labels={"app": "db", "x": "y"})  # says nothing of the rule itself
        assert len(set(await hosts_of(rig, "old", "new", "third"))) == 3
        with pytest.raises(NoFit):
            await rig.create("fourth", labels={"app": "db"})
        await rig.create("free", labels={"app": "web"})
        await rig.settle()
        await rig.restart()
        with pytest.raises(NoFit):
            await rig.create("fourth", labels={"app": "db"})

    run(database_url, test)


def test_a_rule_about_labels_made_at_the_same_time_binds_everybody(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 6)
        rule = {"selector": {"app": "db"}, "rule": "anti-affinity"}
        asked = [rig.create(f"v{n}", labels={"app": "db"}) for n in range(3)]
        asked += [
            rig.create(f"w{n}", labels={"app": "db"}, affinity=[rule], strategy="first_fit")
            for n in range(3)
        ]
        await asyncio.gather(*asked, return_exceptions=True)
        members = {vm for vm, of in rig.plane.roster.groups_of.items() if of}
        rows = [await rig.row(f"{kind}{n}") for kind in "vw" for n in range(3)]
        assert members == {row.id for row in rows if row is not None}
        later = [rig.create(f"x{n}", labels={"app": "db"}) for n in range(8)]
        await asyncio.gather(*later, return_exceptions=True)
        hosts = await hosts_of(rig, *(f"{kind}{n}" for kind in "wx" for n in range(8)))
        assert len(set(hosts)) == len(hosts)

    run(database_url, test, inline=False)


def test_moves_queue_and_recreation_keep_to_the_rule(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig, 2)
        await rig.running("a", groups=[APART])
        await rig.running("b", groups=[APART])
        with pytest.raises(NoFit):
            await rig.migrate("a")
        await rig.create("c", groups=[APART], on_no_fit="queue")
        await rig.host("h9", cpu=8, memory=64, zone="z0")
        await rig.settle(keep=True)
        assert len(set(await hosts_of(rig, "a", "b", "c"))) == 3
        await rig.plane.vms.delete("b", None, OPERATOR)
        await rig.settle()
        await rig.migrate("a")
        with pytest.raises(NoFit):  # both ends of a move count
            await rig.create("d", groups=[APART])
        await rig.settle()
        await rig.running("d", groups=[APART])
        assert len(set(await hosts_of(rig, "a", "c", "d"))) == 3

    run(database_url, test)
