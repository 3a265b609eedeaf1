"""The world: planes, hosts and clients on one virtual loop, a history done to them, laws above all.

`run_history` returns a verdict with the digest of everything that happened; the same history gives
the same digest. Every note is an event: a message that arrived, a commit, a VM that changed, a
fault, an action.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, select

from roost.agent.drivers.base import LocalState, LocalVM
from roost.agent.drivers.virtual import VirtualSettings
from roost.base.errors import InvariantBroken
from roost.base.units import GIB
from roost.control.admin.doctor import doctor
from roost.control.survive.restore_judge import what_is_open
from roost.control.timers import Timers
from roost.fleet.check import check as check_fleet
from roost.ledger.claims.makingroom import PLAN
from roost.ledger.schema.rows import Event, VMRow
from roost.ledger.schema.tables import claims, tombstones, vms
from roost.sim.actors.actions import Actor
from roost.sim.actors.database import Database
from roost.sim.actors.hosts import SimHost
from roost.sim.actors.planes import SimPlane
from roost.sim.actors.probes import ProbedTransport
from roost.sim.actors.reading import read_everything
from roost.sim.actors.rogue import NAME as ROGUE
from roost.sim.actors.rogue import Rogue, check_unharmed, what_is_learnt
from roost.sim.actors.time_skip import Stillness
from roost.sim.faults.kinds import CRASHES, FAULTS, is_fault
from roost.sim.ground.clocks import PausedTime
from roost.sim.ground.lives import task_factory
from roost.sim.ground.loop import VirtualLoop
from roost.sim.ground.network import HostTransport, Network
from roost.sim.ground.unhandled import hear_unhandled, services_log_nothing
from roost.sim.histories.history import History, host_name
from roost.sim.laws.checking import Broken, Laws
from roost.wire.agentlink import DeviceInfo

#: The timers of a world: short, so that leases end and moves are given up within its few minutes.
TIMERS = Timers(
    heartbeat_s=2.0, lease_s=15.0, suspect_s=6.0, offline_s=12.0, full_list_s=60.0,
    singleton_s=6.0, move_s=30.0, plan_s=40.0, purge_s=20.0,
)  # fmt: skip
#: Commits before the ledger is examined as a whole for the first time.
_EXAMINE_EVERY = 400
#: How many notes of the past a failure shows.
_MOST_TOLD = 400


class Verdict(Struct):
    """How a world went."""

    seed: int
    events: int
    faults: int
    crashes: int
    digest: str
    seconds: float  # virtual
    broken: str = ""
    coverage: dict[str, int] = {}
    tail: list[str] = []


class World:
    """One world, from its beginning to its end."""

    def __init__(self, history: History, folder: Path) -> None:
        self.history = history
        self.laws = Laws(asyncio.get_running_loop().time)
        self.coverage: Counter[str] = Counter()
        self.events = 0
        self.tail: list[str] = []
        self._digest = blake2b(digest_size=16)
        self._broken: BaseException | None = None
        self.stillness: Stillness | None = None
        self._commits = 0
        self._examine_at = _EXAMINE_EVERY
        self._news = asyncio.Event()  # a law is broken, or the ledger is to be examined
        random = Random(f"world {history.seed}")
        self.random = random
        self.network = Network(Random(random.getrandbits(64)), self.note)
        self.database = Database(
            folder / "roost.db", Random(random.getrandbits(64)), self._committed, self.note
        )
        names = tuple(f"plane{n}" for n in range(history.planes))
        loop = asyncio.get_running_loop()
        control = PausedTime(loop) if history.lazy else None
        self.planes = {
            name: SimPlane(
                name,
                self.database,
                self.network,
                Random(random.getrandbits(64)),
                TIMERS if history.timers == "short" else Timers(),
                control or loop,
                self.note,
                history.continuous,
            )
            for name in names
        }
        self.hosts = {
            host_name(n): self._host(n, names, Random(random.getrandbits(64)))
            for n in range(history.hosts)
        }
        if control is not None:
            self.stillness = Stillness(
                self.hosts, control, self._planes_are_well, self._renew_leases
            )
        for name, rate in history.rates.items():
            machine = self.hosts.get(name) or self.planes.get(name)
            if machine is not None:  # a world that was made smaller has not all of them
                machine.machine.rate = rate
        self.actor = Actor(self)
        self.rogue: Rogue | None = None
        if history.rogue:
            self.rogue = Rogue(
                self.network, Random(f"rogue {history.seed}"),
                Random(f"rogue's talk {history.seed}"), names, sorted(self.hosts),
                history.measured,
                lambda: {name: vm.generation for name, vm in self.laws.books.vms.items()},
            )  # fmt: skip

    def _host(self, number: int, servers: tuple[str, ...], random: Random) -> SimHost:
        name = host_name(number)
        plan = self.history.host_plan(number)
        self.laws.add_host(name, plan.cpu * 1000, plan.memory_gib * GIB)
        turned = servers[number % len(servers) :] + servers[: number % len(servers)]
        return SimHost(
            name,
            self.network,
            random,
            VirtualSettings(
                cpu_milli=plan.cpu * 1000,
                memory_bytes=plan.memory_gib * GIB,
                disk_bytes=plan.disk_gib * GIB,
                devices=(DeviceInfo("card"),) * self.history.cards,
                boot_s=1.0,
                move_s=3.0,
            ),
            servers=turned,
            zone=plan.zone,
            rack=plan.rack,
            guard=plan.guard,
            transport=ProbedTransport if self.history.measured else HostTransport,
            changed=self._vm_changed,
            note=self.note,
        )

    # What happens

    def note(self, kind: str, who: str, detail: str) -> None:
        """Record one event of the world; of a fault `detail` says where it struck (`faults`)."""
        if kind == "at":
            self.coverage[f"at@{detail}"] += 1
            return
        self.events += 1
        self.coverage[f"commit.{who}" if kind == "commit" else kind] += 1
        if is_fault(kind):
            self.coverage[f"{kind}@{detail}"] += 1
        if self.stillness is not None:
            self.stillness.noted(kind, who, detail)
        line = f"{asyncio.get_running_loop().time():.6f} {kind} {who} {detail}"
        self._digest.update(line.encode())
        if not kind.startswith("net."):
            self.tail.append(line)
            if len(self.tail) > 2 * _MOST_TOLD:
                del self.tail[:_MOST_TOLD]

    def check(self, law: Callable[[], None]) -> None:
        """Check a law; the first that is broken ends the world."""
        try:
            law()
        except Broken as broken:
            if self._broken is None:
                self._broken = broken
                self._news.set()
                self.note("broken", "", str(broken))

    def unhandled(self, what: str) -> None:
        """Break the law that every exception is handled."""

        def law() -> None:
            raise Broken(what)

        self.check(law)

    def _vm_changed(self, host: str, vm_id: str, vm: LocalVM | None) -> None:
        before = self.laws.copies[vm_id].get(host)
        self.note("vm", host, f"{vm_id} {vm.state if vm else 'gone'}")
        self.check(lambda: self.laws.vm_changed(host, vm_id, vm))
        if vm is not None and vm.state == "moved" and before is not None:
            self._carry(self.hosts[host].sends_to(vm_id), vm_id, before.state)

    def _carry(self, peer: str, vm_id: str, state: LocalState) -> None:
        """Complete a VM's move after a while, as between real hypervisors."""
        loop = asyncio.get_running_loop()
        for target in self.hosts.values():
            if peer and target.name != peer:
                continue  # another copy may wait that an old order made
            if (copy := target.vms.vms.get(vm_id)) is not None and copy.state == "ready":
                delay = 0.001 + self.random.random() * 0.05
                loop.call_later(delay, target.arrive, vm_id, copy.generation, state)

    def _committed(self, events: list[Event]) -> None:
        for event in events:
            self.note("commit", event.kind, f"{event.subject} {event.note}")
        if self.stillness is not None:
            self.stillness.committed(events)
        names = (event.subject.partition("/")[2] for event in events)
        homes = {name: self.laws.books.home_of(name) for name in names}
        self.check(lambda: self.laws.committed(events))
        if self.history.rogue:
            self.check(lambda: check_unharmed(events, self.laws.books.home_of, homes))
        if self.laws.books.has_sums_to_compare:
            self.check(lambda: self.ask(self.laws.books.compare_sums))
        self._commits += 1
        if self._commits >= self._examine_at:
            self._news.set()

    def ask(self, question: Callable[[Connection], Any]) -> Any:
        """Read the ledger, unseen by planes."""
        return self.database.ask(question)

    # The course of the world

    async def run(self) -> None:
        """Do the history, end all faults, and see whether everything comes to rest."""
        for plane in self.planes.values():
            plane.start()
        await self._until(lambda: any(p.is_ready for p in self.planes.values()), 30, "ready")
        for host in self.hosts.values():
            host.start()
        if self.rogue is not None:
            self.rogue.start()
        await asyncio.sleep(8.0)
        if self.rogue is not None:
            await self.actor.cordon(ROGUE)
            self.rogue.wild = True
        if self.history.measured:
            self.actor.measure()
        began = asyncio.get_running_loop().time()
        for action in self.history.actions:
            wait = began + action.at - asyncio.get_running_loop().time()
            if wait > 0:
                await self._pass(wait)
            self.stop_if_broken()
            self._see_samples()
            self.actor.do(action)
        left = began + self.history.length_s - asyncio.get_running_loop().time()
        await self._pass(max(5.0, left))
        await self._examine()
        await self._come_to_rest()

    async def _pass(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            self._news.clear()
            timer = loop.call_at(end, self._news.set)
            await self._news.wait()
            timer.cancel()
            self.stop_if_broken()
            if self._commits >= self._examine_at:
                await self._examine()

    def stop_if_broken(self) -> None:
        """Raise the law that was broken, if any was."""
        if self._broken is not None:
            raise self._broken

    async def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not condition():
            if asyncio.get_running_loop().time() > end:
                raise Broken(f"not {what} after {seconds} s")
            await asyncio.sleep(0.5)

    def _planes_are_well(self) -> bool:
        return all(plane.is_ready for plane in self.planes.values())

    def _renew_leases(self) -> None:
        for plane in self.planes.values():
            plane.renew_leases()

    async def _examine(self, *, at_rest: bool = False) -> None:
        # Rarer and rarer: it reads everything there is, and there is more and more.
        self._examine_at = self._commits + max(_EXAMINE_EVERY, self._commits)
        for each in self.planes.values():
            if each.plane is not None and each.plane.follower.trouble:
                raise Broken(f"{each.name}: {each.plane.follower.trouble}")
        self._check_fleets()
        found = (await doctor(self.database.ledger)).findings
        # A host that cannot tell what it has has nothing, whatever it has promised before.
        found = [f for f in found if f.check != "over_capacity" or at_rest]
        # Where a VM is found after an old ledger was restored, nobody asked its groups.
        found = [f for f in found if f.check != "groups" or not self.laws.adrift]
        if found:
            raise Broken("; ".join(f"{f.check}: {f.message}" for f in found[:3]))

    def _see_samples(self) -> None:
        """See what planes have found wrong with their own fleets."""
        for each in self.planes.values():
            if each.plane is not None and (wrong := each.plane.fleet_check.wrong):
                raise Broken(f"{each.name} has found that {wrong[0]}")

    def _check_fleets(self) -> None:
        """Add up every plane's fleet again."""
        for each in self.planes.values():
            if each.plane is not None and each.is_ready:
                try:
                    check_fleet(each.plane.roster.fleet, over_capacity=True)
                except InvariantBroken as broken:
                    raise Broken(f"{each.name}: {broken.message}") from broken

    async def _come_to_rest(self) -> None:
        """End every fault; then everything converges within a bound, and nothing leaks."""
        self.note("calm", "", "")
        if self.stillness is not None:
            self.stillness.end()
        self.actor.end_faults()
        if self.rogue is not None:
            self.rogue.wild = False
        end = asyncio.get_running_loop().time() + self.history.calm_s
        why = "it was never looked at"
        while asyncio.get_running_loop().time() < end:
            await self._pass(5.0)
            why = self._unrest()
            if not why:
                break
        if why:
            raise Broken(f"after {self.history.calm_s:.0f} s without faults: {why}")
        await self._examine(at_rest=True)
        for each in self.planes.values():
            if each.plane is not None and each.life is not None and each.is_ready:
                await each.life.spawn(read_everything(each.plane))
                if self.rogue is not None:
                    await each.life.spawn(each.plane.flows.learn())
        if self.rogue is not None and (learnt := self.ask(what_is_learnt)):
            raise Broken(f"a rogue agent is believed of who talks: {learnt}")

    def _unrest(self) -> str:
        """Return why the world is not at rest; empty when it is."""
        rows: list[VMRow] = self.ask(_vm_rows)
        for vm in rows:
            if vm.desired == "absent":
                return f"{vm.name} is never gone"
            if vm.phase:
                return f"{vm.name} is {vm.phase} for ever"
            if vm.host is None:
                continue
            seen, wish = (vm.observed, vm.observed_generation), (vm.desired, vm.generation)
            if seen != wish:
                return f"{vm.name} is {seen} and should be {wish}"
            where = self.laws.executing(vm.id)
            wanted = [self.laws.books.host_name(vm.host)] if vm.desired != "stopped" else []
            if where != wanted:
                return f"{vm.name} is {vm.desired} in the ledger and executes on {where}"
        # One that is where the books have no room for it stays in doubt, and says so.
        without_room = [vm.id for vm in rows if vm.problem and "not_adopted" in vm.problem]
        if self.rogue is not None:
            without_room = []  # it has taken back what it said
        if (doubted := self.ask(what_is_open)[0]) > len(without_room):
            return f"{doubted} VMs are still in doubt"
        left = [each for each in self.ask(_left_over) if not any(vm in each for vm in without_room)]
        if left:
            return f"left over: {left[:3]}"
        if missing := self.laws.missing_hosts() or self.laws.lost() or self.laws.strays():
            return missing
        if host := self.laws.books.overdrawn():
            return f"{host} has promised more than it says to have"
        if unended := self.laws.plans.unended(self.laws.books.at_ms):
            return unended
        held = self.laws.books.room_made.held_for(PLAN)
        if wrong := self.laws.plans.held_for_nobody(held):
            return wrong
        return self.actor.who_waits_but_fits(rows)

    def verdict(self, broken: str) -> Verdict:
        """Return the verdict on the world."""
        kinds = self.coverage
        return Verdict(
            seed=self.history.seed,
            events=self.events,
            faults=sum(kinds[kind] for kind in FAULTS),
            crashes=sum(kinds[kind] for kind in CRASHES),
            digest=self._digest.hexdigest(),
            seconds=asyncio.get_running_loop().time(),
            broken=broken,
            coverage=dict(kinds),
            tail=self.tail[-_MOST_TOLD:] if broken else [],
        )


#: New objects after which a world looks for garbage among them.
_OBJECTS_BETWEEN = 20_000


def run_history(history: History) -> Verdict:
    """Run a world from its history."""
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)  # type: ignore[arg-type]
    asyncio.set_event_loop(loop)
    with (
        TemporaryDirectory(prefix="roost-sim-", dir=_memory_folder()) as folder,
        services_log_nothing(),
    ):
        # Modules and what they hold are no garbage: a world looks for its own alone, and not often,
        # for most of what a large one has lives as long as it does.
        usual = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN, *usual[1:])
        try:
            return loop.run_until_complete(_run(history, Path(folder)))
        finally:
            gc.set_threshold(*usual)
            gc.unfreeze()
            asyncio.set_event_loop(None)
            loop.close()


