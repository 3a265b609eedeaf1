"""A site under siege: a real server and plane on loopback, honest hosts, and who is not honest.

The attacker has the credential of host h1 and the token of a member of project p1. Around it live
the hosts h2 and h3 with a VM each. Nothing that the attacker sends, in whatever pieces and order,
may change what is not its own (`look`), and nothing of it may stay once its connections are closed
(`leave`). Time is moved by hand, and everything runs in one loop, so a siege can be repeated.
"""

import asyncio
import gc
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from roost.ledger.schema.tables import claims, events, hosts, projects, tokens, vms
from roost.sim.actors.rogue import HARMS
from roost.testing.agent import ModelAgent
from roost.testing.clock import HandClock
from roost.wire.bodies import ConstraintsBody, CreateVM, DemandBody
from tests.api.planes import host_inventory, small_plane, token
from tests.api.serving import TIMEOUT_S, Running, serving
from tests.api.test_agentsocket import HANDSHAKE

#: The attacker's host; the honest hosts and the VM of each; the VM on the attacker's host.
EVIL, HONEST, OWN = "h1", {"h2": "web", "h3": "db"}, "own"
#: Turns of the loop after which everything has arrived that was sent, and was answered.
_TURNS = 12
_MOST_ROUNDS = 60


class Line:
    """One connection of the attacker, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @property
    def is_open(self) -> bool:
        return not self.writer.is_closing() and not self.reader.at_eof()

    def send(self, data: bytes) -> None:
        if self.is_open:
            self.writer.write(data)

    async def close(self, *, rudely: bool) -> None:
        if rudely:
            self.writer.transport.abort()
        else:
            self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Siege:
    """The site, its honest hosts, and the attacker's connections."""

    def __init__(self) -> None:
        self.unhandled: list[dict[str, Any]] = []
        self.agents: dict[str, ModelAgent] = {}
        self.ids: dict[str, str] = {}
        self.clock = HandClock(2_000_000_000.0)
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._log = logging.getLogger("roost")
        self._level = self._log.level
        self._made = 0

    def do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do something in the loop of the site."""

        async def doing() -> Any:
            return await work()

        return self._runner.run(doing())

    # The site

    def begin(self) -> None:
        """Start the server and let the honest hosts join."""
        self._log.setLevel(logging.CRITICAL + 1)  # nearly everything is refused for good reason
        self.do(self._begin)

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: self.unhandled.append(what))
        small = await self._stack.enter_async_context(
            small_plane(clock=self.clock, random=Random(1))
        )
        self.running: Running = await self._stack.enter_async_context(serving(small))
        self.plane, self.store = small.plane, small.store
        for name in HONEST:
            agent = ModelAgent(name, self.clock.monotonic, host_inventory(), peers=self.agents)
            self.agents[name] = agent
            agent.connect(self.plane)
        evil = ModelAgent(EVIL, self.clock.monotonic, host_inventory(), peers=self.agents)
        self.agents[EVIL] = evil
        evil.connect(self.plane)
        await self.settle()
        for host, vm in (*HONEST.items(), (EVIL, OWN)):
            self.ids[vm] = await self._create(vm, host)
        await self.settle()
        del self.agents[EVIL]
        evil.disconnect()
        self.digest = evil.digest
        self.known_inventory = msgspec.json.encode(host_inventory())
        assert (await self.running.ask("GET", "/readyz")).status_code == 200
        await self._turns()
        self._tasks = len(asyncio.all_tasks())
        self._before = await self.store.read(_others)
        self._first = self.plane.follower.applied

    async def _create(self, name: str, host: str) -> str:
        body = CreateVM(
            name=name,
            demand=DemandBody(cpu=1, memory=2**30),
            constraints=ConstraintsBody(hosts=[host]),
        )
        made = await self.running.ask("POST", "/api/v1/vms", content=msgspec.json.encode(body))
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def end(self) -> None:
        """Stop the server."""
        try:
            self.do(self._stack.aclose)
        finally:
            self._runner.close()
            self._log.setLevel(self._level)

    # Turns

    async def _turns(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await self.plane.agents.settle()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let the honest agents and the plane talk until nobody has anything left to say."""
        for _ in range(_MOST_ROUNDS):
            said = False
            for agent in self.agents.values():
                if not agent.connected:
                    agent.connect(self.plane)
                agent.listen()
                agent.work()
                agent.report()
                if agent.welcome is not None and (agent.needs_confirming or not agent.leased):
                    agent.heartbeat()
                said |= bool(agent.outbox)
                agent.speak()
            await self._turns()
            await self.plane.evidence.flush()
            await self.plane.intake.flush()
            await self.plane.readings.flush()
            await self.plane.follower.catch_up()
            if not said and not any(agent.inbox for agent in self.agents.values()):
                return
        raise AssertionError("the plane and the honest agents never came to rest")

    async def pass_by(self, seconds: float) -> None:
        """Let time pass: heartbeats of the honest, and everything that looks now and then."""
        self.clock.move(seconds)
        for agent in self.agents.values():
            agent.heartbeat()
        await self.settle()
        await self.plane.lineage.refresh()
        await self.plane.agents.call_roll()
        await self.settle()
        await self.plane.run_singletons()
        await self.settle()

    # The attacker

    async def open_agent(self) -> Line:
        """Open the WebSocket of the attacker's host."""
        line = await self.open_client()
        line.send(HANDSHAKE)
        async with asyncio.timeout(TIMEOUT_S):
            answer = await line.reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        return line

    async def open_client(self) -> Line:
        """Open a connection on which nothing was said yet."""
        return Line(*await asyncio.open_connection("127.0.0.1", self.running.server.port))

    def named(self, data: bytes) -> bytes:
        """Return bytes with the ids of the VMs that they name as `ID-OF-name`."""
        for name, vm_id in self.ids.items():
            data = data.replace(f"ID-OF-{name}".encode(), vm_id.encode())
        return data

    def said(self, message: Any) -> bytes:
        """Return a message with the ids, the digest and the inventory that it names."""
        text = self.named(dumped(message)).replace(b'"TRUE"', b'"%s"' % self.digest.encode())
        return text.replace(b'"KNOWN"', self.known_inventory)

    async def send(self, line: Line, *pieces: bytes) -> None:
        """Send bytes piece by piece, each before the next."""
        for piece in pieces:
            line.send(piece)
            await self._turns()

    # Laws

    async def look(self) -> None:
        """The plane is ready, and nothing has happened to what is not the attacker's."""
        assert not self.unhandled, f"nobody handled {self.unhandled[0]}"
        ready = await self.running.ask("GET", "/readyz")
        # A host may claim that the ledger is old; then it says so, and goes on.
        assert ready.status_code == 200, ready.text
        for host, vm in HONEST.items():
            agent = self.agents[host]
            assert agent.connected, f"the connection of {host} was closed"
            assert agent.refusal is None, f"{host} was refused {agent.refusal}"
            assert agent.leased, f"{host} has lost its lease"
            assert self._runs(host, self.ids[vm]), f"{vm} does not run on {host}"
        now = await self.store.read(_others)
        for what, before in self._before.items():
            assert now[what] == before, f"{what} of others have changed"
        harmed = await self.store.read(lambda connection: self._harmed(connection))
        assert harmed == []

    def _runs(self, host: str, vm_id: str) -> bool:
        copy = self.agents[host].copies.get(vm_id)
        return copy is not None and copy.runs

    def _harmed(self, connection: Connection) -> list[tuple[str, str, str]]:
        query = select(events.c.kind, events.c.subject, events.c.note)
        query = query.where(events.c.seq > self._first, events.c.kind.in_(sorted(HARMS)))
        own = f"host/{EVIL}", f"vm/{self.ids[OWN]}"
        mine = set(connection.execute(select(vms.c.id).where(vms.c.project == "p1")).scalars())
        return [
            (kind, subject, note)
            for kind, subject, note in connection.execute(query)
            if subject not in own and subject.removeprefix("vm/") not in mine
        ]

    async def leave(self) -> None:
        """Once all is closed nothing is left of the attacker, and honest hosts take new VMs."""
        await self.settle()
        for _ in range(3):
            await self.pass_by(2.0)
        await self.look()
        self._made += 1
        made = await self._create(f"last-{self._made}", "h2")
        await self.settle()
        assert self._runs("h2", made), "an honest host was not told of a new VM"
        assert (await self.running.ask("DELETE", f"/api/v1/vms/last-{self._made}")).is_success
        await self.pass_by(1.0)
        gc.collect()  # an exception that nobody asked for is told when its task goes
        await self._turns()
        assert not self.unhandled, f"nobody handled {self.unhandled[0]}"
        connections = self.running.server.server_state.connections
        assert len(connections) <= 1, f"{len(connections)} connections are left"
        assert self.plane.agents.online == len(HONEST), "agents are left that are gone"
        tasks = asyncio.all_tasks()
        assert len(tasks) <= self._tasks, f"tasks are left: {[t.get_coro() for t in tasks]}"

    def objects(self) -> Counter[str]:
        """Return how many objects there are of each type of roost and of what it is built on."""
        self.running.plane.agents.sessions.clear()  # the tests' own memory
        for agent in self.agents.values():
            agent.heard.clear()
        gc.collect()
        found: Counter[str] = Counter()
        for each in gc.get_objects():
            kind = type(each)
            # The loop drops cancelled timers when they are due, or when most of its timers are.
            if isinstance(each, asyncio.TimerHandle) and each.cancelled():
                continue
            if str(kind.__module__).partition(".")[0] in (
                "roost",
                "asyncio",
                "uvicorn",
                "websockets",
            ):
                found[f"{kind.__module__}.{kind.__qualname__}"] += 1
        return found


