"""The port between the embedded store and a database: rows of bytes; `sqlite` and `postgres`.

    subjects   who was measured: number, kind and name
    batches    readings as they came, by shard, until they are filed
    chunks     columns of one subject, by resolution and the moment a period begins

A shelf knows nothing of what the bytes mean. Whatever fails is `SeriesUnavailable`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from roost.model.series import Kind, Subject
from roost.series.batches import Batch

#: The schema of this release; a shelf refuses a later one.
SCHEMA = 1


class Chunk(NamedTuple):
    """Columns of one subject in one period, as bytes."""

    subject: int
    resolution: str
    begin_ms: int
    data: bytes


class Filed(NamedTuple):
    """What is pending of one shard: rows in the order in which they were put."""

    ids: list[int]
    data: list[bytes]


class Shelf(Protocol):
    """Where batches and chunks are kept."""

    inline: bool  # everything is done in the caller's thread, for virtual time
    opened: int  # how often it was opened: numbers of subjects are good until it is again

    async def number(self, subjects: Sequence[Subject]) -> dict[Subject, int]:
        """Return the numbers of subjects; those that are new get one."""

    async def find(self, subject: Subject) -> int | None:
        """Return the number of a subject, if it has one."""

    async def names(self, kind: Kind) -> dict[int, str]:
        """Return the names of all subjects of a kind by their numbers."""

    async def append(self, batches: Sequence[Batch], now_ms: int, opened: int) -> None:
        """Keep batches, all or none; they are durable when this returns.

        Refused when the shelf was opened again since their subjects got their numbers: it may be
        another one now.
        """

    async def view(
        self, subject: int, shard: int, resolution: str, first_ms: int, until_ms: int
    ) -> tuple[list[bytes], list[bytes]]:
        """Return chunks that begin in a span, and the pending batches of the shard; one view."""

    async def last_chunk(self, subject: int, resolution: str) -> bytes | None:
        """Return the newest chunk of a subject."""

    async def recent(self, shards: range, since_ms: int) -> list[bytes]:
        """Return the batches of some shards that were put since then, in their order."""

    async def due(self, put_before_ms: int, put_after_ms: int) -> int | None:
        """Return the shard whose oldest batch is the oldest, if it was put before or after then.

        After: by a clock that was ahead. It would hold up all others until this one comes there.
        """

    async def pending(self, shard: int, put_before_ms: int, put_after_ms: int, most: int) -> Filed:
        """Return the oldest batches of a shard that were put before or after then."""

    async def chunks(self, subject: int, spans: Sequence[tuple[str, int, int]]) -> list[Chunk]:
        """Return chunks of a subject that begin in spans, each of a resolution."""

    async def file(self, ids: Sequence[int], chunks: Sequence[Chunk]) -> bool:
        """Put chunks in the place of batches; False, and nothing done, if one of those is gone."""

    async def drop(self, resolution: str, before_ms: int, most: int) -> int:
        """Delete chunks that begin before a moment, so many at most; return how many."""

    async def check(self) -> list[str]:
        """Return what is wrong with the database, in words."""

    async def close(self) -> None:
        """Close the database."""
