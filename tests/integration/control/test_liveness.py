"""Who is heard of, who may act alone, and what follows when a host is lost."""

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict
from roost.control.hosts.registering import locked_host
from roost.control.survive.fencing import fence
from roost.ledger.schema.tables import fences, host_liveness, leases, tombstones, vms
from roost.ledger.writes.transaction import Tx
from roost.wire.agentlink import Refused, Renewed, decode_to_agent
from roost.wire.bodies import ConfirmDead
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, run

GUARD_STOP_S = 4.0
#: From the last renewal that the watcher saw until a host may be fenced by its lease.
FENCED_AFTER_S = TIMERS.lease_s * 1.05 + GUARD_STOP_S


def health(rig: Rig, host: str = "h1") -> str:
    entry = rig.plane.roster.entry(host)
    assert entry is not None
    return entry.row.health


def fenced(rig: Rig, host: str = "h1") -> str | None:
    entry = rig.plane.roster.entry(host)
    assert entry is not None
    return entry.row.fenced


async def evidence(rig: Rig, host: str = "h1") -> int:
    query = select(host_liveness).where(host_liveness.c.host == rig.number(host))
    return int((await rig.rows(query))[0]["evidence"])


def test_silence_makes_suspect_then_offline_and_a_word_brings_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.host("h2")
        await rig.running("web")
        await rig.pass_by(20)
        assert health(rig) == "online"
        await rig.pass_by(TIMERS.suspect_s, silent=("h1",))
        assert (health(rig), health(rig, "h2")) == ("suspect", "online")
        await rig.pass_by(TIMERS.suspect_s - TIMERS.offline_s + 88, silent=("h1",))
        assert health(rig) == "suspect"
        await rig.pass_by(4, silent=("h1",))
        assert health(rig) == "offline"
        assert (await rig.get("web")).state == "unknown"
        assert (await rig.create("new")).host == "h2"
        await rig.pass_by(4)
        assert health(rig) == "online"
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")

    run(database_url, test)


