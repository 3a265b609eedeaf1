"""Windows of a plan: given by who asks, by hosts' maintenance times, or where load is foreseen low.

Hosts say when they may be maintained by a label, `roost.maintenance-times`: times of day by UTC
such as `22:00-06:00`, several with commas. What is foreseen comes from a week of the hosts' own
series, added up, so that one host's peak may lie in another's trough.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from roost.analysis.forecasting import LEAST_POINTS, forecast_batch
from roost.analysis.outlook import DAY_STEPS, POINTS, STEP_S
from roost.analysis.store import SeriesReader
from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, SeriesUnavailable
from roost.base.timestamps import read_timestamp, timestamp
from roost.control.learning.gathering import gather, origin_of
from roost.control.memory.host_entries import HostEntry, read_host
from roost.control.memory.roster import Roster
from roost.control.plans.daytimes import DAY, minutes_in, on_days, read_daytimes
from roost.control.plans.record import KeptWindow
from roost.model.series import Subject
from roost.planner.drafting import Draft
from roost.planner.windows import LoadAhead, Span, Window, rated, troughs
from roost.wire.plans import CreatePlan

LABEL = "roost.maintenance-times"
#: How far ahead windows are looked for: troughs by the forecast, maintenance times by the calendar.
TROUGH_AHEAD_S, CALENDAR_S = 86_400, 7 * 86_400
#: How far a start may lie behind the server's clock and still mean now.
_LATE_MS = 60_000
#: Hosts whose series are read for one plan, windows of it, and what is added to the time it needs.
_MOST_READ, MOST_WINDOWS, _SLACK = 200, 20, 1.5
_COVERAGE = 0.8  # the upper bound holds nine times of ten


def bounds_of(body: CreatePlan, now_ms: int) -> tuple[int | None, int | None]:
    """Return the first and the last moment at which a plan may begin moves, as its user said."""
    start = None if body.start is None else read_timestamp(body.start, "start")
    end = None if body.end is None else read_timestamp(body.end, "end")
    if start is not None and start < now_ms - _LATE_MS:
        raise InvalidRequest(f"the start {body.start!r} is in the past", start=body.start)
    if end is not None and end <= max(now_ms, start or 0):
        raise InvalidRequest(f"the end {body.end!r} is in the past, or not after the start")
    return start, end


def spans_of(body: CreatePlan, now_ms: int) -> list[Span]:
    """Return the windows that a user gave, in their order; refuse those that make no sense."""
    if body.windows and (body.window or body.start or body.end):
        raise InvalidRequest("a plan has windows, or a start, an end and a kind of window")
    found = [
        Span(
            read_timestamp(each.start, "start of a window") // 1000,
            read_timestamp(each.end, "end of a window") // 1000,
        )
        for each in body.windows
    ]
    for span in found:
        if span.end_s <= span.start_s:
            raise InvalidRequest(f"the window {_words(span)} ends before it begins")
        if 1000 * span.end_s <= now_ms:
            raise InvalidRequest(f"the window {_words(span)} is in the past")
    found.sort()
    for one, other in pairwise(found):
        if other.start_s < one.end_s:
            raise InvalidRequest(f"the windows {_words(one)} and {_words(other)} overlap")
    return found


class Windowing:
    """Finds windows for plans, and says how good those are that somebody gave."""

    def __init__(self, series: SeriesReader, roster: Roster, clock: Clock) -> None:
        self._series, self._roster, self._clock = series, roster, clock

    async def choose(self, body: CreatePlan, draft: Draft) -> list[KeptWindow]:
        """Return the windows of a plan in their order; none: it may run at any time."""
        now_ms = self._clock.wall_ms()
        given, (start, end) = spans_of(body, now_ms), bounds_of(body, now_ms)
        if not draft.moves or not (given or body.window or (start and end)):
            return []
        rows = sorted({row for each in draft.moves for row in (each.source, each.target)})
        entries = [e for r in rows if (e := self._roster.by_fleet_row.get(r)) is not None]
        ahead = await self._ahead(entries, now_ms)
        if body.window is None:
            if not given:  # a start and an end: no move begins after it, one may end after it
                whole = Span((start or now_ms) // 1000, (end or now_ms) // 1000)
                return [_kept(rated(whole, ahead, "as asked"), last=True)]
            found = [rated(span, ahead, "as asked") for span in given]
        else:
            first = max(now_ms, start or 0) // 1000
            within = _maintenance(entries, first, end, required=body.window == "maintenance")
            needs = _SLACK * draft.eta_s
            if body.window == "maintenance":
                fitting = [span for span in within if span.end_s - span.start_s >= needs]
                found = [rated(s, ahead, "maintenance times of its hosts") for s in fitting]
            else:
                found = list(troughs(ahead, max(needs, 2 * STEP_S), within))
            _refuse_none(found, body.window, needs, ahead)
        _refuse_short(found, draft)
        return [_kept(each) for each in found[:MOST_WINDOWS]]

    async def _ahead(self, entries: Sequence[HostEntry], now_ms: int) -> LoadAhead:
        """Return the foreseen cpu of hosts together, as a share of what they have."""
        origin_ms = origin_of(now_ms)
        nothing = LoadAhead(origin_ms // 1000, STEP_S, np.zeros(0))
        used, has, capacity = np.zeros(POINTS), np.zeros(POINTS, np.bool_), 0.0
        arrays = self._roster.fleet.hosts.arrays
        try:
            for entry in entries[:_MOST_READ]:
                cpu = (await gather(self._series, Subject("host", entry.name), origin_ms)).cpu
                known = np.isfinite(cpu)
                if known.sum() >= LEAST_POINTS:
                    used += np.where(known, cpu, np.nanmean(cpu))
                    has |= known
                    capacity += max(1.0, float(arrays.capacity[entry.fleet_row, 0]))
        except SeriesUnavailable:
            return nothing
        if not capacity or not has[-DAY_STEPS:].any():
            return nothing
        used[~has] = np.nan
        rows = (used / capacity)[None, int(has.argmax()) :]
        steps = TROUGH_AHEAD_S // STEP_S
        found = await asyncio.to_thread(
            lambda: forecast_batch(rows, steps, day_steps=DAY_STEPS, coverage=_COVERAGE)
        )
        high = np.where(np.isfinite(found.high[0]), found.high[0], found.point[0])
        return LoadAhead(origin_ms // 1000, STEP_S, high)


def _maintenance(
    entries: Sequence[HostEntry], first_s: int, end_ms: int | None, *, required: bool
) -> list[Span]:
    """Return the times in which all hosts may be maintained that say when they may."""
    last_s = first_s + CALENDAR_S
    if end_ms is not None:
        last_s = min(last_s, end_ms // 1000)
    free, said = np.ones(DAY, np.bool_), False
    for entry in entries:
        text = dict(read_host(entry.row)[1].labels).get(LABEL)
        if text is None:
            continue
        said, periods = True, read_daytimes(text)
        if periods is None:
            raise InvalidRequest(
                f"the label {LABEL!r} of host {entry.name!r} is {text!r}, no times of day",
                hint="Maybe write it like 22:00-06:00.",
                host=entry.name,
            )
        free &= minutes_in(periods)
    if required and not said:
        raise InvalidRequest(
            f"no host of the plan says when it may be maintained, by a label {LABEL!r}",
            hint=f"Maybe `roost host set HOST --label {LABEL}=22:00-06:00`.",
        )
    return on_days(free, first_s, last_s)


def _refuse_none(found: Sequence[Window], kind: str, needs_s: float, ahead: LoadAhead) -> None:
    if found:
        return
    if kind == "trough" and not ahead.known:
        raise InvalidRequest(
            "nothing is foreseen of the plan's hosts: about half a day of their readings is needed",
            hint="Maybe give the time: --start and --end, or --window START/END.",
        )
    raise InvalidRequest(
        f"there is no {kind} window of the {needs_s:.0f} s that the plan needs",
        hint="Maybe move more VMs at once, or give a later end.",
    )


def _refuse_short(found: Sequence[Window], draft: Draft) -> None:
    """Refuse windows of which none is long enough for some move: the plan could never end."""
    longest = max(each.length_s for each in found)
    for each in draft.moves:
        if each.cost.total_s > longest:
            raise InvalidRequest(
                f"moving {each.who.name!r} takes about {each.cost.total_s:.0f} s, "
                f"and the longest window is {longest} s",
                vm=each.who.vm,
            )


def _kept(window: Window, *, last: bool = False) -> KeptWindow:
    return KeptWindow(
        1000 * window.start_s, 1000 * window.end_s, round(window.quality, 3), window.reason, last
    )


def _words(span: Span) -> str:
    return f"from {timestamp(1000 * span.start_s)} to {timestamp(1000 * span.end_s)}"
