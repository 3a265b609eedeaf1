"""A real plane and the agent of a virtual host: what VMs pretend to do reaches the store."""

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from roost.agent.agent import AgentSettings
from roost.agent.compose import memory_agent
from roost.agent.drivers.virtual import VirtualSettings
from roost.agent.drivers.virtualloads import level, read_load
from roost.agent.drivers.virtualsampling import VirtualSampler
from roost.base.ids import IdSource
from roost.base.units import GIB
from roost.testing.links import MemoryTransport
from roost.wire.series import SeriesBody, Span
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

SAMPLE_S = 20.0
BATCH = "daily:mean=0.5,amplitude=0.4,peak=3,noise=0"


async def live(rig: Rig, seconds: float) -> None:
    """Let the agent and the plane go on for so long."""
    end = rig.clock.now + seconds
    while rig.clock.now < end:
        await rig.clock.pass_by(min(2.0, end - rig.clock.now))
        await rig.hear()
        await asyncio.sleep(0)
    await rig.plane.readings.flush()


async def told(rig: Rig, name: str, *figures: str) -> SeriesBody:
    return await rig.plane.series.of_vm(name, None, Span(figure=list(figures)), ADMIN)


async def readings_reach_the_store(rig: Rig) -> None:
    settings = VirtualSettings(cpu_milli=8000, memory_bytes=64 * GIB, boot_s=0.0, stop_s=0.0)
    random = Random("h1")
    agent = memory_agent(
        AgentSettings("h1", ("memory",), sample_s=SAMPLE_S),
        settings,
        credential="secret",
        clock=rig.clock,
        transport=MemoryTransport(rig.plane, "h1"),
        random=random,
        ids=IdSource(rig.clock.wall_ms, random),
    )
    running = asyncio.create_task(agent.run())
    try:
        await live(rig, 4.0)
        made = await rig.create("night", cpu=4, memory=8 * GIB, labels={"load": BATCH})
        await live(rig, 6 * SAMPLE_S)
        assert (await rig.get("night")).state == "running"
        found = await told(
            rig, "night", "cpu_milli", "memory_bytes", "disk_write_bytes_per_s",
            "net_sent_bytes_per_s", "dirty_bytes_per_s",
        )  # fmt: skip
        assert len(found.at_ms) >= 4
        load = read_load(BATCH, {})
        wanted = [int(4000 * level(load, made.id, at_ms, {})) for at_ms in found.at_ms]
        assert found.figures["cpu_milli"] == wanted
        for name in ("disk_write_bytes_per_s", "net_sent_bytes_per_s", "dirty_bytes_per_s"):
            assert all(each > 0 for each in found.figures[name][1:])
        host = await rig.plane.series.of_host("h1", Span(figure=["psi_cpu_some_avg10"]))
        assert set(host.figures["psi_cpu_some_avg10"]) == {0}

        await rig.plane.vms.stop("night", None, OPERATOR)
        await live(rig, 2 * SAMPLE_S)
        stopped = (await told(rig, "night", "cpu_milli")).at_ms
        await live(rig, 3 * SAMPLE_S)
        assert (await told(rig, "night", "cpu_milli")).at_ms == stopped
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_what_a_virtual_vm_pretends_to_do_reaches_the_store(database_url: str) -> None:
    run(database_url, readings_reach_the_store, dated=True)


def test_a_driver_that_reads_stopped_vms_is_found_out(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = VirtualSampler.read

    def all_running(self, vms, at_ms):  # type: ignore[no-untyped-def]
        return whole(self, [replace(vm, state="running") for vm in vms], at_ms)

    monkeypatch.setattr(VirtualSampler, "read", all_running)
    with pytest.raises(AssertionError):
        run(sqlite_url, readings_reach_the_store, dated=True)
