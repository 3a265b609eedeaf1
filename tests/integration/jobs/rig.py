"""Jobs on a real database with a cloud that pretends: nothing moves unless the test says so.

`settle` lets planner, renting and workers go on until nothing changes; `check` states every law
again from the rows and from what the cloud has, and runs after every settling.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Connection, func, select

from roost.base.ids import IdSource
from roost.jobs.accounts import Accounts
from roost.jobs.compose import JobSettings, job_parts
from roost.jobs.desk import JobDesk
from roost.jobs.detecting import Detecting, Patience
from roost.jobs.door import WorkerDoor
from roost.jobs.kinds import JobKinds
from roost.jobs.planner import Planner
from roost.jobs.pools import Pools
from roost.jobs.renting import Renting
from roost.jobs.rows import type_of
from roost.ledger.schema.jobtables import (
    COUNTS,
    accounts,
    job_arrays,
    jobs,
    machines,
    pools,
)
from roost.ledger.schema.tables import projects
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Access, Principal
from roost.parts.sealing import Seal
from roost.parts.sharing import Shared
from roost.parts.singleton import HOLDER, Leases
from roost.testing.clock import HandClock
from roost.testing.jobs import Ending, ModelCloud, ModelClouds, ModelWorker, completes
from roost.wire import jobs as w
from tests.databases import opened

OPERATOR = Principal("olga", "operator")
MEMBER = Principal("mia", "member", project="default")
#: Rounds after which everything that can happen by itself must have happened.
MOST_ROUNDS = 60


class Process:
    """The parts of jobs as one process has them."""

    def __init__(
        self,
        store: Store,
        clock: HandClock,
        clouds: ModelClouds,
        name: str,
        seal: Seal | None = None,
        *,
        outputs_are_shared: bool = True,
        outputs: Path | None = None,
    ) -> None:
        ids = IdSource(clock.wall_ms, Random(name))
        self.store, self.clock = store, clock
        self.leases = Leases(store, clock, f"{HOLDER}-{name}", length_s=15.0)
        self.access = Access(store, clock, ids)
        shared = Shared(store, clock, ids, self.access, self.leases, seal or Seal(), lambda: True)
        settings = JobSettings(
            providers=clouds,
            server=lambda: ("http://127.0.0.1:1", ""),
            outputs_to="file:///outputs" if outputs is None else outputs.as_uri(),
            outputs=outputs,
            outputs_are_shared=outputs_are_shared,
            patience=Patience(),
        )
        self.parts = job_parts(settings)(shared)
        self.desk, self.kinds, self.pools, self.accounts = self._of(
            JobDesk, JobKinds, Pools, Accounts
        )
        self.door, self.planner, self.renting, self.detecting = self._of(
            WorkerDoor, Planner, Renting, Detecting
        )

    def _of(self, *kinds: type[Any]) -> list[Any]:
        return [next(part for part in self.parts if isinstance(part, kind)) for kind in kinds]


class Rig:
    """One process with a cloud and the workers on its machines."""

    def __init__(
        self, store: Store, clock: HandClock, cloud: ModelCloud, seal: Seal | None
    ) -> None:
        self.store, self.clock, self.cloud = store, clock, cloud
        self.clouds = ModelClouds(cloud)
        self.seal = seal
        self.process = Process(store, clock, self.clouds, "one", seal)
        self.workers: dict[str, ModelWorker] = {}
        self.ending: Ending = completes
        self.dead: set[str] = set()  # machines whose worker never speaks again
        self.mute = False  # new machines come, and no worker of theirs ever speaks
        self.lowered: set[str] = set()  # pools and accounts: what leaves may be beyond their limits
        self.reserve = 0.0  # of its memory, what a new machine keeps for itself
        #: In its place, what new machines keep of their memory and of their cores, in turn.
        self.forms: Iterator[tuple[float, float]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.process, name)

    # What users do

    async def pool(self, name: str = "default", **given: Any) -> w.PoolBody:
        body = w.CreatePool(name=name, provider="model", **({"max_machines": 4} | given))
        return await self.process.pools.create(body, OPERATOR)

    async def submit(self, *command: str, who: Principal = OPERATOR, **given: Any) -> w.ArrayDetail:
        body = w.SubmitJobs(command=list(command) or ["true"], **given)
        return await self.process.desk.submit(body, who, None)

    async def job(self, name: str) -> w.JobDetail:
        return await self.process.desk.get(name, OPERATOR)

    async def array(self, name: str) -> w.ArrayDetail:
        return await self.process.desk.get_array(name, w.AwaitArray(), OPERATOR)

    # What happens by itself

    async def plan(self) -> None:
        if self.process.planner.singleton.token is None:
            await self.process.leases.tick()
        await self.process.planner.plan_all()

    async def rent(self) -> None:
        await self.process.renting.work()
        for token in [] if self.mute else self.cloud.running:
            if token not in self.workers and token not in self.dead | self.cloud.untracked:
                launch, _ = self.cloud.rented[token]
                memory, cpu = next(self.forms) if self.forms else (self.reserve, 0.0)
                worker = ModelWorker(self.process.door, launch, reserve=memory, cpu_reserve=cpu)
                self.workers[token] = worker
                await self.workers[token].join()

    async def talk(self, *, finish: bool = True) -> None:
        for token, worker in list(self.workers.items()):
            if token in self.dead or token not in self.cloud.running:
                continue
            if finish:
                worker.finish(self.ending)
            await worker.poll()

    async def round(self, *, finish: bool = True) -> None:
        await self.plan()
        await self.rent()
        await self.talk(finish=finish)

    async def settle(self, *, finish: bool = True) -> None:
        """Let everybody act until nothing changes."""
        before: object = None
        for _ in range(MOST_ROUNDS):
            await self.round(finish=finish)
            now = await self.picture()
            if now == before:
                break
            before = now
        else:
            raise AssertionError("it never came to rest")
        await self.check()

    async def pass_by(self, seconds: float, *, finish: bool = True, step: float = 5.0) -> None:
        """Let time pass with polls, plans and looks of the detector."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.move(min(step, end - self.clock.now))
            await self.process.leases.tick()
            await self.talk(finish=finish)
            await self.process.detecting.look()
            await self.plan()
            await self.rent()
        await self.check()

    async def picture(self) -> object:
        def question(connection: Connection) -> object:
            states = select(jobs.c.state, func.count()).group_by(jobs.c.state)
            rented = select(machines.c.id, machines.c.state, machines.c.attempts_committed)
            return (
                sorted(tuple(row) for row in connection.execute(states)),
                sorted(tuple(row) for row in connection.execute(rented)),
                [len(worker.attempts) + len(worker.finished) for worker in self.workers.values()],
            )

        return await self.store.read(question)

    # Laws

    async def rows(self, query: Any) -> list[dict[str, Any]]:
        return await self.store.read(lambda c: [dict(row) for row in c.execute(query).mappings()])

    async def check(self) -> None:
        """State every law again: sums are those of their rows, limits hold, nothing leaks."""
        arrays = {row["id"]: row for row in await self.rows(select(job_arrays))}
        all_jobs = await self.rows(select(jobs))
        rented = {row["id"]: row for row in await self.rows(select(machines))}
        for name, array in arrays.items():
            mine = [row for row in all_jobs if row["array"] == name]
            assert len(mine) == array["size"], f"{name} has lost jobs"
            words = {"scheduled": "live", "running": "live", "cancelling": "live"}
            found = dict.fromkeys(COUNTS, 0)
            for row in mine:
                found[words.get(row["state"], row["state"])] += 1
            assert found == {each: array[each] for each in COUNTS}, name
            over = found["waiting"] + found["queued"] + found["live"] == 0
            assert over == (array["finished_ms"] is not None), name
        for name, machine in rented.items():
            mine = [row for row in all_jobs if row["machine"] == name]
            assert machine["attempts_committed"] == len(mine), name
            cpu = sum(arrays[row["array"]]["cpu_milli"] for row in mine)
            assert machine["cpu_milli_committed"] == cpu, name
            if machine["ended_ms"] is not None:
                assert not mine, f"{name} is gone and has jobs"
        for row in all_jobs:
            assigned = row["state"] in ("scheduled", "running", "cancelling")
            assert assigned == (row["machine"] is not None), row
        await self._check_limits(rented)
        self._check_runs()

    async def _check_limits(self, rented: dict[str, dict[str, Any]]) -> None:
        live = [row for row in rented.values() if row["ended_ms"] is None]
        for table, column in ((pools, "pool"), (accounts, "account")):
            for row in await self.rows(select(table)):
                mine = [each for each in live if each[column] == row["name"]]
                names = ("machines", "cpu_milli", "micro")
                used = {name: sum(_charged(each)[name] for each in mine) for name in names}
                for name, found in used.items():
                    assert row[f"{name}_used"] == found, (row["name"], name)
                    most = row[f"max_{name}"]
                    if row["name"] in self.lowered:
                        found -= sum(_charged(each)[name] for each in mine if _leaves(each))
                    assert most is None or found <= most, (row["name"], name, found, most)
        for token in self.cloud.running:
            row = rented.get(token)
            known = row is not None and row["ended_ms"] is None
            assert known or token in self.cloud.untracked, f"{token} is rented and nobody knows"

    def _check_runs(self) -> None:
        for worker in self.workers.values():
            assert len(set(worker.started)) == len(worker.started), "an attempt was begun twice"


def _charged(row: dict[str, Any]) -> dict[str, int]:
    cpu = type_of(row["type"]).cpu_milli
    return {"machines": 1, "cpu_milli": cpu, "micro": row["price_micro"]}


def _leaves(row: dict[str, Any]) -> bool:
    return row["state"] in ("draining", "returning")


def run(
    url: str,
    test: Callable[[Rig], Awaitable[None]],
    cloud: ModelCloud | None = None,
    seal: Seal | None = None,
) -> None:
    """Run a test on a database."""

    async def play() -> None:
        clock = HandClock()
        async with opened(url, clock) as store:
            await store.write(_default_project)
            await test(Rig(store, clock, cloud or ModelCloud(), seal))

    asyncio.run(play())


def _default_project(tx: Tx) -> None:
    for name in ("default", "other"):
        if tx.find(projects, name=name) is None:
            empty = {column.name: None for column in projects.columns}
            used = {n: 0 for n in empty if n.endswith("_used")}
            tx.insert(projects, {**empty, **used, "name": name})
