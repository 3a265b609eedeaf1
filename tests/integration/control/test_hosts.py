"""Hosts: how they register, change, are cordoned, labelled and removed, and what they hold."""

import dataclasses
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import event

from roost.agent.sightings import order_text
from roost.agent.store import Record
from roost.base.errors import Conflict, NoFit, NotFound, QuotaExceeded
from roost.control.admin.heldvms import adopt_held
from roost.ledger.writes.transaction import Tx
from roost.testing.agent import Copy, ModelAgent, inventory
from roost.wire.agentlink import (
    AmountInfo,
    Delta,
    Desired,
    DeviceInfo,
    Heartbeat,
    Refused,
    Report,
    Welcome,
    encode,
)
from roost.wire.bodies import QuotaBody, RejectionBody, SetLabels, SetQuota
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, gib, run


def test_an_unchanged_hello_writes_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        await rig.running("web")
        before = (rig.plane.follower.applied, rig.plane.roster.hosts[1].generation)
        for _ in range(3):
            agent.heard.clear()
            agent.connect(rig.plane)
            await rig.settle()
            assert len(agent.said(Welcome)) == 1
            assert agent.said(Desired) == []  # nor is a list sent that it has
        assert (rig.plane.follower.applied, rig.plane.roster.hosts[1].generation) == before

    run(database_url, test)


