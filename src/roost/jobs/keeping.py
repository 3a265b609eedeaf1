"""What is kept of jobs that have ended, for how long and how much of it.

| what | goes |
|---|---|
| an array with all that is its own | long after its end, or after an hour with too many jobs |
| a machine | long after it was given back, or when there are too many |
| an attempt that was tried again | with its array, or when there are too many |
| logs | after two weeks, or when there is too much of them; the oldest first |
| files in this server's own store of outputs | after a month, or when there is too much of them |

An array that another one still waits for stays, however old: whether it completed decides what
becomes of that one. Stores of outputs that users name are theirs to keep.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import exists

from roost.base.clock import Clock
from roost.base.units import GIB
from roost.ledger.schema.jobtables import (
    job_arrays,
    job_attempts,
    job_links,
    job_logs,
    jobs,
    machines,
)
from roost.ledger.upkeep.retention import DAY_S, Kept
from roost.parts.part import Loop, Part

log = logging.getLogger("roost.jobs")

#: Between two looks at files, and the least age of files and arrays that go because there are too
#: many: whoever waits for an end must find what came of it.
LOOK_S, YOUNG_S = 600.0, 3600
_MOST_MACHINES, _MOST_ATTEMPTS = 100_000, 1_000_000


@dataclass(frozen=True, slots=True)
class KeptJobs:
    """How long and how much is kept of what has ended."""

    days: float = 30.0
    most: int = 1_000_000  # jobs, of arrays that have ended
    logs_days: float = 14.0
    logs_bytes: int = 2 * GIB
    outputs_days: float = 30.0
    outputs_bytes: int = 20 * GIB


_waits = job_arrays.alias("waits")
#: An array that one which has not ended waits for.
NEEDED = exists().where(
    job_links.c.needs == job_arrays.c.id,
    _waits.c.id == job_links.c.array,
    _waits.c.finished_ms.is_(None),
)


def rows_kept(kept: KeptJobs) -> tuple[Kept, ...]:
    """Return how long the rows of jobs are kept."""
    seconds = round(kept.days * DAY_S)
    return (
        Kept(
            job_arrays, "finished_ms", seconds, most=kept.most, weight="size", unless=NEEDED,
            young_s=YOUNG_S,
            parts=((jobs, "array"), (job_attempts, "array"), (job_links, "array")),
        ),
        Kept(job_attempts, "ended_ms", seconds, most=_MOST_ATTEMPTS),
        Kept(
            job_logs, "at_ms", round(kept.logs_days * DAY_S), most=kept.logs_bytes, weight="length"
        ),
        Kept(machines, "ended_ms", seconds, most=_MOST_MACHINES),
    )  # fmt: skip


class Keeping(Part):
    """Says what the ledger keeps, and deletes old files of this server's own store."""

    def __init__(self, clock: Clock, kept: KeptJobs, outputs: Path | None) -> None:
        self._clock, self._kept, self._outputs = clock, kept, outputs
        self.keeps: Sequence[Kept] = rows_kept(kept)

    def loops(self) -> Sequence[Loop]:
        """Return the loop that deletes old outputs: every process has a store of its own."""
        return () if self._outputs is None else (Loop(self._turn, 0.0),)

    async def _turn(self) -> None:
        await self.delete_outputs()
        await self._clock.sleep(LOOK_S)

    async def delete_outputs(self) -> int:
        """Delete outputs that are too old, and the oldest of those that are too many."""
        if self._outputs is None:
            return 0
        return await asyncio.to_thread(self._delete, self._outputs, self._clock.wall_ms() / 1000)

    def _delete(self, folder: Path, now_s: float) -> int:
        found = sorted(_outputs(folder))
        total = sum(size for _, size, _ in found)
        gone = 0
        for changed_s, size, attempt in found:
            age_s = now_s - changed_s
            old = age_s > self._kept.outputs_days * DAY_S
            if not old and (total <= self._kept.outputs_bytes or age_s < YOUNG_S):
                break
            shutil.rmtree(attempt, ignore_errors=True)
            total -= size
            gone += 1
        if gone:
            log.info("deleted the outputs of %d attempts from %s", gone, folder)
        return gone


def _outputs(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the folder of each attempt with its last change and its size."""
    for attempt in folder.glob("*/*"):
        try:
            files = [each.lstat() for each in (attempt, *attempt.rglob("*"))]
        except OSError:  # it is being written or deleted
            continue
        yield max(each.st_mtime for each in files), sum(each.st_size for each in files), attempt
