"""Learning in a simulated world: in its time, from its past alone, and the same each time."""

import asyncio
import math
from pathlib import Path

import pytest

from roost.analysis.outlook import STEP_S, Outlook
from roost.control.learning import gathering, learning
from roost.model.series import DAY_MS, Reading, Subject
from roost.sim.ground.clocks import _EPOCH_MS
from roost.sim.ground.lives import task_factory
from roost.sim.ground.loop import VirtualLoop
from roost.sim.histories.history import History, host_name
from roost.sim.world import World, _let_all_end

STEP_MS = 1000 * STEP_S


def learnt(folder: Path, *, future: float = 100.0) -> list[Outlook]:
    """Run a world whose hosts were read for two days; return what each plane has learnt."""

    async def whole() -> list[Outlook]:
        world = World(History(7, hosts=3, length_s=90.0, calm_s=60.0), folder)
        for number in range(3):
            readings = [
                Reading(
                    Subject("host", host_name(number)),
                    at,
                    {
                        "cpu_milli": future
                        if at >= _EPOCH_MS + STEP_MS
                        else 500.0 + 100 * math.sin(at / 1e7 + number),
                        "memory_bytes": 1e9,
                    },
                )
                for at in range(_EPOCH_MS - 2 * DAY_MS, _EPOCH_MS + 50 * 60_000, 60_000)
            ]
            await world.database.series.put(readings, _EPOCH_MS, old=True)
        await world.run()
        world.stop_if_broken()
        found = [each.plane.learning.outlook for each in world.planes.values() if each.plane]
        for plane in world.planes.values():
            plane.kill()
        for host in world.hosts.values():
            host.power_off()
        await _let_all_end()
        await world.database.ledger.close()
        await world.database.series.close()
        return found

    loop = VirtualLoop()
    loop.set_task_factory(task_factory)  # type: ignore[arg-type]
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(whole())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def fresh(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def test_planes_of_a_world_learn_the_same_each_time(tmp_path: Path) -> None:
    first, again = (learnt(fresh(tmp_path, name)) for name in ("a", "b"))
    assert len(first) == 2
    for outlook in first:
        assert sorted(outlook.hosts) == [host_name(number) for number in range(3)]
    assert repr(first).encode() == repr(again).encode()


def test_what_comes_later_changes_nothing_that_is_learnt_now(tmp_path: Path) -> None:
    calm, storm = (learnt(fresh(tmp_path, str(cpu)), future=cpu) for cpu in (100.0, 9000.0))
    assert calm == storm


def test_a_world_that_reads_the_future_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(reader, subject, origin_ms):  # type: ignore[no-untyped-def]
        return await gathering.gather(reader, subject, origin_ms + 6 * STEP_MS)

    monkeypatch.setattr(learning, "gather", later)
    calm, storm = (learnt(fresh(tmp_path, str(cpu)), future=cpu) for cpu in (100.0, 9000.0))
    assert calm != storm
