"""One or more planes on a database, model agents around them, and a clock that stands still.

Nothing moves unless the test says so: `settle` lets everybody speak, listen and work until nobody
has anything left to say; `pass_by` lets time pass with heartbeats and looks of who acts for all.
`check` states every law of the control plane again from scratch and runs after every step.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from roost.base.clock import RealClock
from roost.base.errors import SeriesUnavailable
from roost.base.ids import IdSource
from roost.base.units import GIB
from roost.control.agents.connections import ConnectionOrder
from roost.control.agents.dispatch import Dispatch
from roost.control.memory.roster import Roster
from roost.control.plane import Plane, PlaneSettings
from roost.control.plans.continuouslimits import ContinuousLimits
from roost.control.survive.recover import RecoverLimits
from roost.control.timers import Timers
from roost.fleet.check import check as check_fleet
from roost.ledger.opening import open_store
from roost.ledger.schema.rows import ClaimRow, VMRow
from roost.ledger.schema.tables import claims, counters, hosts, tombstones, vms
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import Store
from roost.parts.access import Principal
from roost.parts.sealing import Seal
from roost.series.embedded import EmbeddedSeries
from roost.series.opening import open_series, series_path
from roost.series.sqlite import SqliteShelf
from roost.testing.agent import ModelAgent, inventory
from roost.testing.clock import HandClock
from roost.wire.agentlink import DesiredVM, SeenVM
from roost.wire.bodies import (
    AffinityBody,
    ConstraintsBody,
    CreateVM,
    CreateVMs,
    DemandBody,
    GroupBody,
    MigrateVM,
    SetVM,
    VMBody,
)

Groups = list[str | GroupBody]
Rules = list[AffinityBody]
OPERATOR = Principal("olga", "operator")
ADMIN = Principal("root", "admin")
TIMERS = Timers()
#: Rounds after which everything that can happen by itself must have happened.
MOST_ROUNDS = 60


class Rig:
    """A plane with its agents; a second plane is another rig on the same database."""

    def __init__(
        self,
        store: Store,
        series: EmbeddedSeries,
        clock: HandClock,
        name: str = "plane",
        **given: Any,
    ) -> None:
        self.store, self.series, self.clock, self.name = store, series, clock, name
        self.given = given
        self.ids = IdSource(clock.wall_ms, Random(name))
        self.agents: dict[str, ModelAgent] = {}
        self.shrunk = False  # a host was made smaller than what it has promised
        self.excused: set[tuple[str, str]] = set()  # copies that fencing left without a claim
        self.plane: Plane = None  # type: ignore[assignment]

    async def load(self) -> None:
        """Build a plane from what the database has, as after a start of the process."""
        settings = PlaneSettings(
            strategy=self.given.get("strategy", "first_fit"),
            timers=self.given.get("timers", TIMERS),
            patience_s=self.given.get("patience_s", 600.0),
            recover=self.given.get("recover", RecoverLimits()),
            pressure_bounds=self.given.get("pressure_bounds", {}),
            continuous=self.given.get("continuous", ContinuousLimits()),
            predict_quantile=self.given.get("predict_quantile", 0.9),
            predict_hours=self.given.get("predict_hours", 4),
        )
        command = self.given.get("fence_command")
        seal = self.given.get("seal")
        self.plane = Plane(
            self.store, self.clock, self.ids, settings, command, seal=seal, series=self.series
        )
        await self.plane.load()

    async def restart(self) -> None:
        """End the process and start another one on the same database."""
        for agent in self.agents.values():
            agent.disconnect()
        await self.plane.stop()
        await self.load()

    # Hosts and VMs

    async def host(
        self,
        name: str,
        cpu: int = 4,
        memory: int = 8,
        *,
        guard: float | None = None,
        plane: "Rig | None" = None,
        **rest: Any,
    ) -> ModelAgent:
        """Let a host join."""
        found = inventory(cpu, memory, **rest)
        agent = ModelAgent(name, self.clock.monotonic, found, guard, peers=self.agents)
        self.agents[name] = agent
        owner = plane or self
        agent.connect(owner.plane)
        await owner.settle(check=False)
        return agent

    async def create(self, name: str = "vm", *, who: Principal = OPERATOR, **given: Any) -> VMBody:
        """Create one VM of a core and 1 GiB, unless told otherwise."""
        key = given.pop("key", None)
        body = body_of(name, **given)
        return (await self.plane.admit.create(body, who, key, digest_of(body))).vm

    async def running(self, name: str = "vm", **given: Any) -> VMBody:
        """Create a VM and wait until it runs."""
        made = await self.create(name, **given)
        await self.settle()
        assert (await self.get(name, made.project)).state == "running"
        return made

    async def get(self, name: str, project: str | None = None) -> VMBody:
        return await self.plane.vms.get(name, project, ADMIN)

    async def state(self, name: str) -> tuple[str, str | None]:
        """Return a VM's state and host."""
        vm = await self.get(name)
        return vm.state, vm.host

    async def row(self, name: str) -> VMRow | None:
        query = select(vms).where(vms.c.name == name)
        found = await self.rows(query)
        return VMRow(**found[0]) if found else None

    async def rows(self, query: Any) -> list[dict[str, Any]]:
        def ask(connection: Connection) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(query).mappings()]

        return await self.store.read(ask)

    async def claims(self) -> dict[str, str]:
        """Return the host of every claim, both by name."""
        named = {row["number"]: row["name"] for row in await self.rows(select(hosts))}
        of = {row["id"]: row["name"] for row in await self.rows(select(vms))}
        found = await self.rows(select(claims))
        return {
            f"{of.get(row['vm'], row['vm'])}:{row['kind']}": named[row["host"]] for row in found
        }

    def committed(self, host: str) -> int:
        """Return the millicores that the roster thinks a host has promised."""
        fleet = self.plane.roster.fleet
        return int(fleet.hosts.arrays.committed[fleet.row(host), 0])

    # Time and messages

    async def hear(self) -> None:
        """Let the plane take in what has arrived."""
        await self.plane.agents.settle()
        await self.plane.evidence.flush()
        await self.plane.intake.flush()
        with contextlib.suppress(SeriesUnavailable):
            await self.plane.readings.flush()
        await self.plane.follower.catch_up()

    async def settle(
        self, *, keep: bool = False, check: bool = True, rounds: int = MOST_ROUNDS
    ) -> None:
        """Let all connected agents and the plane talk until nothing changes any more."""
        for _ in range(rounds):
            before = self.picture()
            for agent in self.agents.values():
                self.step(agent)
            await self.hear()
            if keep:
                await self.plane.run_singletons()
                await self.hear()
            for agent in self.agents.values():
                agent.listen()
            if self.picture() == before and not any(a.outbox for a in self.agents.values()):
                break
        else:
            raise AssertionError("the plane and its agents never came to rest")
        if check:
            await self.check()

    def step(self, agent: ModelAgent) -> None:
        """Let one agent look at what came, act, and say what it sees."""
        agent.listen()
        agent.guard()
        agent.work()
        if agent.connected:
            if agent.welcome is not None:
                agent.report()
                if agent.digest != self._digest(agent) or self._wants_list(agent):
                    agent.heartbeat()
            agent.speak()

    def _wants_list(self, agent: ModelAgent) -> bool:
        def waits(vm: DesiredVM) -> bool:
            copy = agent.copies.get(vm.id)
            starts = vm.power == "running" and (copy is None or copy.state != "running")
            receives = vm.part == "incoming" and (copy is None or copy.state == "lost")
            waits = receives or (vm.part == "run" and starts)
            return waits and vm.restart == "elsewhere"

        return not agent.confirmed and any(waits(vm) for vm in agent.vms.values())

    def _digest(self, agent: ModelAgent) -> str:
        entry = self.plane.roster.entry(agent.name)
        return "" if entry is None else self.plane.dispatch.digest(entry.number)

    def picture(self) -> object:
        """Return everything that can change, to see whether it did."""
        return (
            self.plane.follower.applied,
            [
                (a.digest, len(a.inbox), a.confirmed, a.leased, a.refusal is None,
                 {vm: (c.state, c.generation) for vm, c in a.copies.items()},
                 {vm: record.generation for vm, record in a.records.items()})
                for a in self.agents.values()
            ],
        )  # fmt: skip

    async def one_round(self) -> None:
        """Let every agent speak once, and the plane take it in."""
        for agent in self.agents.values():
            self.step(agent)
        await self.hear()
        self.one_copy()

    async def until_phase(self, name: str, phase: str) -> None:
        """Let the agents talk until a move is in this phase."""
        for _ in range(MOST_ROUNDS):
            row = await self.row(name)
            if row is not None and row.phase == phase:
                return await self.check()
            await self.one_round()
        raise AssertionError(f"{name} is never {phase}")

    async def migrate(self, name: str, host: str | None = None) -> VMBody:
        """Begin a move."""
        return await self.plane.moves.migrate(name, None, MigrateVM(host=host), OPERATOR)

    async def set_restart(self, name: str, restart: str) -> VMBody:
        """Set where a VM starts after the loss of its host."""
        body = SetVM(restart=restart)  # type: ignore[arg-type]
        return await self.plane.vms.set(name, None, body, OPERATOR)

    async def move(self, name: str, host: str) -> None:
        """Move a VM and wait until it has arrived."""
        await self.migrate(name, host)
        await self.settle()
        assert await self.state(name) == ("running", host)

    def number(self, host: str) -> int:
        """Return a host's number in the ledger."""
        entry = self.plane.roster.entry(host)
        assert entry is not None
        return entry.number

    async def report(self, host: str, *seen: SeenVM) -> None:
        """Let a report arrive that an agent sent some time ago."""
        entry = self.plane.roster.entry(host)
        assert entry is not None
        said_in = ConnectionOrder(entry.row.instance, self.agents[host].conversations)
        self.plane.intake.report(entry.number, list(seen), None, said_in)
        await self.plane.intake.flush()
        await self.plane.follower.catch_up()

    async def look_back(self) -> None:
        """Let the plane see whether its ledger is old, and ask hosts while it is."""
        await self.plane.lineage.refresh()
        await self.plane.agents.call_roll()

    async def pass_by(self, seconds: float, *, silent: tuple[str, ...] = ()) -> None:
        """Let time pass by 2 s at a time: heartbeats, flushes and looks; some hosts are silent."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.move(min(TIMERS.watch_s, end - self.clock.now))
            for name, agent in self.agents.items():
                agent.guard()
                if name not in silent and agent.connected:
                    agent.heartbeat()
                    self.step(agent)
            await self.hear()
            await self.look_back()
            await self.plane.run_singletons()
            await self.hear()
            self.one_copy()
        await self.check()

    # Laws

    def one_copy(self) -> None:
        """At most one copy of a VM runs at any instant, wherever."""
        running: dict[str, str] = {}
        for agent in self.agents.values():
            for vm_id, copy in agent.copies.items():
                if copy.runs:
                    assert vm_id not in running, f"{vm_id} runs on {running[vm_id]}, {agent.name}"
                    running[vm_id] = agent.name

    async def check(self) -> None:
        """State every law again: the doctor, the fleet, and that following equals loading."""
        self.one_copy()
        found = await self.plane.doctor()
        told = [f for f in found.findings if not (self.shrunk and f.check == "over_capacity")]
        assert told == [], told
        await self.plane.follower.catch_up()
        # What a host holds takes room that may have been promised before.
        holds = any(entry.row.held not in ("", "[]") for entry in self.plane.roster.hosts.values())
        check_fleet(self.plane.roster.fleet, over_capacity=self.shrunk or holds)
        fresh, lists = (
            Roster("first_fit"),
            Dispatch(Roster("first_fit"), self.plane.lineage, Seal()),
        )

        def load(connection: Connection) -> int:
            lists.load(connection)
            fresh.load(connection)
            newest = select(counters.c.value).where(counters.c.name == "events")
            return int(connection.execute(newest).scalar_one())

        applied = await self.store.read(load)
        assert applied == self.plane.follower.applied
        assert portrait(self.plane.roster) == portrait(fresh)
        assert digests(self.plane.dispatch) == digests(lists)
        await self._check_copies()

    async def _check_copies(self) -> None:
        """Whatever exists on a host has a claim there that is as large: what runs is not free."""
        named = {row["name"]: row for row in await self.rows(select(hosts))}
        room: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for row in await self.rows(select(claims)):
            claim = ClaimRow(**row)
            size = (claim.cpu_milli, claim.memory_bytes, claim.disk_bytes)
            room.setdefault((claim.vm, claim.host), []).append(size)
        for agent in self.agents.values():
            host = named.get(agent.name)
            for vm_id, copy in agent.copies.items():
                if host is not None and host["fenced"] is not None:
                    self.excused.add((vm_id, agent.name))
                if host is None or (vm_id, agent.name) in self.excused:
                    continue
                sizes = room.get((vm_id, host["number"]), [])
                enough = any(all(a >= b for a, b in zip(s, copy.size, strict=True)) for s in sizes)
                assert enough, f"{vm_id} is {copy.state} on {agent.name}, but nothing is claimed"

    async def converged(self) -> None:
        """After all faults: nobody leaks anything, and what is desired is what is."""
        for row in await self.rows(select(vms)):
            vm = VMRow(**row)
            assert vm.desired != "absent", f"{vm.name} is never gone"
            assert not vm.phase, f"{vm.name} is {vm.phase} for ever"
            if vm.host is not None:
                assert (vm.observed, vm.observed_generation) == (vm.desired, vm.generation), vm
        left = [row for row in await self.rows(select(claims)) if row["kind"] != "run"]
        assert left == []
        assert await self.rows(select(tombstones)) == []
        for agent in self.agents.values():
            for vm_id, copy in agent.copies.items():
                assert vm_id in agent.vms, f"{agent.name} keeps {vm_id}, {copy.state}"


def portrait(roster: Roster) -> dict[str, Any]:
    """Return all that a roster knows, by names, so that two can be compared."""
    fleet = roster.fleet
    arrays, table = fleet.hosts.arrays, fleet.hosts
    resources = table.resources.values
    shown: dict[str, Any] = {}
    for entry in roster.hosts.values():
        at = entry.fleet_row
        amounts = {
            name: (int(arrays.capacity[at, c]), int(arrays.committed[at, c]))
            for c, name in enumerate(resources)
            if arrays.capacity[at, c] or arrays.committed[at, c]
        }
        devices = [free for free in arrays.device_free[at].tolist() if free >= 0]
        cells = [free for free in arrays.cell_free[at].tolist() if free != [-1, -1]]
        shown[entry.name] = (
            amounts, devices, cells, int(arrays.vm_count[at]), bool(arrays.takes[at]),
            entry.generation, entry.epoch, msgspec.structs.astuple(entry.row),
        )  # fmt: skip
    placed = {}
    for name, number in fleet.vms.numbers.items():
        group_set = fleet.groups.set_members(int(fleet.vms.group_set[number]))
        demand = fleet.vms.demand[number].tolist()
        placed[name] = (
            table.names[int(fleet.vms.host[number])],
            {resources[c]: amount for c, amount in enumerate(demand) if amount},
            sorted(fleet.groups.specs[group].name for group in group_set),
            int(fleet.vms.devices[number]),
            int(fleet.vms.cells[number]),
        )
    return {
        "hosts": shown,
        "placed": placed,
        "groups": {
            g: (msgspec.structs.astuple(row), fleet.groups.specs[fleet.groups.find(g)])
            for g, row in roster.groups.items()
        },
        "groups_of": roster.groups_of,
        "selectors": {
            project: sorted((s.group, sorted(s.labels.items())) for s in found)
            for project, found in roster.selectors.items()
            if found
        },
        "rules": roster.rules,
        "waiting": {v: msgspec.structs.astuple(row) for v, row in roster.waiting.items()},
    }


def digests(dispatch: Dispatch) -> dict[int, tuple[int, dict[str, int]]]:
    """Return every list that is not empty."""
    return {
        number: (found.digest, found.entries)
        for number, found in dispatch.lists.items()
        if found.entries
    }


def body_of(name: str = "vm", **given: Any) -> CreateVM:
    """Return the body of a VM of one core and 1 GiB, unless told otherwise."""
    demand = {"cpu": 1, "memory": GIB} | {
        key: given.pop(key)
        for key in ("cpu", "memory", "disk", "gpu", "extended", "numa")
        if key in given
    }
    for field, kind in (("constraints", ConstraintsBody), ("groups", Groups), ("affinity", Rules)):
        if field in given:
            given[field] = msgspec.convert(given[field], kind)
    return CreateVM(name=name, demand=DemandBody(**demand), **given)


def digest_of(body: CreateVM | CreateVMs) -> bytes:
    return sha256(msgspec.json.encode(body)).digest()


def gib(count: int) -> int:
    return count * GIB


@cache
def _empty_database() -> bytes:
    """Return an SQLite file with the schema: migrating each test's own takes longer than most."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "roost.db"
        store = SqliteStore(path, RealClock(), IdSource(RealClock().wall_ms), inline=True)
        with contextlib.suppress(StopIteration):
            store.close().send(None)  # inline, so it never waits
        return path.read_bytes()


