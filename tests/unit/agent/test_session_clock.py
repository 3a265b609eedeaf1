"""The session on a clock moved by hand: when the lease ends, and what a late answer is worth."""

import asyncio
import logging
from contextlib import suppress
from random import Random

import pytest
from msgspec.structs import replace

from roost.agent.agent import AgentSettings
from roost.agent.compose import memory_agent
from roost.agent.drivers.base import CRASHED
from roost.agent.drivers.virtual import VirtualSettings
from roost.agent.drivers.vmfiles import MemoryVMs
from roost.agent.store import MemoryStore
from roost.base.ids import IdSource
from roost.testing.clock import HandClock
from roost.testing.control import ModelControl
from roost.testing.links import MemoryTransport
from roost.testing.orders import listing, vm
from roost.wire.agentlink import Renewed, Tombstone


class World:
    """One agent in memory, its control plane, and the clock of both."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.control = ModelControl(self.clock, heartbeat_s=2.0, lease_s=10.0)
        self.transport = MemoryTransport(self.control, "host-1")
        self.vms, self.store = MemoryVMs(), MemoryStore("secret")
        self.start()

    def start(self) -> None:
        """Start the agent, or the next one."""
        agent = memory_agent(
            AgentSettings("host-1", ("memory",)),
            VirtualSettings(boot_s=0.5, stop_s=0.5),
            credential="secret",
            clock=self.clock,
            transport=self.transport,
            random=Random(1),
            ids=IdSource(self.clock.wall_ms, Random(1)),
            vms=self.vms,
            store=self.store,
        )
        self.task = asyncio.create_task(agent.run())

    def state(self, vm_id: str = "vm-1") -> str | None:
        found = self.vms.vms.get(vm_id)
        return found and found.state

    async def reboot(self) -> None:
        """Switch the machine off and on, cut off: no VM runs, and no lease is of this boot."""
        await self.end()
        self.store.save_lease(None)
        self.lose_vms()
        self.start()

    def lose_vms(self) -> None:
        """Let the processes of all VMs die."""
        for found in list(self.vms.vms.values()):
            self.vms.vms[found.id] = replace(found, state="stopped", reason=CRASHED)

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        self.transport.cut()
        await self.clock.settle()


def lease_counts_from_sending(seed: int) -> None:
    """Renew late, by a random delay; the deadline stays where the heartbeat was sent."""

    async def story() -> None:
        world, late_s = World(), Random(seed).uniform(0.1, 1.5)
        world.control.renews = False
        await world.clock.settle()
        sent_at = world.clock.now
        await world.clock.pass_by(late_s)
        world.control.push(Renewed(1))
        await world.clock.settle()
        assert world.store.lease() == sent_at + 10.0
        await world.end()

    asyncio.run(story())


def test_a_lease_ends_so_long_after_its_heartbeat_was_sent_however_late_the_answer() -> None:
    lease_counts_from_sending(1)


def test_an_agent_that_is_cut_off_stops_what_may_run_elsewhere_at_the_deadline() -> None:
    async def story() -> None:
        world = World()
        world.control.desired = listing(vm("vm-1", restart="elsewhere"), vm("vm-2"))
        await world.clock.pass_by(5.0)
        assert (world.state("vm-1"), world.state("vm-2")) == ("running", "running")
        world.transport.cut()
        deadline = world.store.lease()
        assert deadline is not None
        await world.clock.pass_by(deadline - world.clock.now - 0.01)
        assert world.state("vm-1") == "running"
        await world.clock.pass_by(0.02)
        assert (world.state("vm-1"), world.state("vm-2")) == ("stopped", "running")
        await world.end()

    asyncio.run(story())


def test_after_a_gap_it_runs_again_only_with_a_list_that_came_after_the_renewal() -> None:
    async def story() -> None:
        world = World()
        world.control.desired = listing(vm("vm-1", restart="elsewhere"))
        await world.clock.pass_by(5.0)
        world.transport.cut()
        await world.clock.pass_by(20.0)
        assert world.state() == "stopped"
        world.control.desired = listing()  # meanwhile it was started elsewhere
        world.transport.up = True
        await world.clock.pass_by(20.0)
        assert world.state() == "stopped"
        assert [held.id for held in world.control.reports[-1].held] == ["vm-1"]
        world.control.order(vm("vm-1", 2, restart="elsewhere"))
        await world.clock.pass_by(5.0)
        assert world.state() == "running"
        await world.end()

    asyncio.run(story())


def test_a_full_report_goes_out_from_time_to_time() -> None:
    async def story() -> None:
        world = World()
        world.control.welcome.full_list_s = 60.0
        await world.clock.pass_by(200.0)
        assert sum(report.full for report in world.control.reports) == 4
        await world.end()

    asyncio.run(story())


def test_heartbeats_go_on_while_the_driver_hangs() -> None:
    async def story() -> None:
        world = World()
        await world.clock.pass_by(1.0)
        world.control.order(vm("vm-1"))
        before = len(world.control.beats)
        world.vms.all = _hang(world.clock)  # type: ignore[method-assign]
        world.vms.get = _hang(world.clock)  # type: ignore[method-assign]
        await world.clock.pass_by(60.0)
        assert len(world.control.beats) >= before + 29
        await world.end()

    asyncio.run(story())


def _hang(clock: HandClock):
    async def hang(*_: object) -> None:
        await clock.sleep(1e9)

    return hang


def test_after_a_boot_vms_wait_for_a_control_plane_but_not_for_ever() -> None:
    async def story() -> None:
        world = World()
        world.control.desired = listing(vm("vm-1"))
        await world.clock.pass_by(5.0)
        assert world.state() == "running"
        await world.reboot()
        await world.clock.pass_by(59.0)
        assert world.state() == "stopped"
        await world.clock.pass_by(3.0)
        assert world.state() == "running"  # the control plane itself may be such a VM
        await world.end()

    asyncio.run(story())


def test_after_a_boot_the_first_list_says_what_is_started() -> None:
    async def story() -> None:
        world = World()
        world.control.desired = listing(vm("vm-1"), vm("vm-2"))
        await world.clock.pass_by(5.0)
        await world.reboot()
        await world.clock.pass_by(10.0)
        world.control.desired = listing(vm("vm-1"), Tombstone("vm-2", 2))
        world.transport.up = True
        await world.clock.pass_by(20.0)
        assert (world.state("vm-1"), world.state("vm-2")) == ("running", None)
        await world.reboot()
        world.transport.up = True  # and the list is the one that it has already
        await world.clock.pass_by(5.0)
        assert world.state("vm-1") == "running"
        await world.end()

    asyncio.run(story())


def test_after_a_boot_a_list_that_confirms_nothing_starts_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        world = World()
        world.control.desired = listing(vm("vm-1"))
        await world.clock.pass_by(5.0)
        await world.reboot()
        await world.clock.pass_by(3.0)
        world.control.desired = replace(world.control.desired, confirms=False)
        world.transport.up = True
        await world.clock.pass_by(300.0)  # much longer than VMs wait for nobody
        assert world.state() == "stopped"
        assert "sure that its ledger is the newest" in world.control.seen["vm-1"].message
        world.transport.cut()
        await world.clock.pass_by(55.0)  # the time counts from here
        assert world.state() == "stopped"
        assert caplog.messages == []
        await world.clock.pass_by(10.0)
        assert world.state() == "running"
        await world.reboot()
        world.transport.up = True
        await world.clock.pass_by(90.0)
        assert world.state() == "stopped"
        world.control.desired = replace(world.control.desired, confirms=True)
        await world.clock.pass_by(10.0)
        assert world.state() == "running"
        await world.end()

    with caplog.at_level(logging.WARNING, "roost.agent"):
        asyncio.run(story())
    said = "no control plane has welcomed this host for 60 s; VMs start without one"
    assert caplog.messages == [said]


def test_an_agent_that_is_only_started_again_asks_nobody() -> None:
    async def story() -> None:
        world = World()
        world.control.desired = listing(vm("vm-1"))
        await world.clock.pass_by(5.0)
        await world.end()
        world.lose_vms()
        world.start()
        await world.clock.pass_by(5.0)
        assert world.state() == "running"
        await world.end()

    asyncio.run(story())
