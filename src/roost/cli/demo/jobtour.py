"""The tour of `roost demo --jobs`: a sweep on a pool that grows, loses a worker, and empties.

What is swept is the logistic map, x -> r x (1 - x): for each rate r, how fast two neighbours part.
Below zero they meet (calm), above zero they part for ever (chaos); at r = 4 it is known to be ln 2,
which is what the demo's figures are held against.
"""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text

from roost.app.demojobs import SILENT_S, JobStage
from roost.base.clock import Clock
from roost.base.errors import InvariantBroken
from roost.cli.demo.runner import Screen, Try, limit, typed, typed_command
from roost.cli.demo.served import ServedTour
from roost.cli.show import jobs, tables
from roost.wire.jobs import CreatePool, SubmitJobs

if TYPE_CHECKING:
    from roost.wire.bodies import EventBody
    from roost.wire.jobs import JobBody, MachineBody

POOL, MACHINES, IDLE_S = "sweep", 3, 2
#: The longest job comes first, and is the one whose worker is killed.
LONGEST, LONG_STEPS, STEPS = 4.0, 12_000_000, 1_000_000
RATES = (LONGEST, 2.8, 3.0, 3.2, 3.4, 3.5, 3.56, 3.6, 3.7, 3.74, 3.8, 3.83, 3.86, 3.9, 3.95, 3.99)
PROGRAM = """
import math, sys
rate, steps = float(sys.argv[1]), int(sys.argv[2])
x, total = 0.3, 0.0
for _ in range(1000):
    x = rate * x * (1 - x)
for _ in range(steps):
    x = rate * x * (1 - x)
    total += math.log(abs(rate * (1 - 2 * x)) or 1e-300)
print(total / steps)
"""
#: Limits of waits, in seconds: many times what they take, for machines that are busy.
SOON_S, SWEEP_S = 90.0, 240.0
_POLL_S = 0.1


