"""Mistakes of schedulers of jobs on rented machines, planted; a world of jobs must find every one.

Most are those of the list in the description of the Virtual machine scheduler's behaviour, by its
numbers; the docstring says what was done wrong, and the words before the colon are its name. Runs a
world with one of them: PYTHONHASHSEED=0 python -m tests.sim.jobmutants NAME SEED
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from roost.jobs import books, detecting, door, planner, rented, renting
from roost.jobs.ends import After, Tried
from roost.ledger.schema.jobtables import accounts, jobs, machines, pools
from roost.ledger.writes.transaction import Tx
from roost.parts.singleton import Singleton
from roost.sim.rented.jobworld import run_job_world

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> None:
    assert plant.__doc__
    MUTANTS[plant.__doc__.partition(":")[0]] = plant


@mutant
def _(patch: Patch) -> None:
    """absolute write: a plan writes what machines have promised as it read it (1)"""
    real = planner.Planner._commit

    def commit(self: Any, tx: Tx, pool: Any, plan: Any, demands: Any, surplus: Any) -> Any:
        found = real(self, tx, pool, plan, demands, surplus)
        for (machine, array), number in plan.assigned.items():
            read = next(r for r in self.read_rows if r["id"] == machine)
            cpu = read["cpu_milli_committed"] + number * demands[array].cpu_milli
            tx.connection.execute(
                update(machines).where(machines.c.id == machine).values(cpu_milli_committed=cpu)
            )
        return found

    one = planner.Planner._plan_one

    async def plan_one(self: Any, name: str, pool: Any, seen: Any) -> bool:
        self.read_rows = seen.machines.get(name, [])
        return await one(self, name, pool, seen)

    patch.setattr(planner.Planner, "_commit", commit)
    patch.setattr(planner.Planner, "_plan_one", plan_one)


@mutant
def _(patch: Patch) -> None:
    """no fence: a plan is committed by whoever made it, its token is not compared (2)"""
    patch.setattr(Singleton, "check", lambda self, tx: None)


@mutant
def _(patch: Patch) -> None:
    """half a funeral: of a machine that is gone only what ran is tried again (8)"""
    real = books.on_machine

    def running(tx: Tx, machine: str) -> list[dict[str, Any]]:
        return [row for row in real(tx, machine) if row["state"] == "running"]

    def lose(tx: Tx, machine: dict[str, Any], reason: Any, message: str) -> int:
        patch_books = books.on_machine
        books.on_machine = running
        try:
            return really(tx, machine, reason, message)
        finally:
            books.on_machine = patch_books

    really = books.lose_machine
    patch.setattr(detecting, "lose_machine", lose)
    patch.setattr(renting, "lose_machine", lose)


@mutant
def _(patch: Patch) -> None:
    """cancelling is final: what a machine says of a job that was told to end is dropped (9)"""
    real = door.end_attempts

    def end(tx: Tx, machine: Any, ended: Any, sums: Any) -> Any:
        kept = [(row, report) for row, report in ended if row["state"] != "cancelling"]
        return real(tx, machine, kept, sums)

    patch.setattr(door, "end_attempts", end)


@mutant
def _(patch: Patch) -> None:
    """freed twice: a report frees its room though it changed no row (10)"""
    real = door.WorkerDoor._record

    def record(self: Any, tx: Tx, machine: str, body: Any) -> Any:
        mine = {f"{r['array']}.{r['idx']}:{r['attempt']}" for r in books.on_machine(tx, machine)}
        late = sum(report.attempt not in mine for report in body.finished)
        if late:
            tx.connection.execute(
                update(machines)
                .where(machines.c.id == machine, machines.c.attempts_committed >= late)
                .values(attempts_committed=machines.c.attempts_committed - late)
            )
        return real(self, tx, machine, body)

    patch.setattr(door.WorkerDoor, "_record", record)


@mutant
def _(patch: Patch) -> None:
    """zombie: a job that was taken from a machine keeps its name (11)"""
    names = {
        "state": "queued", "queued_ms": books.bindparam("at"),
        "retries": jobs.c.retries + books.bindparam("more_retries"),
        "restarts": jobs.c.restarts + books.bindparam("more_restarts"),
        "not_before_ms": books.bindparam("wait_until"),
        "reason": books.bindparam("why"), "message": books.bindparam("said"),
        "cost_micro": jobs.c.cost_micro + books.bindparam("cost"),
    }  # fmt: skip
    patch.setattr(books, "_AGAIN", update(jobs).where(books._IDENTITY).values(names))


@mutant
def _(patch: Patch) -> None:
    """eager sweep: a machine that is being made counts as nobody's, at once (12)"""

    async def spare(self: Any, opened: Any, each: Any, row: Any, whose: str) -> None:
        if row is None or row["cloud_id"] != each.cloud_id:
            await opened.terminate(each.cloud_id)

    patch.setattr(detecting.Detecting, "_spare_or_return", spare)


@mutant
def _(patch: Patch) -> None:
    """no sweep: nobody looks what a provider has that no row knows (12)"""

    async def sweep(self: Any) -> None:
        return

    patch.setattr(detecting.Detecting, "_sweep", sweep)


@mutant
def _(patch: Patch) -> None:
    """answered is done: a machine counts as returned before its provider was asked (13)"""

    async def give_back(self: Any, row: dict[str, Any]) -> None:
        await self._store.write(lambda tx: self._returned(tx, row["id"]))

    patch.setattr(renting.Renting, "_give_back", give_back)


@mutant
def _(patch: Patch) -> None:
    """no limit: a machine is wanted without comparing what its pool and account may have (15)"""

    def charge(table: Any) -> Any:
        values = {
            f"{n}_used": table.c[f"{n}_used"] + rented.bindparam(f"more_{n}") for n in rented.RENTED
        }
        return update(table).where(table.c.name == rented.bindparam("who")).values(values)

    patch.setattr(rented, "_CHARGE", {"pool": charge(pools), "account": charge(accounts)})
    patch.setattr(planner, "_room", lambda pool, account: planner.MixLimits())


@mutant
def _(patch: Patch) -> None:
    """whose fault: what a machine did wrong counts as the job's own failure"""

    def after(tried: Tried, outcome: str, reason: str) -> After:
        if tried.state == "cancelling":
            return After("failed" if reason == "run_limit" else "cancelled")
        return After("completed" if outcome == "completed" else "failed")

    patch.setattr(books, "after_attempt", after)


@mutant
def _(patch: Patch) -> None:
    """queueing counts: the time limit of a job begins when it is submitted"""

    def beyond(connection: Any, now_ms: int) -> list[tuple[str, int, str]]:
        rows = connection.execute(
            jobs.select().where(jobs.c.state == "running", jobs.c.queued_ms < now_ms - 30_000)
        ).mappings()
        return [(row["array"], row["idx"], row["machine"]) for row in rows]

    patch.setattr(detecting, "_beyond_run", beyond)


@mutant
def _(patch: Patch) -> None:
    """no drain: a limit is compared where a machine is wanted, and not when it is lowered"""
    patch.setattr(planner, "shed_machines", lambda tx: [])


#: Mistakes that only a world in which users lower limits can find.
LOWERING = {"no drain"}


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as planted:
        MUTANTS[sys.argv[1]](planted)
        found = run_job_world(int(sys.argv[2]), lowering=sys.argv[1] in LOWERING)
        sys.stdout.write(found.broken)
