"""A world of jobs: drawn from a seed, done on virtual time, judged by its laws.

Two planes with all their parts, the shipped worker on every machine, a cloud between them. Users
submit and cancel; planes are killed at any commit, frozen and started again; the cloud fails, is
slow, answers twice, takes machines back; answers are lost. Then all faults end, and within a bound
every job has ended and nothing is rented that no policy keeps.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sqlalchemy import select

from roost.base.errors import InvalidRequest, NotFound, RoostError
from roost.base.ids import IdSource
from roost.control.plane import Plane, PlaneSettings
from roost.control.timers import Timers
from roost.jobs.accounts import Accounts
from roost.jobs.compose import JobSettings, job_parts
from roost.jobs.desk import JobDesk
from roost.jobs.detecting import Patience
from roost.jobs.planner import Planner
from roost.jobs.pools import Pools
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import leases
from roost.ledger.writes.transaction import Tx
from roost.model.job import FINAL, Account
from roost.parts.access import Principal
from roost.sim.actors.database import Database, PlaneStore
from roost.sim.ground.clocks import Machine, NodeClock
from roost.sim.ground.lives import Dead, Life, task_factory
from roost.sim.ground.loop import VirtualLoop
from roost.sim.ground.unhandled import hear_unhandled, services_log_nothing
from roost.sim.laws.checking import Broken
from roost.sim.rented.cloud import Rented, SimCloud, Weather
from roost.sim.rented.laws import Books, JobLaws
from roost.sim.rented.lowering import LIMITS, lower_limits
from roost.sim.rented.machines import SimMachine
from roost.wire import jobs as w
from roost.wire.bodies import DemandBody
from roost.wire.workerlink import Assignment
from roost.worker.run.plan import Ended

WHO = Principal("olga", "operator")
PATIENCE = Patience(
    allocating_s=140.0, worker_s=60.0, silent_s=30.0, returning_s=140.0, untracked_s=240.0,
    gone_s=90.0, limit_grace_s=10.0, sweep_s=20.0,
)  # fmt: skip
TIMERS = Timers(singleton_s=6.0)
STORM_S, CALM_S, LOOK_S = 150.0, 800.0, 5.0
#: What may happen in a storm, and how often of a hundred.
_ACTS = (
    ("submit", 20), ("cancel", 8), ("kill", 10), ("die", 14), ("freeze", 6), ("doubt", 6),
    ("kill_worker", 8), ("take", 6), ("reclaim", 6), ("weather", 10), ("deaf", 6),
)  # fmt: skip


class JobVerdict(msgspec.Struct):
    """How a world of jobs went."""

    seed: int
    digest: str
    seconds: float
    jobs: int
    rented: int
    faults: int
    broken: str = ""
    coverage: dict[str, int] = {}
    tail: list[str] = []


class _Clouds:
    """Implements `Providers`: the one cloud of the world."""

    def __init__(self, cloud: SimCloud) -> None:
        self._cloud = cloud

    def names(self) -> Sequence[str]:
        """Return the names of all providers."""
        return (self._cloud.name,)

    def without_account(self) -> Sequence[str]:
        """Return the names of those that need no account."""
        return ()

    async def open(
        self, name: str, account: Account | None, credentials: Mapping[str, str]
    ) -> SimCloud:
        """Return the cloud."""
        return self._cloud


class _JobPlane:
    """One plane process of the world, one life after another."""

    def __init__(self, name: str, world: "JobWorld", random: Random) -> None:
        self.name, self._world, self._random = name, world, random
        self.machine = Machine()
        self.life: Life | None = None
        self.plane: Plane | None = None
        self.store: PlaneStore | None = None
        self._lives = 0

    def start(self) -> None:
        """Start the process."""
        if self.life is not None:
            return
        self._lives += 1
        life = self.life = Life(f"{self.name}.{self._lives}")
        clock = NodeClock(self.machine, life)
        self.store = self._world.database.attach(life, self.kill)
        ids = IdSource(clock.wall_ms, Random(self._random.getrandbits(64)))
        settings = JobSettings(
            providers=_Clouds(self._world.cloud),
            server=lambda: ("http://plane", ""),
            patience=PATIENCE,
        )
        plane = self.plane = Plane(
            self.store, clock, ids, PlaneSettings(timers=TIMERS),
            series=self._world.database.series, bring=job_parts(settings),
        )  # fmt: skip
        self._watch_plans(self.part(Planner))
        life.spawn(self._serve(plane))

    def _watch_plans(self, planner: Planner) -> None:
        """Check of every plan that whoever commits it holds the lease at that moment."""
        commit, lease = planner._commit, planner.singleton
        held = select(leases.c.token).where(leases.c.name == lease.name)

        def watched(tx: Tx, *given: Any) -> Any:
            found = commit(tx, *given)
            row = tx.row(held)
            token = None if row is None else row["token"]
            self._world.check(lambda: self._world.laws.planned(self.name, lease.token, token))
            return found

        planner._commit = watched  # type: ignore[assignment, method-assign]

    async def _serve(self, plane: Plane) -> None:
        try:
            await plane.start()
        except RoostError:
            self._world.later(1.0, self.start)
            self.kill()

    def kill(self) -> None:
        """Kill the process at once; it is started again after a while."""
        if self.life is None:
            return
        life, self.life, self.plane, self.store = self.life, None, None, None
        life.end()
        self._world.note("killed", life.name, "")
        self._world.later(1.0 + self._random.random() * 20, self.start)

    def part(self, kind: type[Any]) -> Any:
        """Return a part of the plane by its type."""
        assert self.plane is not None
        return next(each for each in self.plane.parts if isinstance(each, kind))


class JobWorld:
    """One world of jobs, from its beginning to its end."""

    def __init__(self, seed: int, folder: Path, *, lowering: bool = False) -> None:
        random = self.random = Random(f"jobs {seed}")
        self.seed, self._folder = seed, folder
        self.laws, self.coverage, self.tail = JobLaws(), Counter[str](), list[str]()
        self.laws.lowering, self._calm = lowering, False
        self._digest = blake2b(digest_size=16)
        self._broken: Broken | None = None
        self._over = False
        self.users = Life("users")
        self.database = Database(
            folder / "roost.db", Random(random.getrandbits(64)), self._committed, self.note
        )
        self.cloud = SimCloud(
            Random(random.getrandbits(64)), Life("cloud"), self.note, self._rented, self._unrented
        )
        self.cloud.before_end = self._before_end
        self.planes = [
            _JobPlane(name, self, Random(random.getrandbits(64))) for name in ("one", "two")
        ]
        self.machines: dict[str, SimMachine] = {}
        self._made: list[str] = []
        self._names: dict[Path, str] = {}

    # What happens

    def note(self, kind: str, who: str, detail: str) -> None:
        """Record one event of the world."""
        if kind in ("at", "transaction"):
            return
        self.coverage[kind] += 1
        line = f"{asyncio.get_running_loop().time():.3f} {kind} {who} {detail}"
        self._digest.update(line.encode())
        self.tail.append(line)
        del self.tail[:-400]

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Schedule a call after a delay, unless the world is over."""

        def do() -> None:
            if not self._over:
                what()

        asyncio.get_running_loop().call_later(seconds, do)

    def check(self, law: Callable[[], None]) -> None:
        """Check a law; the first that is broken ends the world."""
        try:
            law()
        except Broken as broken:
            if self._broken is None:
                self._broken = broken
                self.note("broken", "", str(broken))

    def unhandled(self, what: str) -> None:
        """Break the law that every exception is handled."""
        self._broken = self._broken or Broken(what)

    def _committed(self, events: list[Event]) -> None:
        for event in events:
            self.note("commit", event.kind, f"{event.subject} {event.note}")

    def _rented(self, each: Rented) -> None:
        dud = self.random.random() < (0.06 if self.cloud.weather.fails else 0.0)
        machine = SimMachine(
            each, self._folder / each.cloud_id, self.planes, Random(self.random.getrandbits(64)),
            self._began, self._ended,
        )  # fmt: skip
        self.machines[each.cloud_id] = machine
        if not dud:
            self.later(0.5 + self.random.random() * 8, machine.start)

    def _unrented(self, each: Rented) -> None:
        self.machines[each.cloud_id].switch_off()

    def _before_end(self, each: Rented) -> None:
        self.check(lambda: self.laws.before_end(each, self.database.ask(Books.read)))

    def _name(self, folder: Path) -> str:
        if folder not in self._names:
            data = (folder / "assignment.json").read_bytes()
            self._names[folder] = msgspec.json.decode(data, type=Assignment).attempt
        return self._names[folder]

    def _began(self, machine: str, folder: Path) -> None:
        name = self._name(folder)
        # A twin has the same token, and may be given what the other has: at most one is believed.
        self.check(lambda: self.laws.attempt_began(f"{machine}/{folder.parts[-3]}", name))

    def _ended(self, machine: str, folder: Path, how: Ended) -> None:
        words = f"exited:{how.exit_code}" if how.why == "exited" else how.why
        self.laws.attempt_ended(self._name(folder), words)

    # Users

    def up(self) -> list[_JobPlane]:
        """Return the planes that serve."""
        return [
            each
            for each in self.planes
            if each.life is not None
            and each.life.frozen is None
            and each.plane is not None
            and each.plane.readiness().status == "ready"
        ]

    async def ask(self, work: Callable[[_JobPlane], Coroutine[Any, Any, Any]]) -> Any:
        """Ask some plane until one answers, as a client that tries again does."""
        while True:
            up = self.up()
            if not up:
                await asyncio.sleep(0.5)
                continue
            chosen = self.random.choice(up)
            assert chosen.life is not None
            task = chosen.life.spawn(_caught(work(chosen)))
            try:
                found, error = await asyncio.shield(task)
            except asyncio.CancelledError:
                if self._over:
                    raise
                continue
            if error is None:
                return found
            if isinstance(error, NotFound | InvalidRequest):
                raise error
            await asyncio.sleep(0.5)

    async def _submit(self, number: int) -> None:
        random = self.random
        seconds, code = random.choice((0.2, 1.0, 5.0, 20.0, 45.0)), random.choice((0, 0, 0, 0, 3))
        body = w.SubmitJobs(
            command=["work", str(seconds), str(code)],
            count=random.choice((1, 2, 5, 15)),
            pool=random.choice(("spot", "steady")),
            demand=DemandBody(cpu=random.choice((1, 2)), memory=random.choice(("1GiB", "3GiB"))),
            run_limit_s=30,
            retries=random.choice((0, 1)),
            restarts=3,
            priority=random.choice((0, 0, 5)),
            needs=[random.choice(self._made)] if self._made and random.random() < 0.2 else [],
            on_failure=random.choice(("fail", "run")),
        )
        made = await self.ask(lambda plane: plane.part(JobDesk).submit(body, WHO, f"key-{number}"))
        self._made.append(made.id)
        self.laws.submitted[made.id] = made.size

    async def _cancel(self) -> None:
        if self._made:
            name = self.random.choice(self._made)
            self.laws.cancelled.add(name)
            await self.ask(lambda plane: plane.part(JobDesk).cancel(name, WHO))

    async def _limit(self, limits: dict[str, Any]) -> None:
        self.note("limits", "ours", str(limits))
        body = w.ChangeAccount(**limits)
        await self.ask(lambda plane: plane.part(Accounts).change("ours", body, WHO))

    # Faults

    def _act(self, number: int) -> None:
        random = self.random
        (kind,) = random.choices([name for name, _ in _ACTS], [often for _, often in _ACTS])
        plane = random.choice(self.planes)
        living = [m for m in self.machines.values() if m.rented.gone_at is None]
        self.note(f"act.{kind}", plane.name, "")
        if kind == "submit":
            self.users.spawn(self._submit(number))
        elif kind == "cancel":
            self.users.spawn(self._cancel())
        elif kind == "kill":
            plane.kill()
        elif kind == "freeze" and plane.life is not None:
            life = plane.life
            life.freeze()
            self.later(random.uniform(5, 40), life.thaw)
        elif kind in ("die", "doubt") and plane.store is not None:
            troubles = plane.store.troubles
            if kind == "doubt":
                troubles.doubt += 1
                troubles.refuse += 4
            elif random.random() < 0.5:
                troubles.die_before = random.randrange(12)
            else:
                troubles.die_after = random.randrange(6)
        elif kind == "weather":
            self.cloud.weather = _storm(random)
        elif living:
            self._act_on(kind, random.choice(living))

    def _act_on(self, kind: str, machine: SimMachine) -> None:
        if kind == "kill_worker":
            machine.kill_worker()
            self.later(self.random.uniform(1, 50), machine.start)
        elif kind == "take":
            self.cloud.end(machine.rented)
        elif kind == "reclaim":
            machine.notice.given = True
            self.later(25.0, lambda: self.cloud.end(machine.rented))
        elif kind == "deaf":
            machine.link.lost = self.random.choice((0.3, 1.0))
            self.later(self.random.uniform(5, 60), lambda: setattr(machine.link, "lost", 0.0))

    # The course of the world

    async def run(self) -> None:
        """Begin, storm, and come to rest."""
        for plane in self.planes:
            plane.start()
        await self.users.spawn(self._begin())
        self.cloud.weather = _storm(self.random)
        end, number = asyncio.get_running_loop().time() + STORM_S, 0
        for _ in range(3):
            self.users.spawn(self._submit(number := number + 1))
        if self.laws.lowering:
            random = Random(f"lowering {self.seed}")
            self.users.spawn(lower_limits(self._limit, random, end))
        looked = 0.0
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(self.random.expovariate(0.35))
            self._act(number := number + 1)
            if asyncio.get_running_loop().time() - looked > LOOK_S:
                looked = asyncio.get_running_loop().time()
                self._look()
        await self._rest()

    async def _begin(self) -> None:
        account = w.CreateAccount(name="ours", provider="sim", **LIMITS)
        await self.ask(lambda plane: plane.part(Accounts).create(account, WHO))
        for body in (
            w.CreatePool(name="steady", provider="sim", account="ours", max_machines=4, warm=1,
                         idle_grace_s=20, types=["small"]),
            w.CreatePool(name="spot", provider="sim", account="ours", max_machines=5,
                         idle_grace_s=10, market="spot", on_demand_base=1, fit="first"),
        ):  # fmt: skip
            await self.ask(lambda plane, body=body: plane.part(Pools).create(body, WHO))  # type: ignore[misc]

    def _look(self) -> Books:
        books = self.database.ask(Books.read)
        self.check(lambda: self.laws.check(books))
        now = asyncio.get_running_loop().time()
        self.check(lambda: self.laws.check_money(list(self.cloud.rented.values()), books, now))
        if self._calm:
            self.check(lambda: self.laws.check_shed(books, now))
        if self._broken is not None:
            raise self._broken
        return books

    async def _rest(self) -> None:
        """End every fault; then all jobs end within a bound, and nothing is rented for nobody."""
        self.note("calm", "", "")
        self._calm = True
        self.cloud.weather = Weather()
        for plane in self.planes:
            if plane.store is not None:
                plane.store.troubles.die_before = plane.store.troubles.die_after = None
                plane.store.troubles.doubt = plane.store.troubles.refuse = 0
            if plane.life is not None:
                plane.life.thaw()
        for machine in self.machines.values():
            machine.link.lost = 0.0
        end, why = asyncio.get_running_loop().time() + CALM_S, "it was never looked at"
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(LOOK_S)
            why = self._unrest(self._look())
            if not why:
                return
        raise Broken(f"after {CALM_S:.0f} s without faults: {why}")

    def _unrest(self, books: Books) -> str:
        for row in books.jobs:
            if row["state"] not in FINAL:
                return f"{row['array']}.{row['idx']} is {row['state']} for ever"
        live = [row for row in books.machines.values() if row["ended_ms"] is None]
        if len(live) != 1 or live[0]["state"] != "ready" or live[0]["pool"] != "steady":
            return f"{[(row['pool'], row['state']) for row in live]} are kept, and one should be"
        paid = [each for each in self.cloud.rented.values() if each.gone_at is None]
        if len(paid) != 1:
            return f"{[each.cloud_id for each in paid]} are rented, and one should be"
        return ""

    def end(self) -> None:
        """Switch planes and machines off."""
        self._over = True
        for plane in self.planes:
            plane.kill()
        for machine in self.machines.values():
            machine.switch_off()
        for life in (self.users, self.cloud.life):
            life.end()

    def verdict(self, broken: str) -> JobVerdict:
        """Return the verdict on the world."""
        return JobVerdict(
            seed=self.seed,
            digest=self._digest.hexdigest(),
            seconds=asyncio.get_running_loop().time(),
            jobs=sum(self.laws.submitted.values()),
            rented=len(self.cloud.rented),
            faults=sum(n for kind, n in self.coverage.items() if kind.startswith("fault."))
            + sum(n for kind, n in self.coverage.items() if kind == "killed"),
            broken=broken,
            coverage=dict(self.coverage),
            tail=self.tail if broken else [],
        )


