"""The embedded store of series: batches as they come, filed into chunks and roll-ups later.

    put      readings -> batches, one row for each shard, in one transaction
    tidy     batches an hour old -> chunks of their subjects, in another, shard by shard
    read     chunks and what is still pending, from one view, merged

So a reading is in the store from the moment `put` returns, filed or not, and is read the same.
Filing is conditional by value: chunks are written only if the batches that they are made of are all
still there, so two processes that file the same shard cannot both succeed, and one that is killed
has filed all of a shard or nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from roost.base.errors import SeriesUnavailable
from roost.model.series import (
    DAY_MS,
    MINUTE_MS,
    NOTES,
    RATES,
    STATISTICS,
    Columns,
    Kept,
    Kind,
    Put,
    Reading,
    Resolution,
    Subject,
)
from roost.series.batches import (
    Table,
    by_subject,
    host_shards,
    of_subject,
    pack_batches,
    shard_of,
    unpack_batch,
)
from roost.series.cleaning import Cleaner
from roost.series.codec import Corrupt
from roost.series.columns import (
    MOST_GAP_MS,
    NOTHING,
    chosen,
    merge,
    span,
    with_rates,
)
from roost.series.filing import (
    PERIODS,
    file_readings,
    filed,
    floor,
    needed,
    periods,
    unpack_columns,
)
from roost.series.shelf import Chunk, Shelf

T = TypeVar("T")

#: Batches are filed when they are so old; the newest ones stay, for who asks for newest readings.
FILED_AFTER_MS, LEFT_MS = 60 * MINUTE_MS, 10 * MINUTE_MS
#: How far ahead of this clock a reading may be.
MOST_AHEAD_MS = 60 * MINUTE_MS
#: Batches of one shard that are filed at once, and chunks that are deleted at once.
_MOST_BATCHES, _MOST_DROPPED = 1000, 2000
#: How often it is looked for what is too old.
_DROP_MS = 10 * MINUTE_MS
#: How much longer a host's clock may be behind this one's for its reading to be found as new.
_SLACK_MS = 10 * MINUTE_MS

_COUNTER_OF = {rate: counter for counter, rate in RATES.items()}


class EmbeddedSeries:
    """Series on a shelf; implements `roost.analysis.store.SeriesStore`."""

    def __init__(self, shelf: Shelf, kept: Kept | None = None) -> None:
        self._shelf, self._kept = shelf, kept or Kept()
        self._numbers: dict[Subject, int] = {}
        self._numbered_in = -1  # the opening of the shelf that they are of
        self._dropped_ms = 0  # when nothing was left to delete
        self._cleaner = Cleaner()
        self._corrupt = 0  # chunks and batches met that could not be read

    async def _compute(self, work: Callable[[], T]) -> T:
        """Run what takes a processor for long, where nobody waits for it."""
        return work() if self._shelf.inline else await asyncio.to_thread(work)

    # Writing

    async def put(self, readings: Sequence[Reading], now_ms: int, *, old: bool = False) -> Put:
        """Keep readings; when it returns they are durable."""
        oldest = 0 if old else floor(now_ms - self._kept.raw_days * DAY_MS, DAY_MS)
        latest = now_ms + MOST_AHEAD_MS
        cleaned = await self._compute(
            lambda: self._cleaner.clean(readings, oldest, latest, imported=old)
        )
        kept = cleaned.kept
        if kept:
            numbers, opened = await self._numbered({each.subject for each in kept})
            batches = await self._compute(
                lambda: pack_batches([(numbers[each.subject], each) for each in kept])
            )
            await self._shelf.append(batches, now_ms, opened)
        self._cleaner.settle(cleaned)
        return Put(len(kept), len(readings) - len(kept))

    async def _numbered(self, subjects: set[Subject]) -> tuple[Mapping[Subject, int], int]:
        """Return the numbers of subjects, and the opening of the shelf that they are good for."""
        if self._numbered_in != self._shelf.opened:
            self._numbers, self._numbered_in = {}, -1
        if unknown := subjects - self._numbers.keys():
            found = await self._shelf.number(sorted(unknown))
            if self._numbered_in not in (-1, self._shelf.opened):
                raise SeriesUnavailable("the store of series was opened again")
            self._numbers.update(found)
            self._numbered_in = self._shelf.opened
        return self._numbers, self._numbered_in

    # Reading

    async def read(
        self,
        subject: Subject,
        first_ms: int,
        until_ms: int,
        resolution: Resolution = Resolution.RAW,
        figures: Sequence[str] | None = None,
    ) -> Columns:
        """Return a span of one subject's series; without names, every figure there is."""
        number = await self._shelf.find(subject)
        if number is None or until_ms <= first_ms:
            return NOTHING
        begins = periods(resolution, first_ms - MOST_GAP_MS, until_ms)
        shard = shard_of(subject.kind, number)
        chunks, pending = await self._shelf.view(
            number, shard, resolution.value, begins.start, begins.stop
        )
        if resolution is Resolution.RAW:
            wanted = None if figures is None else _sources(figures)
            return await self._compute(
                lambda: chosen(
                    span(
                        with_rates(self._merged(number, chunks, pending, wanted), figures),
                        first_ms,
                        until_ms,
                    ),
                    figures,
                )
            )
        asked = None if figures is None else _statistics(figures)
        rolled = await self._compute(lambda: self._merged(number, chunks, (), asked))
        fresh = await self._compute(lambda: self._merged(number, (), pending, None))
        if len(fresh):
            rolled = await self._with_fresh(number, resolution, rolled, fresh)
        return chosen(span(rolled, first_ms, until_ms), asked)

    async def _with_fresh(
        self, number: int, resolution: Resolution, rolled: Columns, fresh: Columns
    ) -> Columns:
        """Return roll-ups as they will be once what is pending has been filed."""
        there = self._sound(await self._shelf.chunks(number, needed(fresh)))
        made = await self._compute(lambda: filed(fresh, there, (resolution,)))
        return merge([rolled, *made.values()])

    def _merged(
        self,
        number: int,
        chunks: Sequence[bytes],
        pending: Sequence[bytes],
        wanted: Sequence[str] | None,
    ) -> Columns:
        parts = [self._unpack(data, wanted) for data in chunks]
        for data in pending:
            found = of_subject(self._unpack_batch(data), number)
            parts += [_only(columns, wanted) for columns in found]
        return merge(parts)

    def _unpack(self, data: bytes, wanted: Sequence[str] | None = None) -> Columns:
        try:
            return unpack_columns(data, wanted)
        except Corrupt:
            self._corrupt += 1
            return NOTHING

    def _unpack_batch(self, data: bytes) -> list[Table]:
        try:
            return unpack_batch(data)
        except Corrupt:
            self._corrupt += 1
            return []

    async def newest(self, subject: Subject, count: int = 1) -> list[Reading]:
        """Return the newest readings of a subject, the newest first."""
        number = await self._shelf.find(subject)
        if number is None:
            return []
        shard = shard_of(subject.kind, number)
        _, pending = await self._shelf.view(number, shard, Resolution.RAW.value, 0, 0)
        found = await self._compute(lambda: self._merged(number, (), pending, None))
        if len(found) < count:
            last = await self._shelf.last_chunk(number, Resolution.RAW.value)
            if last is not None:
                found = merge([self._unpack(last), found])
        return [
            _reading(subject, found, row)
            for row in range(len(found) - 1, max(-1, len(found) - 1 - count), -1)
        ]

    async def newest_of(self, kind: Kind, since_ms: int, now_ms: int) -> Mapping[str, Reading]:
        """Return the newest reading of every subject of a kind read since then, by name."""
        if kind != "host":
            raise ValueError("only hosts are asked for all together")
        put_since = min(since_ms, now_ms) - _SLACK_MS
        batches = await self._shelf.recent(host_shards(), put_since)
        names = await self._shelf.names(kind) if batches else {}
        found: dict[str, Reading] = {}
        for number, columns in by_subject(
            [t for d in batches for t in self._unpack_batch(d)]
        ).items():
            newest = merge([columns])
            if number in names and int(newest.at_ms[-1]) >= since_ms:
                subject = Subject(kind, names[number])
                found[subject.name] = _reading(subject, newest, -1)
        return found

    # Keeping

    async def tidy(self, now_ms: int, kept: Kept) -> int:
        """File one shard that is due, and now and then delete a piece of what is too old."""
        done = 0
        ahead_ms = now_ms + FILED_AFTER_MS
        shard = await self._shelf.due(now_ms - FILED_AFTER_MS, ahead_ms)
        if shard is not None:
            done += await self._file(shard, now_ms - LEFT_MS, ahead_ms)
        if abs(now_ms - self._dropped_ms) >= _DROP_MS:
            dropped = 0
            for resolution in Resolution:
                before = floor(now_ms - kept.days(resolution) * DAY_MS, DAY_MS)
                if resolution is not Resolution.RAW:
                    before -= PERIODS[resolution]  # its last row may be as young as that
                dropped += await self._shelf.drop(resolution.value, before, _MOST_DROPPED)
            if dropped == 0:
                self._dropped_ms = now_ms
            done += dropped
        return done

    async def file_all(self, now_ms: int) -> None:
        """File everything that is pending, without waiting for it to be due."""
        while (shard := await self._shelf.due(now_ms + 1, now_ms)) is not None:
            await self._file(shard, now_ms + 1, now_ms)

    async def _file(self, shard: int, put_before_ms: int, put_after_ms: int) -> int:
        pending = await self._shelf.pending(shard, put_before_ms, put_after_ms, _MOST_BATCHES)
        found = await self._compute(
            lambda: by_subject(
                [table for data in pending.data for table in self._unpack_batch(data)]
            )
        )
        made: list[Chunk] = []
        for number in sorted(found):
            new = merge([found[number]])
            there = await self._shelf.chunks(number, needed(new))
            made += await self._compute(
                lambda number=number, new=new, there=there: file_readings(  # type: ignore[misc]
                    number, new, self._sound(there)
                )
            )
        await self._shelf.file(pending.ids, made)
        return len(pending.ids)

    def _sound(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Return the chunks that can be read; the others are written anew."""
        found = []
        for chunk in chunks:
            try:
                unpack_columns(chunk.data, ())
            except Corrupt:
                self._corrupt += 1
            else:
                found.append(chunk)
        return found

    async def examine(self) -> list[str]:
        """Return what is wrong with the store, in words; nothing when it is well."""
        try:
            wrong = await self._shelf.check()
        except SeriesUnavailable as error:
            return [error.message]
        if self._corrupt:
            wrong.append(f"{self._corrupt} chunks or batches could not be read and were left out")
        return wrong

    async def close(self) -> None:
        """Close what is open; nothing that was put is lost."""
        await self._shelf.close()


def _only(columns: Columns, wanted: Sequence[str] | None) -> Columns:
    if wanted is None:
        return columns
    figures = {name: v for name, v in columns.figures.items() if name in wanted}
    return Columns(columns.at_ms, figures)


def _sources(figures: Sequence[str]) -> list[str]:
    """Return what raw readings must have for figures: of a rate, its counter."""
    return [_COUNTER_OF.get(name, name) for name in figures]


def _statistics(figures: Sequence[str]) -> list[str]:
    """Return the columns of roll-ups that are meant: of a plain figure, all statistics."""
    found = []
    for name in figures:
        plain = name.rpartition(".")[2] not in STATISTICS
        found += [f"{name}.{each}" for each in STATISTICS] if plain else [name]
    return found


def _reading(subject: Subject, columns: Columns, row: int) -> Reading:
    figures = {
        name: float(values[row])
        for name, values in columns.figures.items()
        if not np.isnan(values[row]) and name not in NOTES
    }
    return Reading(subject, int(columns.at_ms[row]), figures)