def _memory_folder() -> str | None:
    """Return a folder for the world's database, in memory if possible."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


async def _run(history: History, folder: Path) -> Verdict:
    world = World(history, folder)
    broken = ""
    try:
        with hear_unhandled(world.unhandled):
            await world.run()
        world.stop_if_broken()
    except Broken as law:
        broken = str(law)
    for plane in world.planes.values():
        plane.kill()
    for host in world.hosts.values():
        host.power_off()
    if world.rogue is not None:
        world.rogue.end()
    verdict = world.verdict(broken)
    await _let_all_end()
    await world.database.ledger.close()
    return verdict


async def _let_all_end() -> None:
    """Let every task that is left find out that its process is dead."""
    for _ in range(100):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.sleep(0.01)


def _vm_rows(connection: Connection) -> list[VMRow]:
    return [VMRow(**row) for row in connection.execute(select(vms).order_by(vms.c.id)).mappings()]


def _left_over(connection: Connection) -> list[str]:
    held = select(claims.c.id).where(claims.c.kind != "run").order_by(claims.c.id)
    graves = select(tombstones.c.vm, tombstones.c.host)
    found = [f"claim {claim}" for claim in connection.execute(held).scalars()]
    return found + [f"tombstone {row.vm} on {row.host}" for row in connection.execute(graves)]
