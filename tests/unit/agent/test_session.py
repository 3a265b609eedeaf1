"""The agent end to end against a tiny control plane, over a real WebSocket on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from roost.agent.agent import Agent, AgentSettings
from roost.agent.compose import virtual_agent
from roost.agent.drivers.virtual import VirtualSettings
from roost.agent.store import FolderStore
from roost.base.backoff import BackOff
from roost.base.clock import RealClock
from roost.base.errors import Conflict
from roost.base.ids import IdSource
from roost.hostkit.talk.link import LinkLost
from roost.hostkit.talk.websocket import WebSocketTransport, link_url
from roost.testing.control import PATIENCE_S, ModelControl
from roost.testing.orders import listing, vm
from roost.wire.agentlink import Delta, Refused, Tombstone
from tests.unit.agent.serving import serving

QUICK = VirtualSettings(boot_s=0.01, stop_s=0.01, move_s=0.01)


def make_agent(
    folder: Path, *servers: str, virtual: VirtualSettings = QUICK, flows_s: float = 60.0
) -> Agent:
    FolderStore(folder, boot="").save_credential("secret")
    clock = RealClock()
    settings = AgentSettings(
        "host-1",
        servers,
        zone="z1",
        labels={"disk": "ssd"},
        reserve={"memory_bytes": 2**30},
        observe_s=0.1,
        sample_s=0.05,
        flows_s=flows_s,
        report_within_s=0.01,
        retry=BackOff(0.02, 15.0),
    )
    return virtual_agent(
        settings,
        virtual,
        folder=folder,
        clock=clock,
        transport=WebSocketTransport(),
        random=Random(1),
        ids=IdSource(clock.wall_ms),
    )


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[None]:
    task = asyncio.create_task(agent.run())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def connected(folder: Path, control: ModelControl) -> AsyncIterator[Agent]:
    async with serving(control) as server:
        agent, before = make_agent(folder, server), len(control.beats)
        async with running(agent):
            await control.until(lambda: len(control.beats) > before)
            yield agent


def test_vms_are_started_stopped_and_destroyed_as_listed(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            control.order(vm("vm-1"), vm("vm-2", power="stopped"))
            await control.until_seen("vm-1", "running", 1)
            await control.until_seen("vm-2", "stopped", 1)
            control.order(Tombstone("vm-1", 2), vm("vm-2", 2))
            await control.until_seen("vm-1", "absent", 2)
            await control.until_seen("vm-2", "running", 2)
            await control.until(lambda: control.samples)

    asyncio.run(story())


def test_the_host_introduces_itself_with_its_inventory_and_credential(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            pass
        [hello] = control.hellos
        assert control.credentials == ["Bearer secret"]
        assert (hello.host, hello.inventory.zone) == ("host-1", "z1")
        assert hello.inventory.virtual
        assert hello.inventory.memory_bytes.reserve == 2**30
        assert hello.inventory.labels == {"disk": "ssd"}

    asyncio.run(story())


def test_the_first_word_of_a_control_plane_says_how_far_the_host_is_overcommitted(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            has = control.hellos[0].inventory.cpu_milli.total
        assert has is not None
        control.welcome = replace(control.welcome, ratio_milli={"cpu": 2000})
        control.desired = listing(vm("vm-1", cpu_milli=has), vm("vm-2", cpu_milli=has))
        async with connected(tmp_path, control):
            await control.until_seen("vm-1", "running")
            await control.until_seen("vm-2", "running")

    asyncio.run(story())


def test_an_unchanged_list_is_not_asked_for_again(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        control.desired = listing(vm("vm-1"))
        async with connected(tmp_path, control):
            await control.until_seen("vm-1", "running")
            sent = control.lists_sent
            await control.until(lambda: len(control.beats) > 5)
            assert control.lists_sent == sent == 1
        async with connected(tmp_path, control):  # the next life has the list on disk
            await control.until_seen("vm-1", "running")
            assert control.lists_sent == 1
        assert control.hellos[0].instance != control.hellos[1].instance

    asyncio.run(story())


def test_a_delta_for_another_list_brings_the_whole_list(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl(heartbeat_s=600.0)
        async with connected(tmp_path, control):
            await control.until(lambda: control.reports)
            after = [vm("vm-1"), vm("vm-2")]
            wrong = Delta(listing(vm("other")).digest, listing(*after).digest, [vm("vm-2")])
            control.change(wrong, *after)
            await control.until_seen("vm-1", "running")
            await control.until_seen("vm-2", "running")

    asyncio.run(story())


def test_changes_go_out_together_and_alone(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            control.order(*(vm(f"vm-{number}", cpu_milli=100) for number in range(20)))
            await control.until(lambda: len(control.seen) == 20)
            await control.until(
                lambda: {each.seen for each in control.seen.values()} == {"running"}
            )
            before = len(control.reports)
            assert before < 20
            control.order(
                vm("vm-0", 2, cpu_milli=100, power="stopped"),
                *(vm(f"vm-{number}", cpu_milli=100) for number in range(1, 20)),
            )
            await control.until_seen("vm-0", "stopped", 2)
            told = {each.id for report in control.reports[before:] for each in report.vms}
            assert told == {"vm-0"}

    asyncio.run(story())


def test_what_is_on_no_list_is_told_in_every_report(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            control.order(vm("vm-1"), vm("vm-2"))
            await control.until_seen("vm-1", "running")
            control.order(vm("vm-2", 2, power="stopped"))
            await control.until_seen("vm-2", "stopped", 2)
            assert [held.id for held in control.reports[-1].held] == ["vm-1"]

    asyncio.run(story())


def test_a_killed_agent_finds_its_vms_again(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            control.order(vm("vm-1"))
            await control.until_seen("vm-1", "running")
        before = (tmp_path / "vms" / "vm-1.json").stat().st_mtime_ns
        async with connected(tmp_path, control):
            assert [each.seen for each in control.hellos[-1].vms] == ["running"]
        assert (tmp_path / "vms" / "vm-1.json").stat().st_mtime_ns == before

    asyncio.run(story())


def test_the_next_server_is_tried_when_one_does_not_answer(tmp_path: Path) -> None:
    async def story() -> None:
        dead, control = ModelControl(), ModelControl()
        async with serving(dead) as gone:
            pass
        async with serving(control) as server, running(make_agent(tmp_path, gone, server)):
            await control.until(lambda: control.hellos)

    asyncio.run(story())


def test_a_server_that_falls_silent_is_left_for_another(tmp_path: Path) -> None:
    async def story() -> None:
        mute, control = ModelControl(lease_s=0.2), ModelControl()
        async with (
            serving(mute) as one,
            serving(control) as other,
            running(make_agent(tmp_path, one, other)),
        ):
            await mute.until(lambda: mute.beats)
            mute.answers = False
            await control.until(lambda: control.hellos)

    asyncio.run(story())


def test_a_lease_is_written_for_the_guard_and_renewed(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl(lease_s=30.0)
        clock = RealClock()
        async with connected(tmp_path, control) as agent:
            await control.until(lambda: len(control.beats) > 3)
            deadline = agent._store.lease()
            assert deadline is not None
            assert 0 < deadline - clock.monotonic() <= 30.0

    asyncio.run(story())


def test_a_vm_that_may_run_elsewhere_starts_only_with_a_confirmed_lease(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        control.renews = False
        async with connected(tmp_path, control):
            control.order(vm("vm-1", restart="elsewhere"), vm("vm-2"))
            await control.until_seen("vm-2", "running")
            await control.until(lambda: len(control.beats) > 5)
            assert not (tmp_path / "vms" / "vm-1.json").exists()
            control.renews = True
            await control.until_seen("vm-1", "running")
            assert "" in [beat.digest for beat in control.beats[1:]]  # it asked for the list anew

    asyncio.run(story())


def test_a_fenced_host_stops_what_may_run_elsewhere_and_says_hello_again(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            control.order(vm("vm-1", restart="elsewhere"), vm("vm-2"))
            await control.until_seen("vm-1", "running")
            await control.until_seen("vm-2", "running")
            control.renews = False
            control.refuse(Refused("fenced", "you were cut off", fenced=True))
            await control.until(lambda: len(control.hellos) > 1)
            await control.until_seen("vm-1", "stopped")
            await control.until(lambda: control.seen["vm-1"].code == "no_lease")
            assert control.seen["vm-2"].seen == "running"

    asyncio.run(story())


def test_a_lost_lease_stops_what_may_run_elsewhere_without_any_link(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl(lease_s=0.5)
        async with serving(control) as server:
            agent = make_agent(tmp_path, server)
            async with running(agent):
                await control.until(lambda: control.beats)
                control.order(vm("vm-1", restart="elsewhere"))
                await control.until_seen("vm-1", "running")
                control.renews = False
                async with asyncio.timeout(PATIENCE_S):
                    while agent.reconciler.seen()["vm-1"].seen != "stopped":
                        await agent.reconciler.changed.wait()
                        await asyncio.sleep(0)

    asyncio.run(story())


def test_a_host_that_cannot_be_told_is_registered_as_full_and_later_anew(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl(lease_s=0.2)
        async with serving(control) as server:
            virtual = VirtualSettings(cpu_milli=None, boot_s=0.01)
            agent = make_agent(tmp_path, server, virtual=virtual)
            async with running(agent):
                await control.until(lambda: control.reports)
                assert control.hellos[0].inventory.cpu_milli.total is None
                control.order(vm("vm-1"))
                seen = await control.until_seen("vm-1", "failed")
                assert seen.failure == "capacity"

    asyncio.run(story())


def test_two_agents_do_not_work_in_one_folder(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            with pytest.raises(Conflict, match="another agent"):
                await make_agent(tmp_path, "http://127.0.0.1:1").run()

    asyncio.run(story())


def test_the_address_of_the_link_comes_from_the_server() -> None:
    assert link_url("https://h:7070/") == "wss://h:7070/api/v1/agents/connect"
    assert link_url("http://h/prefix") == "ws://h/prefix/api/v1/agents/connect"
    with pytest.raises(LinkLost):
        link_url("h:7070")