def _storm(random: Random) -> Weather:
    return Weather(
        fails=random.choice((0.0, 0.1, 0.4)),
        lost=random.choice((0.0, 0.1, 0.3)),
        twice=random.choice((0.0, 0.0, 0.3)),
        slow_s=random.choice((0.2, 2.0, 10.0)),
        stuck=random.choice((0.0, 0.0, 0.1)),
        late=random.random() < 0.6,
    )


async def _caught(work: Coroutine[Any, Any, Any]) -> tuple[Any, RoostError | None]:
    try:
        return await work, None
    except RoostError as error:
        return None, error


def run_job_world(seed: int, *, lowering: bool = False) -> JobVerdict:
    """Run the world of a seed, in another form where users lower limits on the way."""
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)  # type: ignore[arg-type]
    asyncio.set_event_loop(loop)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(prefix="roost-jobs-", dir=memory) as folder, services_log_nothing():
        try:
            return loop.run_until_complete(_run(seed, Path(folder), lowering))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _run(seed: int, folder: Path, lowering: bool) -> JobVerdict:
    world = JobWorld(seed, folder, lowering=lowering)
    broken = ""
    try:
        with hear_unhandled(world.unhandled):
            await world.run()
    except Broken as law:
        broken = str(law)
    world.end()
    verdict = world.verdict(broken)
    for _ in range(100):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            break
        for task in left:
            task.cancel()
        with suppress(Dead):
            await asyncio.sleep(0.01)
    await world.database.ledger.close()
    return verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run some worlds of jobs, print a line for each, and say whether every law held."""
    parser = argparse.ArgumentParser(prog="roost.sim.rented.jobworld", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--lowering", action="store_true", help="users lower limits on the way")
    options = parser.parse_args(arguments)
    broken = 0
    for seed in range(options.first, options.first + options.seeds):
        found = run_job_world(seed, lowering=options.lowering)
        broken += bool(found.broken)
        said = found.broken or "every law held"
        if found.broken:
            sys.stdout.write("\n".join([*found.tail[-60:], ""]))
        sys.stdout.write(
            f"world {seed}: {found.jobs} jobs, {found.rented} machines rented, {found.faults} "
            f"faults, {found.seconds:.0f} s: {said}\n"
        )
        sys.stdout.flush()
    return 70 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
