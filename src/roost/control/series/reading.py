"""Series for who asks: a part of a VM's or a host's, and readings of elsewhere brought in."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
from sqlalchemy import Connection

from roost.analysis.store import SeriesReader, SeriesStore
from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, NotFound
from roost.control.memory.roster import Roster
from roost.control.series.routes import series_routes
from roost.control.vms.lookup import vm_row
from roost.ledger.schema.rows import VMRow
from roost.ledger.store import Store
from roost.model.series import (
    ASKED,
    DAY_MS,
    FIGURES,
    HOUR_MS,
    RATES,
    STATISTICS,
    Columns,
    Kept,
    Reading,
    Resolution,
    Subject,
)
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.series import MOST_TOLD, ImportedBody, ImportSeries, SeriesBody, Span

#: What is read of the store at once: so many rows of a fortnight's raw readings fit in an answer.
_PIECE_MS = 14 * DAY_MS
_COUNTERS_OF = {rate: counter for counter, rate in RATES.items()}


class Series(Part):
    """Answers what VMs and hosts have used, and takes readings of elsewhere."""

    def __init__(
        self,
        series: SeriesStore,
        store: Store,
        roster: Roster,
        clock: Clock,
        kept: Kept,
        reader: SeriesReader,
    ) -> None:
        self._series, self._store, self._roster = series, store, roster
        self._clock, self._kept, self._reader = clock, kept, reader
        #: Called when readings were brought in: there is more to learn from.
        self.brought: Callable[[], None] = lambda: None

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return series_routes(self)

    async def of_vm(self, ref: str, project: str | None, span: Span, who: Principal) -> SeriesBody:
        """Return a part of a VM's series."""
        vm = await self._vm(ref, project, who)
        return await self._read(Subject("vm", vm.id), span)

    async def of_host(self, name: str, span: Span) -> SeriesBody:
        """Return a part of a host's series."""
        return await self._read(self._host(name), span)

    async def bring(self, body: ImportSeries, who: Principal) -> ImportedBody:
        """Keep readings that were made elsewhere, of a VM or host that there is.

        Rates beside their counters, as an export has them, are left out: they are reckoned anew.
        """
        for name, values in body.figures.items():
            if name not in FIGURES and _COUNTERS_OF.get(name) not in body.figures:
                raise _unknown(name, FIGURES)
            if len(values) != len(body.at_ms):
                raise InvalidRequest(
                    f"{name} has {len(values)} values for {len(body.at_ms)} moments", figure=name
                )
        now = self._clock.wall_ms()
        if (latest := max(body.at_ms)) > now + HOUR_MS:
            raise InvalidRequest(f"{latest} is in the future: it is {now} now", at_ms=latest)
        oldest = now - self._kept.days(Resolution.DAY) * DAY_MS
        if body.kind == "host":
            subject = self._host(body.name)
        else:
            subject = Subject("vm", (await self._vm(body.name, body.project, who)).id)
        # Up to 100,000 of them: not on the event loop.
        readings = await asyncio.to_thread(_readings, body, subject, oldest)
        put = await self._series.put(readings, now, old=True)
        self.brought()
        return ImportedBody(kept=put.kept, left_out=len(body.at_ms) - put.kept)

    async def _vm(self, ref: str, project: str | None, who: Principal) -> VMRow:
        def question(connection: Connection) -> VMRow:
            return vm_row(connection, ref, project, who)

        return await self._store.read(question)

    def _host(self, name: str) -> Subject:
        if self._roster.entry(name) is None:
            raise NotFound(f"no host {name!r}", host=name)
        return Subject("host", name)

    async def _read(self, subject: Subject, span: Span) -> SeriesBody:
        resolution = Resolution(span.resolution)
        _check(span.figure, resolution)
        until = self._clock.wall_ms() + HOUR_MS if span.until_ms is None else span.until_ms
        since = max(0, until - 2 * HOUR_MS) if span.since_ms is None else span.since_ms
        if since > until:
            raise InvalidRequest(f"since_ms {since} is after until_ms {until}")
        end = min(until, since + _PIECE_MS) if resolution is Resolution.RAW else until
        found = await self._reader.read(subject, since, end, resolution, span.figure or None)
        most = max(1, MOST_TOLD // max(1, len(found.figures)))
        further = int(found.at_ms[most]) if len(found) > most else end if end < until else None
        return SeriesBody(
            kind=subject.kind,
            name=subject.name,
            resolution=span.resolution,
            at_ms=found.at_ms[:most].tolist(),
            figures=_told(found, most),
            next_ms=further,
        )


def _readings(body: ImportSeries, subject: Subject, oldest: int) -> list[Reading]:
    """Return what is known of each moment, as far as it is kept for so long."""
    columns = [(name, values) for name, values in body.figures.items() if name in FIGURES]
    readings = []
    for place, at_ms in enumerate(body.at_ms):
        figures = {name: value for name, values in columns if (value := values[place]) is not None}
        if figures and at_ms >= oldest:
            readings.append(Reading(subject, at_ms, figures))
    return readings


def _told(columns: Columns, most: int) -> dict[str, list[float | None]]:
    told: dict[str, list[float | None]] = {}
    for name, values in columns.figures.items():
        plain: list[float | None] = values[:most].tolist()
        for place in np.flatnonzero(np.isnan(values[:most])):
            plain[place] = None
        told[name] = plain
    return told


def _check(figures: Sequence[str], resolution: Resolution) -> None:
    for name in figures:
        plain, _, statistic = name.rpartition(".")
        if resolution is not Resolution.RAW and statistic in STATISTICS and plain in ASKED:
            continue
        if name not in ASKED:
            raise _unknown(name, ASKED)


def _unknown(name: str, known: frozenset[str]) -> InvalidRequest:
    return InvalidRequest(
        f"there is no figure {name!r}",
        hint=f"Maybe one of {', '.join(sorted(known))}.",
        figure=name,
    )
