"""A plane on SQLite and the model control plane keep the same promises to agents."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from roost.ledger.schema.tables import vms
from roost.testing.agent import ModelAgent
from roost.testing.clock import HandClock
from roost.testing.control import ModelControl
from roost.testing.orders import vm
from roost.wire.agentlink import ConsoleRequest, Heartbeat, Renewed
from roost.wire.bodies import ConfirmDead, ConstraintsBody
from tests.conformance.controls import LAWS, ControlRig
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, rig_on

Law = Callable[[ControlRig], Awaitable[None]]
GUARD_STOP_S = 1.0
MOST_ROUNDS = 20


async def speak(agent: ModelAgent, hear: Callable[[], Awaitable[None]]) -> None:
    """Let agent and plane speak until neither has anything left to say."""
    for _ in range(MOST_ROUNDS):
        agent.listen()
        if agent.welcome is not None and agent.connected:
            agent.work()
            agent.report()
            if agent.needs_confirming:
                agent.heartbeat()
        said = bool(agent.outbox)
        agent.speak()
        await hear()
        if not said and not agent.inbox:
            return
    raise AssertionError("they never come to an end")


class RealPlane:
    """A plane on SQLite."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.plane = rig, rig.plane
        clock = rig.clock.monotonic
        self.agent = rig.agents["a"] = ModelAgent("a", clock, guard_stop_s=GUARD_STOP_S)

    async def settle(self) -> None:
        await speak(self.agent, self.rig.hear)

    async def create(self, name: str, **given: Any) -> str:
        made = await self.rig.create(name, constraints=ConstraintsBody(hosts=["a"]), **given)
        return made.id

    async def stop(self, vm_id: str) -> None:
        await self.plane.vms.stop(vm_id, None, OPERATOR)

    async def delete(self, vm_id: str) -> None:
        await self.plane.vms.delete(vm_id, None, OPERATOR)

    async def fence(self) -> None:
        await self.rig.pass_by(TIMERS.offline_s + 6, silent=("a",))
        await self.plane.hosts.confirm_dead("a", ConfirmDead(reason="it burns"), ADMIN)
        await self.rig.hear()
        self.rig.excused |= {(vm_id, "a") for vm_id in self.agent.copies}

    async def console(self, vm_id: str) -> str:
        asking = asyncio.create_task(self.plane.consoles.console(vm_id, None, None, 100, OPERATOR))
        while not asking.done():
            await self.settle()
            await asyncio.sleep(0)
        return (await asking).text

    def listed(self) -> str:
        return self.plane.dispatch.digest(self.rig.number("a"))

    async def observed(self, vm_id: str) -> tuple[str, int] | None:
        [row] = await self.rig.rows(select(vms).where(vms.c.id == vm_id))
        return row["observed"], row["observed_generation"]


class ModelPlane:
    """The model control plane."""

    def __init__(self, control: ModelControl, clock: HandClock) -> None:
        self.plane = self.control = control
        self.agent = ModelAgent("a", clock.monotonic, guard_stop_s=GUARD_STOP_S)

    async def settle(self) -> None:
        async def hear() -> None:
            """It has heard already."""

        await speak(self.agent, hear)

    async def create(self, name: str, **given: Any) -> str:
        self.control.create(vm(name, **given), "a")
        return name

    async def stop(self, vm_id: str) -> None:
        self.control.power(vm_id, "stopped")

    async def delete(self, vm_id: str) -> None:
        self.control.delete(vm_id)

    async def fence(self) -> None:
        self.control.fence("a")

    async def console(self, vm_id: str) -> str:
        self.control.ask_console(ConsoleRequest(1, vm_id), "a")
        await self.settle()
        return self.control.replies[-1].text

    def listed(self) -> str:
        return self.control.host("a").desired.digest

    async def observed(self, vm_id: str) -> tuple[str, int] | None:
        found = self.control.seen.get(vm_id)
        return (found.seen, found.generation) if found else None


def real(law: Law, folder: Path) -> None:
    async def whole() -> None:
        async with rig_on(f"sqlite:///{folder / 'roost.db'}") as rig:
            await law(RealPlane(rig))
            rig.agents["a"].work()

    asyncio.run(asyncio.wait_for(whole(), 60))


def model(law: Law, folder: Path, make: Callable[..., ModelControl] = ModelControl) -> None:
    async def whole() -> None:
        clock = HandClock()
        await law(ModelPlane(make(clock, heartbeat_s=5.0, lease_s=30.0), clock))

    asyncio.run(asyncio.wait_for(whole(), 60))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("hold", [real, model])
def test_a_control_plane_keeps_its_promises(
    hold: Callable[[Law, Path], None], law: Law, tmp_path: Path
) -> None:
    hold(law, tmp_path)


class Generous(ModelControl):
    """Renews the lease of a host that was fenced."""

    def _heartbeat(self, session: Any, beat: Heartbeat) -> None:
        session.send(Renewed(beat.number))


class Quiet(ModelControl):
    """Changes lists without telling."""

    def put(self, host: str, vm_id: str, order: Any) -> None:
        session, self.host(host).session = self.host(host).session, None
        super().put(host, vm_id, order)
        self.host(host).session = session


@pytest.mark.parametrize("broken", [Generous, Quiet])
def test_the_suite_sees_a_broken_control_plane(broken: type[ModelControl], tmp_path: Path) -> None:
    failed = []
    for law in LAWS:
        try:
            model(law, tmp_path, broken)
        except (AssertionError, KeyError, IndexError, ValueError):
            failed.append(law.__name__)
    assert failed
