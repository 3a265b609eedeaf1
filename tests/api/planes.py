"""Control planes for the tests of the API: real ones, on SQLite in a folder of their own.

Each begins as a copy of one small fleet: the hosts h1, h2 and h3, the projects default, p1 and p2,
and a token of every role. Nothing runs by itself in them; `Players` play the agents of h1 and h2
for tests that need hosts which do as they are told. Trouble comes from the store or the agents'
door, where real trouble comes from.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from roost.base.clock import Clock, RealClock
from roost.base.ids import IdSource
from roost.control.plane import Plane, PlaneSettings
from roost.jobs.compose import JobSettings, job_parts
from roost.ledger.schema.tables import tokens
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Access, Principal, public
from roost.parts.routes import Route
from roost.parts.serving import Link, Session
from roost.testing.agent import ModelAgent, inventory
from roost.testing.jobs import ModelCloud, ModelClouds
from roost.wire.bodies import CreateProject, QuotaBody, SetQuota
from tests.faulty_store import FaultyStore

ADMIN = Principal("admin", "admin")
SETTINGS = PlaneSettings(strategy="first_fit")
JOBS = JobSettings(ModelClouds(ModelCloud()), lambda: ("http://127.0.0.1:1", ""))
#: What the hosts of a small fleet are called; those that are played are the first.
HOSTS, PLAYED = ("h1", "h2", "h3"), ("h1", "h2")
#: Cores of a host, and those that the project default may use.
CORES, QUOTA_CORES = 20_000, 1_000
#: Who has a token: kind, role, project and host.
HOLDERS: dict[str, tuple[str, str, str | None, str | None]] = {
    "viewer": ("api", "viewer", None, None),
    "operator": ("api", "operator", None, None),
    "admin": ("api", "admin", None, None),
    "member": ("api", "member", "p1", None),
    "agent": ("agent", "agent", None, "h1"),
    "slowagent": ("agent", "agent", None, "h2"),
    "worker": ("worker", "worker", None, "m1"),
    "join": ("join", "join", None, None),
}
#: Whose token is looked up when it is first used; those of the others are known by then.
NOT_KNOWN_YET = ("slowagent", "join")
#: Rounds after which everything that can happen by itself must have happened.
MOST_ROUNDS = 60
_fleet: list[bytes] = []  # a database file, once it was made


def token(holder: str) -> str:
    """Return the token of somebody."""
    return f"roost_{holder}_secret"


class TappedSession:
    """A session of a plane; it remembers what it was told and can be made to fail."""

    def __init__(self, session: Session, link: Link, principal: Principal) -> None:
        self.link, self.principal = link, principal
        self.messages: list[bytes] = []
        self.failure: Exception | None = None  # raised at the next message
        self.gone = asyncio.Event()
        self._session = session

    def received(self, data: bytes) -> None:
        self.messages.append(bytes(data))
        if self.failure is not None:
            raise self.failure
        self._session.received(data)

    def rest_s(self, spent_s: float) -> float:
        return self._session.rest_s(spent_s)

    def closed(self) -> None:
        assert not self.gone.is_set()
        self.gone.set()
        self._session.closed()


class TappedAgents:
    """A plane's door for agents; it remembers who came and can be made to fail."""

    def __init__(self, plane: Plane) -> None:
        self.sessions: list[TappedSession] = []
        self.failure: Exception | None = None
        self._plane = plane

    def connect(self, link: Link, principal: Principal) -> TappedSession:
        if self.failure is not None:
            raise self.failure
        session = TappedSession(self._plane.agents.connect(link, principal), link, principal)
        self.sessions.append(session)
        return session


class SmallPlane:
    """A plane with a small fleet, as the server sees it."""

    def __init__(self, plane: Plane, store: FaultyStore) -> None:
        self.plane, self.store = plane, store
        self.agents = TappedAgents(plane)

    @property
    def access(self) -> Access:
        return self.plane.access

    @property
    def routes(self) -> Sequence[Route]:
        return self.plane.routes

    def require_ready(self) -> None:
        self.plane.require_ready()

    async def happen(self, *names: str) -> list[int]:
        """Let something happen, once for each name; return the sequences of the events."""
        for name in names:
            await self.plane.projects.create(CreateProject(name=name), ADMIN)
        return list(range(self.head - len(names) + 1, self.head + 1))

    @property
    def head(self) -> int:
        """Return the sequence of the newest event."""
        return self.plane.follower.applied