def test_a_watcher_that_was_stopped_condemns_nobody(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.pass_by(10)
        for _ in range(10):  # it sleeps for an hour, looks, and sleeps again
            rig.clock.move(3600)
            await rig.plane.run_singletons()
        assert health(rig) == "suspect"
        assert 10 * 2 * TIMERS.watch_s < TIMERS.offline_s

    run(database_url, test)


def test_a_new_watcher_gives_everybody_the_whole_time(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", guard=GUARD_STOP_S)
        await rig.pass_by(4)
        await rig.pass_by(TIMERS.offline_s - 6, silent=("h1",))
        assert health(rig) == "suspect"
        await rig.restart()
        begun = rig.clock.now
        while health(rig) != "offline":
            await rig.pass_by(2)
        assert rig.clock.now - begun >= TIMERS.offline_s
        await rig.pass_by(FENCED_AFTER_S - TIMERS.offline_s)
        assert fenced(rig) == "lease"
        assert rig.clock.now - begun >= FENCED_AFTER_S

    run(database_url, test)


def test_all_agents_reconnect_after_a_restart_and_none_is_offline(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for n in range(4):
            await rig.host(f"h{n}")
        await rig.pass_by(10)
        await rig.restart()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle()
        await rig.pass_by(100)
        assert {health(rig, name) for name in rig.agents} == {"online"}

    run(database_url, test)


def test_a_hello_ends_the_silence(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", guard=GUARD_STOP_S)
        await rig.pass_by(4)
        await rig.pass_by(TIMERS.offline_s + 2, silent=("h1",))
        assert health(rig) == "offline"
        agent.connect(rig.plane)
        agent.speak()
        await rig.plane.agents.settle()  # registered, but no heartbeat is written yet
        assert health(rig) == "online"
        rig.clock.move(TIMERS.watch_s)
        await rig.plane.run_singletons()
        assert (health(rig), fenced(rig)) == ("online", None)

    run(database_url, test)


def test_a_lease_is_renewed_as_of_the_heartbeat_that_is_in_the_ledger(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        agent.heartbeat()
        agent.speak()
        write = rig.store.write

        async def slow(*given: object) -> object:
            found = await write(*given)  # type: ignore[arg-type]
            agent.heartbeat()  # comes while the first is being written
            agent.speak()
            return found

        rig.store.write = slow  # type: ignore[assignment, method-assign]
        await rig.plane.evidence.flush()
        rig.store.write = write  # type: ignore[method-assign]
        agent.listen()
        assert agent.said(Renewed)[-1].number == agent.number - 1
        await rig.plane.evidence.flush()
        agent.listen()
        assert agent.said(Renewed)[-1].number == agent.number

    run(database_url, test)


# One process acts alone


def test_a_stale_holder_can_neither_fence_nor_condemn(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", guard=GUARD_STOP_S)
        await rig.running("web", restart="elsewhere")
        await rig.pass_by(4)

        def take(tx: Tx) -> None:
            tx.update(leases, leases.c.name == "watch", holder="thief", token=leases.c.token + 1)

        async def believe() -> None:
            """Renew nothing, and know nothing of the thief."""

        await rig.store.write(take)
        rig.plane.leases.tick = believe  # type: ignore[method-assign]
        assert rig.plane.leases.singleton("watch").token is not None
        rig.agents["h1"].disconnect()
        for _ in range(int(FENCED_AFTER_S)):
            rig.clock.move(TIMERS.watch_s)
            await rig.plane.run_singletons()
        assert (health(rig), fenced(rig)) == ("online", None)

    run(database_url, test)


# A host is lost


def test_a_lease_fences_only_with_a_guard_and_only_after_its_time(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        guarded = await rig.host("h1", guard=GUARD_STOP_S)
        bare = await rig.host("h2")
        made = await rig.running("web", restart="elsewhere", constraints={"hosts": ["h1"]})
        await rig.running("other", restart="elsewhere", constraints={"hosts": ["h2"]})
        await rig.pass_by(6)
        guarded.disconnect()
        bare.disconnect()
        cut = rig.clock.now
        await rig.pass_by(FENCED_AFTER_S - 10)
        while fenced(rig) is None:
            assert rig.clock.now - cut < FENCED_AFTER_S + 10
            await rig.pass_by(2)
        assert rig.clock.now - cut >= FENCED_AFTER_S
        assert guarded.copies[made.id].state == "stopped"  # before anybody else may run it
        await rig.pass_by(3 * FENCED_AFTER_S)
        assert fenced(rig, "h2") is None
        row = (await rig.rows(select(fences)))[0]
        assert (row["method"], row["epoch"]) == ("lease", 1)

    run(database_url, test)


def test_restart_elsewhere_moves_and_restart_here_stays(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=GUARD_STOP_S, cpu=3)
        await rig.host("h2", guard=GUARD_STOP_S)
        away = await rig.running("away", restart="elsewhere")
        here = await rig.running("here")
        gone = await rig.running("gone")
        assert {health(rig), (await rig.get("away")).host} == {"online", "h1"}
        await rig.plane.vms.delete("gone", None, OPERATOR)
        lost.disconnect()
        await rig.pass_by(FENCED_AFTER_S + 10)
        await rig.settle()
        assert await rig.state("away") == ("running", "h2")
        assert await rig.state("here") == ("unknown", "h1")
        assert await rig.row("gone") is None  # a deleted VM of a fenced host is over
        assert await rig.claims() == {"away:run": "h2", "here:run": "h1"}
        graves = {row["vm"] for row in await rig.rows(select(tombstones))}
        assert graves == {away.id, gone.id}
        lost.connect(rig.plane)
        await rig.settle()  # it still runs what was deleted, and nobody else does
        await rig.pass_by(4)
        assert (health(rig), fenced(rig)) == ("online", None)
        assert set(lost.copies) == {here.id}
        assert await rig.state("here") == ("running", "h1")
        await rig.pass_by(200)
        assert (health(rig), fenced(rig)) == ("online", None)
        await rig.converged()

    run(database_url, test)


def test_a_fenced_host_is_refused_while_it_runs_what_is_not_its_own(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1")
        made = await rig.running("web", restart="elsewhere")
        lost.disconnect()
        await rig.pass_by(TIMERS.offline_s + 6)
        await rig.plane.hosts.confirm_dead("h1", ConfirmDead(reason="smoke"), ADMIN)
        lost.copies[made.id].state = "stopped"  # the operator is right
        await rig.host("h2")
        await rig.settle(keep=True)
        assert await rig.state("web") == ("running", "h2")
        lost.copies[made.id].state = "running"
        lost.connect(rig.plane)
        lost.speak()
        await rig.hear()
        assert fenced(rig) == "operator"
        assert any(isinstance(decode_to_agent(data), Refused) for data in lost.inbox)
        lost.listen()
        assert lost.copies[made.id].state == "stopped"  # told so by the refusal
        lost.connect(rig.plane)
        await rig.settle()
        assert fenced(rig) is None
        assert lost.copies == {}
        await rig.converged()

    run(database_url, test)


def test_a_process_that_has_not_heard_of_a_fence_does_not_lift_it(postgres_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1")
        made = await rig.running("web", restart="elsewhere")
        lost.disconnect()
        await rig.pass_by(TIMERS.offline_s + 6)
        await rig.host("h2")
        behind = Rig(rig.store, rig.series, rig.clock, "behind")
        listener = rig.store.listener
        await behind.load()
        rig.store.listener = listener
        catch_up = behind.plane.follower.catch_up
        behind.plane.follower.catch_up = no_catching_up  # type: ignore[method-assign]
        await rig.plane.hosts.confirm_dead("h1", ConfirmDead(reason="smoke"), ADMIN)
        lost.copies[made.id].state = "stopped"
        await rig.settle(keep=True)
        lost.copies[made.id].state = "running"
        lost.instance = "second"
        entry = behind.plane.roster.entry("h1")
        assert entry is not None
        assert entry.row.fenced is None  # as far as it knows
        lost.connect(behind.plane)
        lost.speak()
        await behind.plane.agents.settle()
        lost.copies[made.id].state = "stopped"
        await rig.plane.follower.catch_up()
        assert fenced(rig) == "operator"
        lost.disconnect()
        behind.plane.follower.catch_up = catch_up  # type: ignore[method-assign]
        await behind.plane.stop()

    run(postgres_url, test)


async def no_catching_up() -> int:
    return 0


def test_a_dead_host_is_confirmed_only_when_it_is_not_heard_of(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1")
        await rig.host("h2")
        made = await rig.running("web", restart="elsewhere")
        word = ConfirmDead(reason="pulled the plug")
        with pytest.raises(Conflict, match="online"):
            await rig.plane.hosts.confirm_dead("h1", word, ADMIN)
        await rig.pass_by(4)
        await rig.pass_by(TIMERS.suspect_s + 4, silent=("h1",))
        lost.copies[made.id].state = "stopped"
        assert (await rig.plane.hosts.confirm_dead("h1", word, ADMIN)).fenced == "operator"
        await rig.plane.hosts.confirm_dead("h1", word, ADMIN)
        assert len(await rig.rows(select(fences))) == 1
        await rig.settle(keep=True)
        assert await rig.state("web") == ("running", "h2")

    run(database_url, test)


def test_a_fence_command_fences_a_host_without_a_guard(database_url: str) -> None:
    asked: list[str] = []

    async def command(host: str) -> bool:
        asked.append(host)
        return len(asked) > 2

    async def test(rig: Rig) -> None:
        lost = await rig.host("h1")
        made = await rig.running("web", restart="elsewhere")
        await rig.pass_by(4)
        await rig.pass_by(TIMERS.offline_s - 4, silent=("h1",))
        assert asked == []
        lost.copies[made.id].state = "stopped"
        await rig.pass_by(10, silent=("h1",))
        assert asked == ["h1"] * 3
        assert fenced(rig) == "command"
        assert await rig.state("web") == ("pending", None)

    run(database_url, test, fence_command=command)


@pytest.mark.parametrize("first", ["renewal", "fence"])
def test_either_the_renewal_or_the_fence_is_first(database_url: str, first: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", guard=GUARD_STOP_S)
        await rig.pass_by(4)
        await rig.pass_by(TIMERS.offline_s + 4, silent=("h1",))
        seen = await evidence(rig)

        def fence_it(tx: Tx) -> None:
            fence(tx, locked_host(tx, "h1"), "lease", "proof", seen)

        agent.heartbeat()
        agent.speak()
        if first == "renewal":
            await rig.plane.evidence.flush()
            with pytest.raises(Conflict, match="heard of since"):
                await rig.store.write(fence_it)
            agent.listen()
            assert agent.said(Renewed)[-1].number == agent.number
        else:
            await rig.store.write(fence_it)
            await rig.plane.evidence.flush()
            agent.listen()
            assert agent.refusal is not None
            assert agent.refusal.fenced
            assert not agent.connected
            agent.connect(rig.plane)
            await rig.settle()
            assert fenced(rig) is None  # nothing runs there that could run elsewhere

    run(database_url, test)


@pytest.mark.parametrize("phase", ["preparing", "moving", "landing"])
def test_a_source_lost_in_any_phase_of_a_move(database_url: str, phase: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("h1", "h2", "h3"):
            await rig.host(name, guard=GUARD_STOP_S)
        await rig.running("web", restart="elsewhere", groups=[
            {"name": "g", "rule": "anti-affinity"}
        ])  # fmt: skip
        await rig.pass_by(4)
        await rig.migrate("web", "h2")
        await rig.until_phase("web", phase)
        rig.agents["h1"].peers = {}
        rig.agents["h1"].disconnect()
        await rig.pass_by(FENCED_AFTER_S + 20)
        await rig.settle(keep=True)
        await rig.pass_by(6)
        # What was sent is the target's; else the target has cleaned up, and is as good as any.
        state, host = await rig.state("web")
        assert state == "running"
        assert host in (("h2",) if phase == "landing" else ("h2", "h3"))
        rig.agents["h1"].connect(rig.plane)
        await rig.settle(keep=True)
        await rig.converged()

    run(database_url, test)


def test_a_target_lost_while_landing_hands_the_vm_on(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("h1", "h2", "h3"):
            await rig.host(name, guard=GUARD_STOP_S)
        await rig.running("web", restart="elsewhere")
        await rig.pass_by(4)
        await rig.migrate("web", "h2")
        await rig.until_phase("web", "landing")
        rig.agents["h2"].disconnect()
        source = rig.agents["h1"]
        source.disconnect()
        source.connect(rig.plane)
        await rig.pass_by(FENCED_AFTER_S + 20)
        await rig.settle(keep=True)
        row = await rig.row("web")
        assert row is not None
        assert row.host in (rig.number("h1"), rig.number("h3"))
        rig.agents["h2"].connect(rig.plane)
        await rig.settle(keep=True)
        await rig.pass_by(4)
        await rig.converged()

    run(database_url, test)


def test_what_fits_nowhere_after_a_loss_waits_and_comes_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=GUARD_STOP_S)
        await rig.running("web", restart="elsewhere", cpu=4)
        lost.disconnect()
        await rig.pass_by(FENCED_AFTER_S + 10)
        assert await rig.state("web") == ("pending", None)
        assert await rig.claims() == {}
        lost.connect(rig.plane)  # the old copy is destroyed before the VM comes back
        await rig.settle(keep=True)
        await rig.pass_by(6)
        assert await rig.state("web") == ("running", "h1")
        await rig.converged()

    run(database_url, test)


def test_a_host_with_vms_says_how_it_loses_them(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1")
        made = await rig.running("a")

        async def hint() -> str:
            with pytest.raises(Conflict, match="still has VMs") as refused:
                await rig.plane.hosts.delete("h1", ADMIN)
            return str(refused.value.hint)

        assert await hint() == "Maybe `roost host drain h1`."
        lost.disconnect()
        del lost.copies[made.id]
        await rig.pass_by(TIMERS.offline_s + 6)
        # It cannot be drained: nothing there can send a VM.
        assert "drain" not in await hint()
        assert "roost host confirm-dead h1" in await hint()
        await rig.plane.hosts.confirm_dead("h1", ConfirmDead(reason="fire"), ADMIN)
        await rig.settle(keep=True)
        assert "roost host recover h1" in await hint()

    run(sqlite_url, test)


def test_a_dead_host_can_be_removed_with_what_was_left_to_do_there(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1")
        await rig.host("h2")
        made = await rig.running("web", restart="elsewhere")
        stays = await rig.running("stays")
        lost.disconnect()
        del lost.copies[made.id]
        await rig.pass_by(TIMERS.offline_s + 6)
        await rig.plane.hosts.confirm_dead("h1", ConfirmDead(reason="fire"), ADMIN)
        await rig.settle(keep=True)
        with pytest.raises(Conflict, match="still has VMs"):
            await rig.plane.hosts.delete("h1", ADMIN)
        await rig.plane.vms.delete(stays.id, None, OPERATOR)
        await rig.settle(keep=True)
        await rig.plane.hosts.delete("h1", ADMIN)
        await rig.check()
        assert await rig.rows(select(tombstones)) == []
        assert len(await rig.rows(select(vms))) == 1

    run(database_url, test)