def _others(connection: Connection) -> dict[str, Any]:
    """Return what is neither the attacker's project's nor its host's, as the ledger has it."""
    query = select(
        vms.c.id, vms.c.name, vms.c.project, vms.c.host, vms.c.desired, vms.c.observed,
        vms.c.restart, vms.c.phase,
    )  # fmt: skip
    found = list(connection.execute(query.where(vms.c.name.in_(list(HONEST.values())))))
    kept = select(claims.c.vm, claims.c.host, claims.c.kind, claims.c.cpu_milli)
    held = connection.execute(kept.where(claims.c.vm.in_([row.id for row in found])))
    shape = select(
        hosts.c.name, hosts.c.admin, hosts.c.health, hosts.c.fenced, hosts.c.inventory,
        hosts.c.instance,
    )  # fmt: skip
    return {
        "vms": sorted(map(tuple, found)),
        "claims": sorted(map(tuple, held)),
        "hosts": sorted(map(tuple, connection.execute(shape.where(hosts.c.name != EVIL)))),
        "projects": sorted(connection.execute(select(projects.c.name)).scalars()),
        "tokens": sorted(connection.execute(select(tokens.c.id)).scalars()),
    }


def request(
    method: str, path: str, body: bytes = b"", *, holder: str | None = "member", extra: str = ""
) -> bytes:
    """Return the bytes of a request."""
    who = f"Authorization: Bearer {token(holder)}\r\n" if holder else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{who}{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def dumped(said: Any) -> bytes:
    """Return a message as bytes, whatever is in it."""
    return json.dumps(said).encode("utf-8", "surrogatepass")
