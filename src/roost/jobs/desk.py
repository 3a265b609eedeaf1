"""The desk of jobs: what users ask and tell over HTTP; each verb is in a file of its own."""

from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import TooManyRequests
from roost.jobs.bell import LOOK_S, Bell
from roost.jobs.books import cancel_jobs
from roost.jobs.explaining import explain
from roost.jobs.fetching import Fetching
from roost.jobs.reading import (
    array_detail,
    array_page,
    array_row,
    job_detail,
    job_page,
    job_row,
    read_log,
)
from roost.jobs.rows import parse_job, pool_of
from roost.jobs.stats import read_stats
from roost.jobs.submitting import Submitting
from roost.ledger.schema.jobtables import pools
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.ledger.writes.transaction import Tx
from roost.model.job import MachineType, Pool
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import jobs as w

#: Requests of one caller that wait for jobs at once; each reads the ledger four times a second.
MOST_WAITING = 256


class JobDesk(Part):
    """Jobs as users see them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        submitting: Submitting,
        bell: Bell,
        planning: Callable[[], None],
        offers: Callable[[Pool], Sequence[MachineType]],
        fetching: Fetching,
    ) -> None:
        self._fetching = fetching
        self._waiting = Counter[str]()  # requests that wait for the end of an array, by caller
        self._store, self._clock, self._submitting = store, clock, submitting
        self._bell, self._planning, self._offers = bell, planning, offers

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        # fmt: off
        return (
            Route(method="POST", path="/api/v1/jobs", noun="jobs", verb="submit",
                  call=lambda call: self.submit(call.body, call.who, call.key),
                  roles=OPERATOR | MEMBER, summary="Submit a job, or an array of thousands",
                  body=w.SubmitJobs, reply=w.ArrayDetail, statuses=(201,),
                  errors=("conflict", "not_found"), keyed=True, makes=("job", "id")),
            Route(method="GET", path="/api/v1/jobs", noun="jobs", verb="list_jobs",
                  call=lambda call: self.list_jobs(call.query, call.who),
                  roles=VIEWER | MEMBER, summary="List the jobs of an array",
                  query=w.ListJobs, reply=w.JobPage, errors=("not_found",)),
            Route(method="GET", path="/api/v1/job-arrays", noun="jobs", verb="list_arrays",
                  call=lambda call: self.list_arrays(call.query, call.who),
                  roles=VIEWER | MEMBER, summary="List what was submitted, the newest first",
                  query=w.ListArrays, reply=w.ArrayPage),
            Route(method="GET", path="/api/v1/job-arrays/{job}", noun="jobs", verb="get_array",
                  call=lambda call: self.get_array(call.path["job"], call.query, call.who),
                  roles=VIEWER | MEMBER, query=w.AwaitArray, reply=w.ArrayDetail,
                  summary="Show what was submitted in one call, or wait for its end"),
            Route(method="GET", path="/api/v1/job-stats", noun="jobs", verb="stats",
                  call=lambda call: self.stats(call.query, call.who), roles=VIEWER | MEMBER,
                  summary="Count jobs, machine hours and money", query=w.AskStats,
                  reply=w.StatsBody),
            Route(method="GET", path="/api/v1/jobs/{job}", noun="jobs", verb="get",
                  call=lambda call: self.get(call.path["job"], call.who),
                  roles=VIEWER | MEMBER, summary="Show a job and its attempts",
                  reply=w.JobDetail),
            Route(method="POST", path="/api/v1/jobs/{job}/cancel", noun="jobs", verb="cancel",
                  call=lambda call: self.cancel(call.path["job"], call.who),
                  roles=OPERATOR | MEMBER, summary="Cancel a job, or all jobs of an array",
                  reply=w.CancelledBody, errors=CHANGING),
            Route(method="GET", path="/api/v1/jobs/{job}/logs", noun="jobs", verb="logs",
                  call=lambda call: self.logs(call.path["job"], call.query, call.who),
                  roles=VIEWER | MEMBER, summary="Read what a job has written",
                  query=w.ReadLogs, reply=w.LogBody),
            Route(method="GET", path="/api/v1/jobs/{job}/outputs", noun="jobs", verb="output",
                  call=lambda call: self.output(call.path["job"], call.query, call.who),
                  roles=VIEWER | MEMBER, summary="Read a file that a job has kept",
                  query=w.ReadOutput, reply=w.OutputPiece),
            Route(method="GET", path="/api/v1/jobs/{job}/explain", noun="jobs", verb="explain",
                  call=lambda call: self.explain(call.path["job"], call.who),
                  roles=VIEWER | MEMBER, summary="Say why a job is not running",
                  reply=w.ExplainBody),
        )
        # fmt: on

    async def submit(self, body: w.SubmitJobs, who: Principal, key: str | None) -> w.ArrayDetail:
        """Submit jobs and wake the planner."""
        answer = await self._submitting.submit(body, who, key)
        self._planning()
        return answer

    async def list_arrays(self, asked: w.ListArrays, who: Principal) -> w.ArrayPage:
        """Return what was submitted, the newest first."""
        return await self._store.read(lambda c: array_page(c, asked, who))

    async def list_jobs(self, asked: w.ListJobs, who: Principal) -> w.JobPage:
        """Return the jobs of an array."""
        return await self._store.read(lambda c: job_page(c, asked, who))

    async def get_array(self, name: str, asked: w.AwaitArray, who: Principal) -> w.ArrayDetail:
        """Return an array; with `wait_s` not before it has ended, or so long."""
        if asked.wait_s == 0:
            return await self._store.read(lambda c: array_detail(c, name, who))
        if self._waiting[who.name] >= MOST_WAITING:
            raise TooManyRequests(
                f"{MOST_WAITING} requests of this caller wait for jobs", retry_after_s=1
            )
        self._waiting[who.name] += 1
        try:
            return await self._wait_for_array(name, asked.wait_s, who)
        finally:
            self._waiting[who.name] -= 1
            if not self._waiting[who.name]:
                del self._waiting[who.name]

    async def _wait_for_array(self, name: str, wait_s: float, who: Principal) -> w.ArrayDetail:
        until = self._clock.monotonic() + wait_s
        while True:
            found = await self._store.read(lambda c: array_detail(c, name, who))
            left = until - self._clock.monotonic()
            if found.finished_at is not None or left <= 0:
                return found
            await self._bell.wait(f"array/{found.id}", min(left, LOOK_S / 2))

    async def get(self, name: str, who: Principal) -> w.JobDetail:
        """Return a job."""
        return await self._store.read(lambda c: job_detail(c, name, who))

    async def cancel(self, name: str, who: Principal) -> w.CancelledBody:
        """Cancel a job or an array; what runs is told to end."""

        def change(tx: Tx) -> tuple[w.CancelledBody, list[str]]:
            array, index = parse_job(name)
            own = array_row(tx.connection, array, who)
            if index is not None:
                job_row(tx.connection, name, who)
            now, later, told = cancel_jobs(tx, array, index)
            if now + later:
                note = f"{now} cancelled, {later} told to end"
                tx.event("jobs.cancelled", f"job/{name}", {}, project=own["project"], note=note)
            return w.CancelledBody(cancelled=now, cancelling=later), told

        answer, told = await self._store.write(change, who.name)
        self._bell.ring(f"machine/{machine}" for machine in told)
        self._planning()
        return answer

    async def logs(self, name: str, asked: w.ReadLogs, who: Principal) -> w.LogBody:
        """Return a piece of a log."""
        return await self._store.read(lambda c: read_log(c, name, asked, who))

    async def output(self, name: str, asked: w.ReadOutput, who: Principal) -> w.OutputPiece:
        """Return a piece of a file that a job has kept."""
        return await self._fetching.read(name, asked, who)

    async def explain(self, name: str, who: Principal) -> w.ExplainBody:
        """Say why a job is not running."""
        now = self._clock.wall_ms()

        def question(connection: Connection) -> w.ExplainBody:
            row, own = job_row(connection, name, who)
            pool = find_row(connection, pools, {"name": own["pool"]})
            types = () if pool is None else self._offers(pool_of(pool["spec"]))
            return explain(connection, row, own, now, types)

        return await self._store.read(question)

    async def stats(self, asked: w.AskStats, who: Principal) -> w.StatsBody:
        """Count jobs, machine hours and money."""
        now = self._clock.wall_ms()
        return await self._store.read(lambda c: read_stats(c, asked, who, now))
