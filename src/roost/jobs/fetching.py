"""Outputs fetched through the server: pieces of files in its own store, and in no other.

    <folder of outputs>/<project>/<attempt>/<name>   where a worker of this machine has put them

Names and addresses in a job's row are its worker's words. So a file is looked for where this server
told the worker to put it, from what the server itself knows of the job; the address only says
whether it is there. It is opened through no link: what a link in the store points at was not kept.
"""

import asyncio
import errno
import os
import stat
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from roost.base.errors import NotFound
from roost.base.nolinks import open_below
from roost.jobs.books import job_name
from roost.jobs.reading import job_row, kept_outputs
from roost.jobs.rows import shown_name, spec_of
from roost.ledger.store import Store
from roost.model.job import attempt_id
from roost.parts.access import Principal
from roost.wire import jobs as w


class Fetching:
    """Reads what jobs have kept; `outputs` is the folder of this server's own store, if any."""

    def __init__(self, store: Store, outputs: Path | None) -> None:
        self._store, self._outputs = store, outputs

    async def read(self, job: str, asked: w.ReadOutput, who: Principal) -> w.OutputPiece:
        """Return a piece of an output of a job."""
        row, own = await self._store.read(lambda c: job_row(c, job, who))
        asks_for = {each.name for each in spec_of(own["spec"]).outputs}
        kept = next((each for each in kept_outputs(row) if each.name == asked.name), None)
        if kept is None or asked.name not in asks_for:
            raise NotFound(
                f"job {job!r} has kept no {asked.name!r}",
                hint=f"Maybe see what it has: roost job show {job}.",
                job=job,
            )
        attempt = attempt_id(job_name(row["array"], row["idx"]), row["attempt"])
        at = f"{own['project']}/{attempt}"
        if self._outputs is None or kept.url != f"{self._outputs.as_uri()}/{at}/{quote(kept.name)}":
            raise NotFound(
                f"{asked.name!r} of job {job!r} is not in this server's own store",
                hint=f"Maybe fetch it where it is: {kept.url}",
                job=job,
                url=kept.url,
            )
        parts = (*at.split("/"), *PurePosixPath(kept.name).parts)
        try:
            size, data = await asyncio.to_thread(_piece, self._outputs, parts, asked)
        except OSError as error:
            raise NotFound(
                f"{asked.name!r} of job {job!r} is not in this server's store any more",
                hint="Maybe it was kept for long enough (roost serve --keep-outputs-days), or it "
                "is in the store of another server.",
                job=job,
            ) from error
        after = asked.start + len(data)
        return w.OutputPiece(
            job=shown_name(row["array"], row["idx"], own["size"]),
            name=kept.name,
            start=asked.start,
            next=after,
            size=size,
            data=data,
            ended=not data or after >= size,
        )


def _piece(folder: Path, parts: tuple[str, ...], asked: w.ReadOutput) -> tuple[int, bytes]:
    """Read a piece of a regular file; return its whole size too."""
    file = open_below(folder, parts)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "no file", parts[-1])
        return found.st_size, os.pread(file, asked.limit, asked.start)
    finally:
        os.close(file)
