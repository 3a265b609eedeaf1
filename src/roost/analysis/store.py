"""The port between what uses series and where they are kept.

`SeriesReader` is all that analysis asks; a Prometheus can answer it. `SeriesStore` is what agents'
readings are written to as well. Moments are milliseconds since 1970; a span is from `first_ms` up
to, and without, `until_ms`. A store that cannot be used raises `SeriesUnavailable`, of reading and
of writing: nobody waits for it, and nothing but series is lost.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from roost.model.series import Columns, Kept, Kind, Put, Reading, Resolution, Subject


class SeriesReader(Protocol):
    """Series as analysis reads them, wherever they are kept."""

    async def read(
        self,
        subject: Subject,
        first_ms: int,
        until_ms: int,
        resolution: Resolution = Resolution.RAW,
        figures: Sequence[str] | None = None,
    ) -> Columns:
        """Return a span of one subject's series; without names, every figure there is."""


class SeriesStore(SeriesReader, Protocol):
    """Series as the control plane keeps them."""

    async def put(self, readings: Sequence[Reading], now_ms: int, *, old: bool = False) -> Put:
        """Keep readings; when it returns they are durable.

        A reading of the same subject and moment as one before adds to it and wins where both have
        a figure, so repeating is harmless. Readings older than raw ones are kept are left out,
        unless `old` says that this is an import.
        """

    async def newest(self, subject: Subject, count: int = 1) -> list[Reading]:
        """Return the newest readings of a subject, the newest first."""

    async def newest_of(self, kind: Kind, since_ms: int, now_ms: int) -> Mapping[str, Reading]:
        """Return the newest reading of every subject of a kind read since then, by name."""

    async def tidy(self, now_ms: int, kept: Kept) -> int:
        """File what was put, roll it up, delete what is too old; return how much there was to do.

        Does a bounded piece; call it again while there is more than 0.
        """

    async def examine(self) -> list[str]:
        """Return what is wrong with the store, in words; nothing when it is well."""

    async def close(self) -> None:
        """Close what is open; nothing that was put is lost."""
