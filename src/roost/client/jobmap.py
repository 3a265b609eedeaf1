"""`client.jobs`: jobs as a function over items, for code that waits.

    for done in client.jobs.map(["python", "sim.py", "{item}"], range(100)):
        print(done.index, done.exit_code, done.stdout)

The items become one array; results come as the jobs end, in the order of the items unless asked
otherwise. Leaving the loop early cancels what has not ended.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roost.wire import jobs as w

if TYPE_CHECKING:
    from roost.client.synchronous import Client

_PAGE = 1000
_WAIT_S = 10.0
#: Bytes of an output that one call asks for.
_PIECE = 1024 * 1024
_ENDED = ("completed", "failed", "cancelled", "lost")


@dataclass(frozen=True, slots=True)
class Done:
    """A job that has ended: how, and what it wrote."""

    index: int
    item: Any
    state: str
    exit_code: int | None
    reason: str
    stdout: str
    stderr: str
    run_ms: int

    @property
    def ok(self) -> bool:
        """Say whether it has completed."""
        return self.state == "completed"


class Jobs:
    """Jobs of one client."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def map(
        self,
        command: Sequence[str],
        items: Iterable[Any],
        *,
        ordered: bool = True,
        logs: bool = True,
        **given: Any,
    ) -> Iterator[Done]:
        """Run a command for each item and yield how each ended; `given` are fields of the body."""
        wanted = list(items)
        if not wanted:
            return
        body = w.SubmitJobs(command=list(command), items=wanted, **given)
        array = self._client.submit_jobs(body)
        over = False
        try:
            for job in self._ended(array.id, len(wanted), ordered=ordered):
                yield self._done(job, logs=logs)
            over = True
        finally:
            if not over:
                self._client.cancel_jobs(array.id)

    def _ended(self, array: str, size: int, *, ordered: bool) -> Iterator[w.JobBody]:
        """Yield the jobs of an array as they end; looks again after each wait."""
        told: set[int] = set()
        first = 0  # every job before it has been told
        while len(told) < size:
            after = str(first - 1) if first else None
            while True:
                page = self._client.list_jobs(array, limit=_PAGE, after=after)
                for job in page.jobs:
                    if job.state not in _ENDED:
                        if ordered:
                            break
                        continue
                    if job.index not in told:
                        told.add(job.index)
                        yield job
                else:
                    after = page.next
                    if after is not None:
                        continue
                break
            while first in told:
                first += 1
            if len(told) < size:
                self._client.get_array(array, wait_s=min(_WAIT_S, 0.2 + len(told) / 500))

    def _done(self, job: w.JobBody, *, logs: bool) -> Done:
        wrote = {"stdout": "", "stderr": ""}
        if logs and job.attempt:
            for stream in wrote:
                wrote[stream] = self.log(job.id, stream=stream)
        return Done(
            job.index, job.item, job.state, job.exit_code, job.reason, wrote["stdout"],
            wrote["stderr"], job.run_ms,
        )  # fmt: skip

    def log(self, job: str, *, stream: str = "stdout") -> str:
        """Return all that a job has written so far."""
        data, start = b"", 0
        while True:
            piece = self._client.read_job_log(job, stream=stream, start=start)
            data += piece.data
            if not piece.data:
                return data.decode(errors="replace")
            start = piece.next

    def output(self, job: str, name: str) -> Iterator[bytes]:
        """Yield a file that a job has kept in the server's own store, piece by piece."""
        start = 0
        while True:
            piece = self._client.read_job_output(job, name=name, start=start, limit=_PIECE)
            if piece.data:
                yield piece.data
            if piece.ended:
                return
            start = piece.next
