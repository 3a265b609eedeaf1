"""Anything in any order: a state machine over the whole control plane.

Users, operators, keepers, agents and the network act at random; every law holds after every step,
and when the faults stop everything converges.
"""

import asyncio
import contextlib
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from roost.base.errors import RoostError
from roost.control.create.placing import find_host
from roost.control.timers import Timers
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import hosts, vms
from roost.testing.agent import ModelAgent
from roost.wire.bodies import ConfirmDead, CreateVMs, ResizeVM
from tests.databases import PostgresServer
from tests.integration.control.rig import (
    ADMIN,
    OPERATOR,
    Rig,
    body_of,
    digest_of,
    rig_on,
)
from tests.turns import drawing

TIMERS = Timers(lease_s=12.0, suspect_s=6.0, offline_s=10.0)
NAMES = st.sampled_from([f"v{n}" for n in range(5)])
HOSTS = st.sampled_from([f"h{n}" for n in range(3)])
APART = {"name": "apart", "rule": "anti-affinity"}


class Machine(RuleBasedStateMachine):
    """One plane and three hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.context = rig_on(self.database(), timers=TIMERS)
        self.rig: Rig = self.do(self.context.__aenter__())

    def database(self) -> str:
        return f"sqlite:///{Path(self.folder.name) / 'roost.db'}"

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    def try_to(self, work: Any) -> None:
        """Do something that may be refused."""

        async def attempt() -> None:
            with contextlib.suppress(RoostError):
                await work

        self.do(attempt())

    @initialize()
    def join(self) -> None:
        for n in range(3):
            guard = 2.0 if n < 2 else None
            self.do(self.rig.host(f"h{n}", cpu=3, memory=8, guard=guard, zone=f"z{n % 2}"))
            self.agents[f"h{n}"].arrives_alone = n != 1

    @property
    def agents(self) -> dict[str, ModelAgent]:
        return self.rig.agents

    # Users

    @rule(
        name=NAMES, cpu=st.integers(1, 3), away=st.booleans(), apart=st.booleans(),
        queued=st.booleans(), priority=st.integers(0, 2), labelled=st.booleans(),
    )  # fmt: skip
    def create(
        self, name: str, cpu: int, away: bool, apart: bool, queued: bool, priority: int,
        labelled: bool,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {"groups": [APART]} if apart else {}
        if labelled:
            given["labels"] = {"app": "db"}
        self.try_to(
            self.rig.create(
                name, cpu=cpu, restart="elsewhere" if away else "here", priority=priority,
                on_no_fit="queue" if queued else "fail", **given,
            )
        )  # fmt: skip

    @rule(atomic=st.booleans(), names=st.lists(NAMES, min_size=1, max_size=3, unique=True))
    def create_many(self, atomic: bool, names: list[str]) -> None:
        body = CreateVMs(vms=[body_of(name) for name in names], atomic=atomic)
        self.try_to(self.rig.plane.admit.create_many(body, OPERATOR, None, digest_of(body)))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.try_to(self.rig.plane.vms.delete(name, None, OPERATOR))

    @rule(name=NAMES, cpu=st.integers(1, 3))
    def resize(self, name: str, cpu: int) -> None:
        self.try_to(self.rig.plane.vms.resize(name, None, ResizeVM(cpu=cpu), OPERATOR))

    @rule(name=NAMES, what=st.sampled_from(["start", "stop", "restart"]))
    def power(self, name: str, what: str) -> None:
        self.try_to(getattr(self.rig.plane.vms, what)(name, None, OPERATOR))

    @rule(name=NAMES, host=st.one_of(st.none(), HOSTS))
    def migrate(self, name: str, host: str | None) -> None:
        self.try_to(self.rig.migrate(name, host))

    @rule(name=NAMES)
    def cancel_migration(self, name: str) -> None:
        self.try_to(self.rig.plane.moves.cancel(name, None, OPERATOR))

    # Operators

    @rule(host=HOSTS, what=st.sampled_from(["cordon", "uncordon", "drain"]))
    def admin(self, host: str, what: str) -> None:
        self.try_to(getattr(self.rig.plane.hosts, what)(host, OPERATOR))

    @rule(host=HOSTS)
    def confirm_dead(self, host: str) -> None:
        agent = self.agents[host]
        entry = self.rig.plane.roster.entry(host)
        if entry is not None and entry.row.health != "online" and not agent.connected:
            for copy in agent.copies.values():  # the operator is right: it is off
                if copy.runs:
                    copy.state = "stopped"
                elif copy.state == "ready":
                    copy.state, copy.received = "lost", None
            self.try_to(self.rig.plane.hosts.confirm_dead(host, ConfirmDead(reason="x"), ADMIN))

    # Time and the network

    @rule(host=HOSTS)
    def step(self, host: str) -> None:
        self.do(self.speak(self.agents[host]))

    async def speak(self, agent: ModelAgent) -> None:
        self.rig.step(agent)
        await self.rig.hear()

    @rule()
    def all_step(self) -> None:
        self.do(self.rig.one_round())

    @rule()
    def keep(self) -> None:
        self.rig.clock.move(1)
        self.do(self.rig.plane.run_singletons())

    @rule(host=HOSTS)
    def lose_what_is_on_its_way(self, host: str) -> None:
        agent = self.agents[host]
        agent.inbox.clear()
        agent.outbox.clear()
        agent.forget_reported()

    @rule(host=HOSTS, seed=st.integers(0, 99))
    def shuffle_and_repeat(self, host: str, seed: int) -> None:
        async def talk() -> None:
            agent = self.agents[host]
            agent.work()
            agent.report(full=True)
            agent.listen()
            agent.work()
            agent.report(full=True)
            agent.speak(Random(seed), repeat=True)
            await self.rig.hear()

        self.do(talk())

    @rule(host=HOSTS)
    def incoming_copies_die(self, host: str) -> None:
        for vm_id in list(self.agents[host].copies):
            self.agents[host].lose_incoming(vm_id)

    @rule(host=HOSTS)
    def disconnect(self, host: str) -> None:
        self.agents[host].disconnect()

    @rule(host=HOSTS, restarted=st.booleans())
    def connect(self, host: str, restarted: bool) -> None:
        agent = self.agents[host]
        if restarted:
            agent.instance += "'"
        agent.connect(self.rig.plane)
        self.do(self.speak(agent))

    @rule(seconds=st.sampled_from([4, 12, 20]))
    def pass_by(self, seconds: int) -> None:
        self.do(self.rig.pass_by(seconds))

    @rule()
    def restart(self) -> None:
        self.do(self.rig.restart())

    @rule(host=HOSTS)
    @precondition(lambda self: "h9" not in self.agents)
    def another_host(self, host: str) -> None:
        self.do(self.rig.host("h9", cpu=2, zone="z1"))

    # Laws

    @invariant()
    def laws_hold(self) -> None:
        self.do(self.rig.check())

    def teardown(self) -> None:
        try:
            if self.agents:
                self.do(self.come_to_rest())
        finally:
            self.do(self.context.__aexit__(None, None, None))
            self.loop.close()
            self.folder.cleanup()

    async def come_to_rest(self) -> None:
        """Stop all faults; nothing leaks, and nobody waits who would fit."""
        rig = self.rig
        for name in self.agents:
            await rig.plane.hosts.uncordon(name, OPERATOR)
        for _ in range(4):
            for agent in self.agents.values():
                if not agent.connected or agent.welcome is None:  # it gives up on a silent plane
                    agent.connect(rig.plane)
            await rig.settle()
            await rig.pass_by(8)
        await rig.pass_by(TIMERS.singleton_s)
        await rig.settle(keep=True)
        assert {row["health"] for row in await rig.rows(select(hosts))} == {"online"}
        await rig.converged()
        for row in await rig.rows(select(vms).where(vms.c.pending.is_not(None))):
            vm = VMRow(**row)
            request = find_host(rig.plane.roster, vm, explain=False)
            assert request is None, f"{vm.name} waits, but fits"


_drawn, _seeded = drawing(25, stateful_step_count=30)
TestMachine = _seeded(Machine).TestCase
TestMachine.settings = _drawn


def test_the_same_machine_on_postgresql(postgres: PostgresServer) -> None:
    class OnPostgres(Machine):
        def database(self) -> str:
            return postgres.new_database("roost_template")

    some, seeded = drawing(4, stateful_step_count=20)
    run_state_machine_as_test(seeded(OnPostgres), settings=some)