class JobTour(ServedTour[JobStage]):
    """The tour of a parameter sweep on rented machines."""

    about: ClassVar[tuple[str, ...]] = (
        "roost demo: a parameter sweep on workers that are rented for it from this machine, one of",
        "them killed on the way.",
    )
    first_try: ClassVar[str] = "pool list"

    def __init__(self, clock: Clock, screen: Screen, stage: JobStage) -> None:
        super().__init__(clock, screen, stage)
        self.steps = (self.pool, self.sweep, self.kill, self.again, self.results, self.empty)
        self._sweep, self._begun = "", 0.0

    @classmethod
    async def prepare(cls) -> type[JobStage]:
        """Return the class of the stage."""
        return JobStage

    def tries(self) -> Sequence[Try]:
        """Return what can be tried while it serves."""
        roost = typed_command()
        return (
            (f"{roost} job submit --pool {POOL} --wait -- echo hello", "one job"),
            (f"{roost} job list", "what was submitted"),
            (f"{roost} job show {self._sweep}.0", "the job that was tried again"),
            (f"{roost} pool machines {POOL} --all", "every machine, and what it cost"),
            (f"{roost} job stats", "jobs, machine hours and money"),
        )

    # Steps

    async def pool(self) -> None:
        """Make a pool that has no machine."""
        self._screen.heading(
            "A pool without machines",
            f"It may rent {MACHINES} workers of this machine, and gives each back when it was idle "
            f"for {IDLE_S} s.",
        )
        self._screen.lines(
            typed(
                f"{typed_command()} pool create {POOL} --provider local --type local-1 "
                f"--max {MACHINES} --idle {IDLE_S}s"
            ),
            "",
        )
        made = await self._client.create_pool(
            CreatePool(
                name=POOL,
                provider="local",
                types=["local-1"],
                max_machines=MACHINES,
                idle_grace_s=IDLE_S,
            )
        )
        self._screen.show(jobs.pools([made]))

    async def sweep(self) -> None:
        """Submit the sweep, and show the pool grow until the longest job runs beside others."""
        self._screen.heading(
            f"A sweep: {len(RATES)} jobs in one call",
            "For each rate r of the map x -> r x (1 - x): do neighbours meet, or part for ever?",
        )
        self._screen.lines(
            typed(
                f"{typed_command()} job array rates.jsonl --pool {POOL} -- "
                "python3 map.py '{item.rate}' '{item.steps}'"
            ),
            "",
        )
        items = [
            {"rate": rate, "steps": LONG_STEPS if rate == LONGEST else STEPS} for rate in RATES
        ]
        self._begun = self._clock.monotonic()
        made = await self._client.submit_jobs(
            SubmitJobs(
                name="sweep",
                pool=POOL,
                items=items,
                command=[sys.executable, "-c", PROGRAM, "{item.rate}", "{item.steps}"],
            )
        )
        self._sweep = made.id
        ready: set[str] = set()

        def grown(event: "EventBody") -> bool:
            self._tell(event)
            if event.kind == "machine.changed" and "-> ready" in event.note:
                ready.add(event.subject)
            return len(ready) == MACHINES

        await self._tape.watch(grown, within_s=SOON_S, what=f"{MACHINES} workers")
        self._screen.lines(f"The pool has grown to {MACHINES} machines.")
        self.summary["grown"] = len(ready)

    async def kill(self) -> None:
        """Kill the worker of the longest job while that runs."""
        self._screen.heading(
            "A worker is killed",
            f"The one with the longest job, {self._sweep}.0. Nobody tells the control plane.",
        )
        async with limit(SOON_S, "the longest job to run"):
            while True:
                job = await self._client.get_job(f"{self._sweep}.0")
                if job.state == "completed":
                    raise InvariantBroken("the longest job ended before its worker was killed")
                if job.state == "running":
                    break
                await self._clock.sleep(_POLL_S)
        assert job.machine is not None
        pid = self._stage.kill_worker(job.machine)
        done = (await self._client.get_array(self._sweep)).jobs.completed
        self._screen.lines(
            typed(f"kill -9 {pid}"),
            f"{self._after()}  {job.machine} is dead; {done} of {len(RATES)} jobs are done.",
        )
        self.summary["killed"] = {"machine": job.machine, "job": job.id, "attempt": job.attempt}

    async def again(self) -> None:
        """Show the rest of the sweep: the worker is missed, and its job tried again."""
        self._screen.heading(
            "Its job is tried again",
            f"A worker that is silent for {SILENT_S} s is given back (usually a minute); its job "
            "waits again, and another machine takes it.",
        )

        def over(event: "EventBody") -> bool:
            self._tell(event)
            return event.kind == "jobs.finished" and event.subject == f"job/{self._sweep}"

        await self._tape.watch(over, within_s=SWEEP_S, what="the end of the sweep")
        took_s = self._clock.monotonic() - self._begun
        found = await self._client.get_job(f"{self._sweep}.0")
        if found.state != "completed" or found.attempt < 2 or not found.attempts:
            raise InvariantBroken(f"{found.id} is {found.state} after {found.attempt} attempts")
        self._screen.lines(
            f"All {len(RATES)} jobs have ended, {took_s:.0f} s after they were sent."
        )
        self._screen.show(jobs.job(found))
        self.summary["again"] = {
            "attempts": found.attempt,
            "machine": found.machine,
            "why": found.attempts[0].reason,
        }

    async def results(self) -> None:
        """Gather what the jobs wrote, and show it with what each cost."""
        self._screen.heading(
            "Results, each of them once",
            "What the jobs wrote, gathered: how fast neighbours part, and what it cost to know.",
        )
        found = (await self._client.list_jobs(self._sweep, limit=1000)).jobs
        told = {job.item["rate"]: float(await self._written(job)) for job in found}
        listed = tables.table(
            "rate", "neighbours part by", "", "attempt", "ran", "cost",
            right=("rate", "neighbours part by", "attempt", "ran", "cost"),
        )  # fmt: skip
        for job in sorted(found, key=lambda job: float(job.item["rate"])):
            value = told[job.item["rate"]]
            listed.add_row(
                f"{job.item['rate']:.2f}", f"{value:+.4f}",
                Text("chaos", "red") if value > 0 else Text("calm", "green"), str(job.attempt),
                f"{job.run_ms / 1000:.1f} s", _money(job.cost_micro),
            )  # fmt: skip
        self._screen.show(listed)
        if sorted(told) != sorted(RATES) or len(found) != len(RATES):
            raise InvariantBroken(f"{len(found)} results of {len(RATES)} rates")
        if abs(told[LONGEST] - math.log(2)) > 0.01:
            raise InvariantBroken(f"at rate 4 neighbours part by ln 2, not by {told[LONGEST]}")
        chaotic = sum(value > 0 for value in told.values())
        self._screen.lines(
            f"{chaotic} of {len(told)} rates are chaotic. At rate 4 the answer is known: "
            f"{math.log(2):.4f}."
        )
        self.summary["results"] = {f"{rate:g}": value for rate, value in sorted(told.items())}

    async def _written(self, job: "JobBody") -> str:
        return (await self._client.read_job_log(job.id)).data.decode()

    async def empty(self) -> None:
        """Show the pool go back to nothing, and what all of it cost."""
        self._screen.heading(
            "Back to nothing, and the bill", f"Machines go back after {IDLE_S} s without a job."
        )

        async def none_left() -> bool:
            return not (await self._client.get_pool(POOL)).machines

        await self._tape.until(none_left, within_s=SOON_S, what="an empty pool")
        machines = (await self._client.list_machines(POOL, ended=True, limit=100)).machines
        self._screen.show(_bill(machines))
        stats = await self._client.job_stats(pool=POOL)
        self._screen.lines(
            "",
            f"{stats.jobs.completed} jobs cost {_money(stats.cost_micro)}, their machines "
            f"{_money(stats.rent_micro)} ({stats.machine_hours:.3f} machine hours).",
            f"The pool has {stats.running_machines} machines and costs nothing now.",
        )
        self.summary["bill"] = {
            "machines": len(machines),
            "left": stats.running_machines,
            "completed": stats.jobs.completed,
            "jobs_micro": stats.cost_micro,
            "rent_micro": stats.rent_micro,
        }

    # Telling

    def _after(self) -> str:
        return f"{self._clock.monotonic() - self._begun:6.1f} s"

    def _tell(self, event: "EventBody") -> None:
        """Show what happens to machines and to the sweep."""
        if event.kind == "machine.changed":
            name = event.subject.removeprefix("machine/")
            self._screen.lines(f"{self._after()}  {name}  {event.note}")


def _money(micro: int) -> str:
    """Return an amount of money to the last millionth: this sweep costs hardly more."""
    return f"{micro / 1e6:.6f}"


def _bill(machines: "Sequence[MachineBody]") -> Table:
    listed = tables.table("machine", "state", "an hour", "cost", "why", right=("an hour", "cost"))
    for each in sorted(machines, key=lambda machine: machine.created_at):
        listed.add_row(
            each.id, each.state, _money(each.price_micro), _money(each.cost_micro),
            Text(each.reason),
        )  # fmt: skip
    return listed