def test_a_changed_inventory_moves_the_generation(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", cpu=2)
        await rig.running("web", cpu=2)
        agent.inventory = inventory(4, 8, labels={"disk": "ssd"}, extended={"fpga": AmountInfo(1)})
        agent.connect(rig.plane)
        await rig.settle()
        assert rig.plane.roster.hosts[1].generation == 2
        assert (await rig.plane.hosts.get("h1")).labels == {"disk": "ssd"}
        await rig.running("more", cpu=2, extended={"fpga": 1})

    run(database_url, test)


def test_a_host_that_shrinks_keeps_its_vms_and_takes_no_new_ones(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host(
            "h1", cpu=4, extended={"fpga": AmountInfo(2)}, devices=[DeviceInfo("a100")]
        )
        await rig.running("web", cpu=3, extended={"fpga": 2}, gpu=1)
        agent.inventory = inventory(2, 8)
        rig.shrunk = True
        agent.connect(rig.plane)
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")
        with pytest.raises(NoFit):
            await rig.create("more")
        await rig.restart()
        await rig.check()
        agent.connect(rig.plane)
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.settle()
        rig.shrunk = False
        await rig.running("more")

    run(database_url, test)


def test_one_host_cannot_speak_for_another(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        liar = ModelAgent("h2", rig.clock.monotonic)
        liar.connect(rig.plane)
        liar.outbox = [encode(replace(liar.hello(), host="h1"))]
        liar.speak()
        await rig.hear()
        liar.listen()
        assert liar.refusal is not None
        assert liar.refusal.code == "forbidden"
        assert not liar.connected
        assert agent.connected
        other = ModelAgent("h3", rig.clock.monotonic)
        other.connect(rig.plane)
        other.outbox = [
            encode(Heartbeat(1)),
            encode(Report([])),
            b"{}",
            encode(replace(other.hello(), protocol=99)),
        ]
        other.speak()
        await rig.hear()
        other.listen()
        assert [type(each) for each in other.heard] == [Refused] * 3
        await rig.check()
        assert list(rig.plane.roster.numbers) == ["h1"]

    run(database_url, test)


def test_a_broken_inventory_is_refused_and_nothing_is_kept(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = ModelAgent("h1", rig.clock.monotonic, inventory(extended={"a:b:c": AmountInfo(1)}))
        agent.connect(rig.plane)
        agent.speak()
        await rig.hear()
        agent.listen()
        assert agent.refusal is not None
        assert rig.plane.roster.hosts == {}

    run(database_url, test)


def test_a_newer_connection_takes_the_place_of_an_older_one(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        old_link, old_session = agent.link, agent.session
        assert old_link is not None
        assert old_session is not None
        agent.session = agent.link = None  # the agent has forgotten it, the plane has not
        agent.connect(rig.plane)
        await rig.settle()
        assert old_link.closing is not None
        old_session.closed()
        assert rig.plane.agents.online == 1
        await rig.running("web")
        agent.disconnect()
        assert rig.plane.agents.online == 0
        assert list(rig.plane.dispatch.connected) == []

    run(database_url, test)


def test_a_doctor_names_silent_hosts_unless_they_were_emptied(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("h1", "h2", "h3"):
            await rig.host(name)
        await rig.running("web")
        assert (await rig.plane.doctor()).ok
        await rig.plane.hosts.cordon("h3", OPERATOR)
        await rig.pass_by(200.0, silent=("h1", "h2", "h3"))
        found = await rig.plane.doctor()
        assert (found.ok, found.findings) == (False, [])
        assert [each.message for each in found.troubles if each.check == "silent"] == [
            "host h1 is offline, 1 VM is on it",
            "host h2 is offline, 0 VMs are on it",
        ]
        assert [each.message for each in found.notes] == ["host h3 is offline, 0 VMs are on it"]

    run(database_url, test)


def test_a_held_vm_is_destroyed_when_somebody_says_so(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web")
        known = agent.copies[made.id]
        agent.copies["vm-stray"] = Copy(replace(known.order, id="vm-stray"), "running", 7)
        rig.excused.add(("vm-stray", "h1"))
        await rig.settle()
        hosts = rig.plane.hosts
        with pytest.raises(NotFound, match="holds no VM 'vm-other'"):
            await hosts.destroy_held("h1", "vm-other", ADMIN)
        with pytest.raises(NotFound, match="holds no VM"):
            await hosts.destroy_held("h1", made.id, ADMIN)  # it is on its list
        await hosts.destroy_held("h1", "vm-stray", ADMIN)
        await hosts.destroy_held("h1", "vm-stray", ADMIN)  # twice is once
        await rig.settle()
        assert set(agent.copies) == {made.id}
        assert (await hosts.get("h1")).held == []
        assert (await rig.plane.doctor()).ok
        await rig.check()

    run(database_url, test)


def test_a_held_copy_of_a_vm_that_is_elsewhere_is_destroyed_and_the_vm_stays(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        home, other = await rig.host("h1"), await rig.host("h2")
        made = await rig.running("web")
        order = home.copies[made.id].order
        other.copies[made.id] = Copy(order, "stopped", order.generation)  # by hand, from a backup
        rig.excused.add((made.id, "h2"))
        await rig.settle()
        assert [each["id"] for each in (await rig.plane.hosts.get("h2")).held] == [made.id]
        home.disconnect()
        await rig.plane.vms.stop("web", None, OPERATOR)  # which its own host has not heard of
        with pytest.raises(Conflict, match="may be the only one"):
            await rig.plane.hosts.destroy_held("h2", made.id, ADMIN)
        home.connect(rig.plane)
        await rig.settle()
        await rig.plane.hosts.destroy_held("h2", made.id, ADMIN)
        await rig.settle()
        assert (set(home.copies), set(other.copies)) == ({made.id}, set())
        assert await rig.state("web") == ("stopped", "h1")
        assert (await rig.plane.hosts.get("h2")).held == []

    run(database_url, test)


def stray(agent: ModelAgent, known: str, where: ModelAgent | None = None, **changes: Any) -> None:
    """Let a host have a VM like another, which the ledger has never heard of."""
    order = replace((where or agent).copies[known].order, id="vm-stray", generation=7, **changes)
    agent.copies["vm-stray"] = Copy(order, "running", 7)
    agent.records["vm-stray"] = Record(
        "vm-stray", order.name, 7, order.restarts, order=order_text(order)
    )


def test_a_held_vm_is_adopted_where_it_is(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", guard=5.0)
        made = await rig.running("web", restart="elsewhere")
        stray(agent, made.id, name="lost", restart="elsewhere", restarts=2, cpu_milli=2000)
        rig.excused.add(("vm-stray", "h1"))
        await rig.settle()
        hosts = rig.plane.hosts
        assert [vm["adoptable"] for vm in (await hosts.get("h1")).held] == [True]
        assert "order" not in (await hosts.get("h1")).held[0]
        body = await hosts.adopt_held("h1", "vm-stray", ADMIN)
        assert (body.name, body.host, body.demand.cpu_milli) == ("lost", "h1", 2000)
        assert not body.restart_acknowledged
        rig.excused.clear()
        again = await hosts.adopt_held("h1", "vm-stray", ADMIN)  # once more changes nothing
        assert again.generation == body.generation == 8
        await rig.settle()
        assert await rig.state("lost") == ("running", "h1")
        assert (await rig.get("lost")).restart_acknowledged
        assert (await hosts.get("h1")).held == []
        assert (await rig.plane.doctor()).ok
        assert await rig.claims() == {"lost:run": "h1", "web:run": "h1"}
        await rig.restart()  # it is in the rows, too
        agent.connect(rig.plane)
        await rig.settle()
        await rig.plane.vms.delete("lost", None, OPERATOR)
        await rig.settle()
        assert set(agent.copies) == {made.id}

    run(database_url, test)


def test_an_adopted_vm_is_bound_by_the_rules_about_its_labels(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agents = {name: await rig.host(name) for name in ("h1", "h2")}
        rules = [{"selector": {"app": "db"}, "rule": "anti-affinity"}]
        made = await rig.running("one", labels={"app": "db"}, affinity=rules)
        home = (await rig.get("one")).host
        (free,) = agents.keys() - {home}
        stray(agents[free], made.id, agents[str(home)], name="lost")
        rig.excused.add(("vm-stray", free))
        await rig.settle()
        await rig.plane.hosts.adopt_held(free, "vm-stray", ADMIN)
        rig.excused.clear()
        await rig.settle()
        joined = rig.plane.roster.groups_of[made.id]
        assert joined
        assert rig.plane.roster.groups_of["vm-stray"] == joined
        with pytest.raises(NoFit):  # each host has one of them
            await rig.create("three", labels={"app": "db"}, affinity=rules)
        assert (await rig.plane.doctor()).ok
        await rig.restart()  # the members are in the rows, too
        assert rig.plane.roster.groups_of["vm-stray"] == joined

    run(database_url, test)


def test_an_adoption_locks_a_host_before_a_project_as_every_create_does(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web")
        stray(agent, made.id, name="lost")
        rig.excused.add(("vm-stray", "h1"))
        await rig.settle()
        changed: list[str] = []

        def note(*said: Any) -> None:
            words = str(said[2]).split()
            if words[0] == "UPDATE":
                changed.append(words[1])

        def adopt(tx: Tx) -> None:
            event.listen(tx.connection, "before_cursor_execute", note)
            adopt_held(tx, "h1", "vm-stray", "binpack")
            event.remove(tx.connection, "before_cursor_execute", note)

        await rig.store.write(adopt, "test")
        rig.excused.clear()
        assert [table for table in changed if table in ("host_amounts", "projects")] == [
            "host_amounts",
            "projects",
        ]

    run(database_url, test)


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"name": "web"}, Conflict, "has another VM 'web'"),
        ({"name": "big", "cpu_milli": 4000}, NoFit, "has promised its room to others"),
        ({"name": "far", "project": "gone"}, NotFound, "no project 'gone'"),
        ({"name": "no name"}, Conflict, "is unusable"),
        ({"name": "bound", "devices": [0]}, Conflict, "devices or NUMA cells"),
        ({"name": "many", "memory_bytes": gib(3)}, QuotaExceeded, "to adopt 'many'"),
    ],
)
def test_a_held_vm_that_cannot_be_adopted_is_refused(
    database_url: str, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web")
        quota = SetQuota(quota=QuotaBody(memory=gib(2)))
        await rig.plane.projects.set_quota("default", quota, ADMIN)
        stray(agent, made.id, **changes)
        rig.excused.add(("vm-stray", "h1"))
        await rig.settle()
        with pytest.raises(error, match=why):
            await rig.plane.hosts.adopt_held("h1", "vm-stray", ADMIN)
        assert await rig.claims() == {"web:run": "h1"}
        await rig.check()

    run(database_url, test)


def test_a_host_without_an_extended_resource_says_how_much_a_held_vm_lacks(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", extended={"fpga": AmountInfo(1)})
        made = await rig.running("web")
        stray(agent, made.id, name="lost", extended={"fpga": 3, "nic": 1})
        rig.excused.add(("vm-stray", "h1"))
        await rig.settle()
        with pytest.raises(NoFit) as refused:
            await rig.plane.hosts.adopt_held("h1", "vm-stray", ADMIN)
        why = msgspec.convert(refused.value.details["rejection"], RejectionBody)
        assert why.nearest_miss is not None
        short = why.nearest_miss.shortages
        lacking = [(each.resource, each.need_count, each.free_count) for each in short]
        assert lacking == [("fpga", 3, 1), ("nic", 1, 0)]

    run(database_url, test)


def test_a_held_vm_of_an_older_agent_or_of_two_hosts_is_not_adopted(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent, other = await rig.host("h1"), await rig.host("h2")
        made = await rig.running("web")
        stray(agent, made.id, name="lost")
        rig.excused |= {("vm-stray", "h1"), ("vm-stray", "h2")}
        other.copies["vm-stray"] = dataclasses.replace(agent.copies["vm-stray"], state="stopped")
        await rig.settle()
        with pytest.raises(Conflict, match="host 'h2' holds VM 'vm-stray', too"):
            await rig.plane.hosts.adopt_held("h1", "vm-stray", ADMIN)
        del other.copies["vm-stray"]
        del agent.records["vm-stray"]
        await rig.settle()
        with pytest.raises(Conflict, match="does not say what VM 'vm-stray' was ordered to be"):
            await rig.plane.hosts.adopt_held("h1", "vm-stray", ADMIN)
        with pytest.raises(NotFound, match="holds no VM"):
            await rig.plane.hosts.adopt_held("h1", "vm-other", ADMIN)

    run(database_url, test)


def test_a_held_vm_is_reported_and_never_destroyed(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web")
        known = agent.copies[made.id]
        agent.copies["vm-stray"] = Copy(
            replace(known.order, id="vm-stray"), "running", known.generation
        )
        rig.excused.add(("vm-stray", "h1"))
        await rig.settle()
        assert [vm["id"] for vm in (await rig.plane.hosts.get("h1")).held] == ["vm-stray"]
        found = await rig.plane.doctor()
        assert (found.ok, [(each.check, each.message) for each in found.troubles]) == (
            False, [("held", "host h1 has VM vm-stray (running): not on the list")],
        )  # fmt: skip
        agent.connect(rig.plane)
        await rig.settle()
        await rig.restart()
        agent.connect(rig.plane)
        await rig.settle()
        assert [vm["id"] for vm in (await rig.plane.hosts.get("h1")).held] == ["vm-stray"]
        assert agent.copies["vm-stray"].state == "running"
        assert agent.tombstones == {}
        del agent.copies["vm-stray"]
        await rig.settle()
        assert (await rig.plane.hosts.get("h1")).held == []

    run(database_url, test)


def test_a_cordoned_host_takes_nothing_new_and_keeps_what_it_has(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("web")
        assert (await rig.plane.hosts.cordon("h1", OPERATOR)).admin == "cordoned"
        with pytest.raises(NoFit):
            await rig.create("more")
        await rig.settle(keep=True)
        assert await rig.state("web") == ("running", "h1")
        await rig.plane.hosts.uncordon("h1", OPERATOR)
        await rig.running("more")
        with pytest.raises(NotFound):
            await rig.plane.hosts.cordon("nowhere", OPERATOR)

    run(database_url, test)


def test_an_operators_labels_win_over_the_inventorys(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", labels={"disk": "hdd"})
        ssd = {"labels": [{"key": "disk", "operator": "in", "values": ["ssd"]}]}
        with pytest.raises(NoFit) as refused:
            await rig.create("web", constraints=ssd)
        assert refused.value.code == "constraints_unsatisfied"
        await rig.plane.hosts.set_labels("h1", SetLabels(labels={"disk": "ssd"}), OPERATOR)
        await rig.running("web", constraints=ssd)
        agent.connect(rig.plane)
        await rig.settle()
        assert (await rig.plane.hosts.get("h1")).labels == {"disk": "ssd"}

    run(database_url, test)


def test_only_an_empty_host_can_be_removed(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        await rig.host("h2")
        await rig.running("web")
        with pytest.raises(Conflict, match="still has VMs"):
            await rig.plane.hosts.delete("h1", ADMIN)
        await rig.plane.vms.delete("web", None, OPERATOR)
        with pytest.raises(Conflict, match="still has VMs"):
            await rig.plane.hosts.delete("h1", ADMIN)
        await rig.settle()
        await rig.plane.hosts.delete("h1", ADMIN)
        await rig.check()
        agent.heartbeat()
        agent.speak()
        await rig.hear()
        assert not agent.connected  # it has to introduce itself again
        agent.connect(rig.plane)
        await rig.settle()
        assert rig.plane.roster.numbers == {"h2": 2, "h1": 3}
        await rig.running("again")

    run(database_url, test)


def test_a_host_removed_while_a_vm_is_on_its_way_there_loses_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.host("h2")
        claim = rig.store.claim

        async def slow(*given: object, **rest: object) -> object:
            rig.store.claim = claim  # type: ignore[method-assign]
            await rig.plane.hosts.delete("h1", ADMIN)
            return await claim(*given, **rest)  # type: ignore[arg-type]

        rig.store.claim = slow  # type: ignore[assignment, method-assign]
        assert (await rig.create("web")).host == "h2"
        await rig.check()

    run(database_url, test)


def test_a_lost_delta_is_made_good_by_the_next_heartbeat(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        await rig.create("a")
        agent.inbox.clear()  # lost
        await rig.create("b")
        agent.listen()
        assert [type(each) for each in agent.heard][-1] is Delta
        assert agent.vms == {}  # it was made for a list that the agent does not have
        agent.heartbeat()
        await rig.settle()
        assert {vm.name for vm in agent.vms.values()} == {"a", "b"}
        await rig.converged()

    run(database_url, test)


def test_a_list_read_before_a_delta_does_not_come_after_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web")
        read = rig.store.read

        async def slow(question: object) -> object:
            found = await read(question)  # type: ignore[arg-type]
            if isinstance(found, Desired):
                rig.store.read = read  # type: ignore[method-assign]
                await rig.plane.vms.delete("web", None, OPERATOR)
            return found

        rig.store.read = slow  # type: ignore[assignment, method-assign]
        rig.clock.move(TIMERS.full_list_s)
        await rig.plane.agents.send_full_lists()
        agent.listen()
        assert made.id in agent.tombstones
        assert made.id not in agent.vms
        assert agent.digest == rig.plane.dispatch.digest(rig.number("h1"))

    run(database_url, test)


def test_reports_alone_send_nothing_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        await rig.create("web")
        await rig.settle()
        agent.heard.clear()
        await rig.report("h1", *agent.seen().values())
        await rig.settle()
        deltas = [each for each in agent.heard if isinstance(each, Delta)]
        assert deltas == []

    run(database_url, test)
