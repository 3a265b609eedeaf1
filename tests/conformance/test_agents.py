"""The whole agent with the virtual driver, and the model agent, keep the same promises."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from roost.agent.agent import AgentSettings
from roost.agent.compose import memory_agent
from roost.agent.drivers.virtual import VirtualSettings
from roost.agent.drivers.vmfiles import MemoryVMs
from roost.agent.memoryguard import MemoryFences, MemoryGuard
from roost.agent.store import MemoryStore
from roost.base.backoff import BackOff
from roost.base.ids import IdSource
from roost.testing.agent import ModelAgent
from roost.testing.clock import HandClock
from roost.testing.control import ModelControl
from roost.testing.links import MemoryTransport
from tests.conformance.agents import LAWS, AgentRig

HOSTS = ("a", "b")
GUARD_STOP_S = 1.0


def control_on(clock: HandClock) -> ModelControl:
    return ModelControl(clock, heartbeat_s=2.0, lease_s=10.0)


class WholeAgents:
    """Two agents with virtual hosts, in one process, on one clock."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.control = control_on(self.clock)
        self.transports = {host: MemoryTransport(self.control, host) for host in HOSTS}
        self.vms = {host: MemoryVMs() for host in HOSTS}
        self.stores = {host: MemoryStore("secret") for host in HOSTS}
        self.fences = {host: MemoryFences() for host in HOSTS}
        self.guards = {host: self._guard(host) for host in HOSTS}
        self.tasks = [asyncio.create_task(guard.run()) for guard in self.guards.values()]
        self.agents: dict[str, asyncio.Task[Any]] = {}

    async def begin(self) -> None:
        await self.clock.settle()
        for host in HOSTS:
            self._start(host)

    def _guard(self, host: str) -> MemoryGuard:
        return MemoryGuard(
            clock=self.clock,
            store=self.stores[host],
            vms=self.vms[host],
            fences=self.fences[host],
            stop_s=GUARD_STOP_S,
        )

    def _start(self, host: str) -> None:
        random = Random(host)
        agent = memory_agent(
            AgentSettings(host, ("memory",), observe_s=3.0, sample_s=1e6, retry=BackOff(0.1, 1.0)),
            VirtualSettings(boot_s=0.5, stop_s=0.2, move_s=0.5),
            credential="secret",
            clock=self.clock,
            transport=self.transports[host],
            random=random,
            ids=IdSource(self.clock.wall_ms, random),
            vms=self.vms[host],
            store=self.stores[host],
            fences=self.fences[host],
            guard=self.guards[host],
        )
        self.agents[host] = asyncio.create_task(agent.run())

    async def pass_by(self, seconds: float) -> None:
        await self.clock.pass_by(seconds)

    async def reconnect(self, host: str) -> None:
        self.transports[host].cut()
        self.transports[host].up = True

    async def restart(self, host: str) -> None:
        self.agents[host].cancel()
        with suppress(asyncio.CancelledError):
            await self.agents[host]
        self._start(host)

    def cut(self, host: str) -> None:
        self.transports[host].cut()

    def runs(self, host: str, vm_id: str) -> bool:
        found = self.vms[host].vms.get(vm_id)
        return found is not None and found.state in ("starting", "running", "sending")

    async def end(self) -> None:
        tasks = [*self.tasks, *self.agents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ModelAgents:
    """Two model agents, stepped twice a second."""

    step_s = 0.5

    def __init__(self, make: Callable[..., ModelAgent] = ModelAgent) -> None:
        self.clock = HandClock()
        self.control = control_on(self.clock)
        self.agents: dict[str, ModelAgent] = {}
        for host in HOSTS:
            self.agents[host] = make(
                host, self.clock.monotonic, guard_stop_s=GUARD_STOP_S, peers=self.agents
            )
        self.gone: set[str] = set()

    async def begin(self) -> None:
        for agent in self.agents.values():
            agent.connect(self.control)

    async def pass_by(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds / self.step_s))):
            self.clock.move(self.step_s)
            for host, agent in self.agents.items():
                if agent.refusal is not None and host not in self.gone:
                    agent.connect(self.control)
                agent.listen()
                agent.guard()
                agent.work()
                if agent.connected:
                    agent.report()
                    agent.heartbeat()
                    agent.speak()

    async def reconnect(self, host: str) -> None:
        self.agents[host].connect(self.control)

    async def restart(self, host: str) -> None:
        old = self.agents[host]
        old.disconnect()
        old.instance, old.conversations = f"{old.instance}+", 0
        old.connect(self.control)

    def cut(self, host: str) -> None:
        self.gone.add(host)
        self.agents[host].disconnect()

    def runs(self, host: str, vm_id: str) -> bool:
        copy = self.agents[host].copies.get(vm_id)
        return copy is not None and copy.runs

    async def end(self) -> None:
        """Nothing runs by itself."""


Law = Callable[[AgentRig], Awaitable[None]]


def hold(make: Callable[[], Any], law: Law) -> None:
    async def whole() -> None:
        rig = make()
        await rig.begin()
        try:
            await law(rig)
        finally:
            await rig.end()

    asyncio.run(asyncio.wait_for(whole(), 60))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("make", [WholeAgents, ModelAgents], ids=["whole", "model"])
def test_an_agent_keeps_its_promises(make: Callable[[], Any], law: Law) -> None:
    hold(make, law)


class Eager(ModelAgent):
    """Starts without a lease."""

    def _leased(self) -> Any:
        return 2


class Forgetful(ModelAgent):
    """Writes nothing down."""

    def _settle(self, vm_id: str, order: object) -> None:
        self.records.pop(vm_id, None)


class Tidy(ModelAgent):
    """Destroys what is on no list."""

    def held(self) -> Any:
        listed = self.vms.keys() | self.tombstones.keys()
        for vm_id in set(self.copies) - listed:
            del self.copies[vm_id]
        return []


@pytest.mark.parametrize("broken", [Eager, Forgetful, Tidy])
def test_the_suite_sees_a_broken_agent(broken: type[ModelAgent]) -> None:
    failed = []
    for law in LAWS:
        try:
            hold(lambda: ModelAgents(broken), law)
        except AssertionError:
            failed.append(law.__name__)
    assert failed