class Players:
    """The agents of h1 and h2: they listen, act and report whenever they are told something.

    That of h3 says hello once and is gone.
    """

    def __init__(self, plane: Plane, clock: Clock) -> None:
        self.agents = {name: ModelAgent(name, clock.monotonic) for name in PLAYED}
        self._leaver = ModelAgent("h3", clock.monotonic, host_inventory())
        self._plane = plane
        self._rung = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        for agent in self.agents.values():
            agent.inventory = host_inventory()
            agent.peers = self.agents
            agent.rung = self._rung.set

    async def connect(self) -> None:
        """Let the agents introduce themselves."""
        for agent in (*self.agents.values(), self._leaver):
            agent.connect(self._plane)
        self._leaver.speak()
        await self.settle()
        self._leaver.disconnect()

    async def play(self) -> None:
        """Play them until cancelled."""
        while True:
            await self._rung.wait()
            await self._free.wait()
            self._rung.clear()
            await self.settle()

    async def pause(self) -> None:
        """Let them do nothing, once they have done all they were told."""
        await self.settle()
        self._free.clear()

    async def settle(self) -> None:
        """Let agents and plane talk until nobody has anything left to say."""
        self._free.set()
        for _ in range(MOST_ROUNDS):
            said = False
            for agent in self.agents.values():
                agent.listen()
                agent.work()
                agent.report()
                if agent.welcome is not None and (agent.needs_confirming or not agent.leased):
                    agent.heartbeat()
                said |= bool(agent.outbox)
                agent.speak()
            await self._plane.agents.settle()
            await self._plane.evidence.flush()
            await self._plane.intake.flush()
            if not said and not any(agent.inbox for agent in self.agents.values()):
                return
        raise AssertionError("the plane and its agents never came to rest")


def host_inventory() -> Any:
    """Return what each host has: cores for more than the quota, but no room for 2 TiB."""
    return inventory(CORES, 1024, 10_000)


def _enter_tokens(tx: Tx) -> None:
    for holder, (kind, role, project, host) in HOLDERS.items():
        row = {
            "id": holder, "kind": kind, "name": holder, "role": role, "project": project,
            "host": host, "hash": sha256(b"secret").hexdigest(), "created_ms": tx.at_ms,
            "expires_ms": None,
        }  # fmt: skip
        tx.insert(tokens, row)
        tx.event("token.created", f"token/{holder}", {"tokens": {holder: public(row)}})


async def _small_fleet() -> bytes:
    """Return a database with the small fleet; it is made once and copied from then on."""
    if not _fleet:
        with TemporaryDirectory() as folder:
            path, clock = Path(folder) / "roost.db", RealClock()
            ids = IdSource(clock.wall_ms, Random(0))
            store = SqliteStore(path, clock, ids, inline=True, full=False)
            plane = Plane(store, clock, ids, SETTINGS)
            await plane.load()
            for name in ("p1", "p2"):
                await plane.projects.create(CreateProject(name=name), ADMIN)
            await plane.projects.set_quota(
                "default", SetQuota(quota=QuotaBody(cpu=QUOTA_CORES)), ADMIN
            )
            await store.write(_enter_tokens)
            for name in HOSTS:
                agent = ModelAgent(name, clock.monotonic, host_inventory())
                agent.connect(plane)
                agent.speak()
                await plane.agents.settle()
            await plane.stop()
            await store.close()
            _fleet.append(path.read_bytes())
    return _fleet[0]


@asynccontextmanager
async def small_plane(
    *, clock: Clock | None = None, random: Random | None = None, load: bool = True
) -> AsyncIterator[SmallPlane]:
    """Build a plane on a copy of the small fleet, and load it."""
    clock = clock or RealClock()
    with TemporaryDirectory(prefix="roost-api-") as folder:
        path = Path(folder) / "roost.db"
        path.touch(0o600)
        path.write_bytes(await _small_fleet())
        ids = IdSource(clock.wall_ms, random)
        store = FaultyStore(SqliteStore(path, clock, ids, inline=True, full=False))
        plane = Plane(store, clock, ids, SETTINGS, bring=job_parts(JOBS))
        try:
            if load:
                await plane.load()
                for holder in HOLDERS.keys() - set(NOT_KNOWN_YET):
                    await plane.access.check(token(holder))
            yield SmallPlane(plane, store)
        finally:
            await plane.stop()
            await store.close()
