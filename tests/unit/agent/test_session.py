"""The agent end to end against a tiny control plane, over a real WebSocket."""

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

from roost.agent.agent import Agent, AgentSettings
from roost.agent.compose import virtual_agent
from roost.agent.drivers.virtual import VirtualSettings
from roost.agent.store import FolderStore
from roost.agent.websocket import WebSocketTransport
from roost.base.clock import RealClock
from roost.base.ids import IdSource
from roost.wire.agentlink import Tombstone
from tests.unit.agent.fake_control import FakeControl, vm

QUICK = VirtualSettings(boot_s=0.01, stop_s=0.01, move_s=0.01)


def make_agent(folder: Path, *servers: str, **changes: object) -> Agent:
    FolderStore(folder, boot="").save_credential("secret")
    clock = RealClock()
    given = {"observe_s": 0.1, "sample_s": 0.05, "report_within_s": 0.01, "retry_first_s": 0.02}
    return virtual_agent(
        AgentSettings("host-1", servers, **{**given, **changes}),
        QUICK,
        folder=folder,
        clock=clock,
        transport=WebSocketTransport(),
        random=Random(1),
        ids=IdSource(clock.wall_ms, Random(1)),
    )


@asynccontextmanager
async def running(agent: Agent):
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_a_vm_on_the_list_is_started_and_reported(tmp_path: Path) -> None:
    async def story() -> None:
        control = FakeControl()
        control.desired.vms.append
        async with control.serving() as server, running(make_agent(tmp_path, server)):
            await control.until(lambda: control.hellos)
            control.order(vm("vm-1"), vm("vm-2", power="stopped"))
            await control.until_seen("vm-1", "running", 1)
            await control.until_seen("vm-2", "stopped", 1)
            control.order(Tombstone("vm-1", 2), vm("vm-2", 2))
            await control.until_seen("vm-1", "absent", 2)
            await control.until_seen("vm-2", "running", 2)
            await control.until(lambda: control.samples)
        assert control.credentials == ["Bearer secret"]
        assert control.hellos[0].host == "host-1"

    asyncio.run(story())
