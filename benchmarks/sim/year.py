"""Rows: what is left of a year in which VMs come and go every day.

A real control plane on a real SQLite file, on a clock that jumps from day to day: 100 VMs are
created and 100 deleted each day, the hosts' reports arrive, some VMs are restarted, one VM of each
hundred brings a rule about labels of its own, and once a day what is too old is purged. A server
process is started on the file in the end.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec
from sqlalchemy import Connection, func, select

from benchmarks.api.measuring import cpu_s
from benchmarks.api.serving import NEVER_OFFLINE, start
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import say
from benchmarks.results import Result, at_most
from roost.base.ids import IdSource
from roost.control.agents.connections import ConnectionOrder
from roost.control.groups.ending import EMPTY_S, EmptyRules
from roost.control.plane import Plane, PlaneSettings
from roost.ledger.schema.tables import decisions, events, groups
from roost.ledger.sqlite.store import SqliteStore
from roost.parts.access import Principal
from roost.parts.retention import Purge
from roost.testing.agent import ModelAgent, inventory
from roost.testing.clock import HandClock
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import AffinityBody, CreateVM, CreateVMs, DemandBody

HOSTS, ALIVE, A_DAY = 100, 1_000, 100
DAYS = 365
_RESTARTS = 20  # VMs that are restarted each day
_DAY_S = 86_400.0
_WHO = Principal("bench", "operator")
_MIB = 2**20


@dataclass(slots=True)
class Year:
    """A fleet whose days pass."""

    plane: Plane
    store: SqliteStore
    clock: HandClock
    agents: dict[str, ModelAgent] = field(default_factory=dict)
    alive: deque[tuple[str, str]] = field(default_factory=deque)  # VM and host, the oldest first
    made: int = 0
    doctor_s: list[float] = field(default_factory=list)

    async def begin(self) -> None:
        """Register the hosts."""
        await self.plane.load()
        for number in range(HOSTS):
            name = f"h{number:03}"
            agent = ModelAgent(name, self.clock.monotonic, inventory(64, 512, 10_000))
            self.agents[name] = agent
            agent.connect(self.plane)
            for _ in range(4):
                agent.speak()
                await self.plane.agents.settle()
                agent.listen()

    async def day(self, number: int) -> None:
        """Let one day pass."""
        wanted = ALIVE if number == 0 else A_DAY
        for _ in range(0, wanted, A_DAY):
            await self._create(A_DAY)
        while len(self.alive) > ALIVE:
            await self._delete([self.alive.popleft() for _ in range(A_DAY)])
        for vm, host in list(self.alive)[-_RESTARTS:]:
            body = await self.plane.vms.restart(vm, None, _WHO)
            await self._report([(vm, host)], body.generation, "starting")
            await self._report([(vm, host)], body.generation, "running")
        self.clock.move(_DAY_S)
        await self.plane.leases.tick()
        for part in self.plane.parts:
            if isinstance(part, EmptyRules):
                await part.look()
                self.clock.move(EMPTY_S + 1)
                await self.plane.leases.tick()
                await part.look()
            elif isinstance(part, Purge):
                await part.look()

    async def _create(self, number: int) -> None:
        bodies = []
        for _ in range(number):
            self.made += 1
            demand = DemandBody(cpu=2, memory="4GiB", disk="40GiB")
            bodies.append(CreateVM(name=f"vm-{self.made}", demand=demand, labels={"app": "web"}))
        # One of them has a rule of its own, which nobody needs after it.
        rule = AffinityBody(rule="anti-affinity", selector={"job": str(self.made)}, hard=False)
        bodies[0] = msgspec.structs.replace(bodies[0], affinity=[rule])
        batch = CreateVMs(vms=bodies)
        digest = sha256(msgspec.json.encode(batch)).digest()
        answer = await self.plane.admit.create_many(batch, _WHO, None, digest)
        new = []
        for item in answer.batch.results:
            if item.id is None or item.host is None:
                raise Wrong(f"a VM of the year was not placed: {item}")
            new.append((item.id, item.host))
        await self._report(new, 1, "starting")
        await self._report(new, 1, "running")
        self.alive.extend(new)

    async def _delete(self, gone: list[tuple[str, str]]) -> None:
        for vm, host in gone:
            body = await self.plane.vms.delete(vm, None, _WHO)
            await self._report([(vm, host)], body.generation, "absent")

    async def _report(self, vms: list[tuple[str, str]], generation: int, seen: str) -> None:
        """Let hosts report what they see of some VMs."""
        for vm, host in vms:
            entry = self.plane.roster.entry(host)
            assert entry is not None
            said_in = ConnectionOrder(entry.row.instance, self.agents[host].conversations)
            said = SeenVM(vm, generation, seen)  # type: ignore[arg-type]
            self.plane.intake.report(entry.number, [said], None, said_in)
        await self.plane.intake.flush()

    async def examine(self) -> None:
        """Let the doctor come, and take note of how long that took."""
        began = perf_counter()
        found = (await self.plane.doctor()).findings
        self.doctor_s.append(perf_counter() - began)
        if found:
            raise Wrong(f"the doctor has found {found[0].message}")

    async def count(self) -> dict[str, int]:
        """Return how many rows of what grows there are."""

        def question(connection: Connection) -> dict[str, int]:
            found = {}
            for table in (events, decisions, groups):
                number = select(func.count()).select_from(table)
                found[table.name] = int(connection.execute(number).scalar_one())
            return found

        return await self.store.read(question)


async def pass_year(path: Path, days: int) -> tuple[Year, dict[str, int]]:
    """Let the days pass on a new database, and return how it was and what is left."""
    clock, random = HandClock(1_700_000_000.0), Random("year")
    ids = IdSource(clock.wall_ms, random)
    store = SqliteStore(path, clock, ids, inline=True, full=False)
    year = Year(Plane(store, clock, ids, PlaneSettings()), store, clock)
    try:
        await year.begin()
        for number in range(days):
            await year.day(number)
            if (number + 1) % max(1, days // 12) == 0:
                await year.examine()
                said = ", ".join(f"{n:,} {name}" for name, n in (await year.count()).items())
                size = path.stat().st_size / _MIB
                spent = f"doctor {year.doctor_s[-1]:.2f} s"
                say(f"    day {number + 1}: {size:.0f} MiB, {said}, {spent}")
        return year, await year.count()
    finally:
        await year.plane.stop()
        await store.close()


def year_rows(days: int = DAYS, *, full: bool = True) -> Iterator[Result]:
    """Let a year pass, and start a server on what it leaves."""
    with TemporaryDirectory(prefix="roost-year-") as name:
        path = Path(name) / "roost.db"
        began = perf_counter()
        year, left = asyncio.run(pass_year(path, days))
        say(f"    {days} days with {year.made:,} VMs in {perf_counter() - began:.0f} s")
        size = sum(each.stat().st_size for each in Path(name).glob("roost.db*")) / 1e6
        kept = ", ".join(f"{n:,} {table}" for table, n in left.items())
        note = f"{days} days, {year.made:,} VMs created, {len(year.alive):,} alive; {kept}"
        goal = 500.0 if full else None
        yield at_most("database after a virtual year", size, "MB", goal, note=note)
        serving = start(f"sqlite:///{path}", Path(name) / "serve", NEVER_OFFLINE)
        note = f"CPU {cpu_s(serving.pid):.1f} s"
        serving.stop()
        goal = 5.0 if full else None
        yield at_most("start after a virtual year", serving.ready_s, "s", goal, note=note)
        told = ", ".join(f"{each:.2f}" for each in year.doctor_s)
        yield at_most("doctor after a virtual year", year.doctor_s[-1], "s", None, note=told)