#: The 17th of November 2026, 12:00 UTC.
NOVEMBER_S = 1_794_916_800.0


class _Dated(RealClock):
    """A real clock for whoever waits, with the date of another."""

    def __init__(self, hand: HandClock) -> None:
        super().__init__()
        self._hand = hand

    def wall_ms(self) -> int:
        """Return the other clock's date."""
        return self._hand.wall_ms()


@asynccontextmanager
async def rig_on(
    url: str,
    *,
    inline: bool = True,
    clock: HandClock | None = None,
    dated: bool = False,
    **given: Any,
) -> AsyncIterator[Rig]:
    """Open a database and build a plane on it; the laws are checked once more at the end.

    With `dated` the ledger has the plane's wall clock, in November 2026.
    """
    clock = clock or HandClock(NOVEMBER_S if dated else 1000.0)
    of_ledger = _Dated(clock) if dated else RealClock()
    ids = IdSource(RealClock().wall_ms)
    store: Store
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite") and not path.exists():
        path.write_bytes(_empty_database())
    if url.startswith("sqlite") and inline:
        store = SqliteStore(path, of_ledger, ids, inline=True, full=False)
        series = EmbeddedSeries(SqliteShelf(series_path(path), inline=True))
    else:
        store = await open_store(url, of_ledger, ids)
        series = open_series(url)
    rig = Rig(store, series, clock, given.pop("name", "plane"), **given)
    try:
        await rig.load()
        yield rig
        await rig.check()
    finally:
        if rig.plane is not None:
            await rig.plane.stop()
        await series.close()
        await store.close()


def run(url: str, test: Callable[[Rig], Awaitable[None]], **given: Any) -> None:
    """Run a test on one plane."""

    async def whole() -> None:
        async with rig_on(url, **given) as rig:
            await test(rig)

    asyncio.run(asyncio.wait_for(whole(), 120))


def run_two(url: str, test: Callable[[Rig, Rig], Awaitable[None]], **given: Any) -> None:
    """Run a test on two planes that share a database and a clock."""

    async def whole() -> None:
        clock = HandClock(NOVEMBER_S if given.get("dated") else 1000.0)
        async with (
            rig_on(url, clock=clock, name="first", **given) as first,
            rig_on(url, clock=clock, name="second", **given) as second,
        ):
            second.agents = first.agents
            second.excused = first.excused
            await test(first, second)

    asyncio.run(asyncio.wait_for(whole(), 120))
