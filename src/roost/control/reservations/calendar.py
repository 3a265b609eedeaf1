"""When a reservation is live: its windows, from a start, an end, and a recurrence in a time zone.

Occurrences begin by the wall clock of the reservation's time zone and last a length of time. So on
the two odd days of summer time

    the hour that is skipped    what would begin in it begins as much later: 02:30 at 03:30
    the hour that comes twice   what begins in it does so the first time
    across the change           it lasts as long as ever, and ends another hour by the clock

Occurrences that overlap or touch are one window. A recurrence is expanded to a horizon; behind it
the reservation counts as live without a gap, so that nothing is given away there meanwhile, and one
process goes on expanding as time passes (`keeping.py`).
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrule, rruleset, rrulestr

from roost.base.errors import InvalidRequest
from roost.base.timestamps import LAST_MS, read_timestamp
from roost.ledger.claims.holdsums import Window

DAY_MS = 86_400_000
#: How far ahead occurrences are known at least, and how far they are expanded at once.
LEAST_AHEAD_MS = 30 * DAY_MS
AHEAD_MS = 60 * DAY_MS
#: Occurrences that one expansion makes; more often than that is no recurrence but a mistake.
MOST_WINDOWS = 400
#: What a recurrence may count by: hour by hour it takes minutes to find that one never happens.
FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_FREQUENCY = re.compile(r"\bFREQ\s*=\s*(\w+)", re.IGNORECASE)
_UNTIL = re.compile(r";?\bUNTIL\s*=\s*([0-9TZ]+)", re.IGNORECASE)
#: The calendar repeats after 400 years, weekdays too. A rule that never happens is looked for to
#: the year 9999, so it is asked about the last 400 years before: a second instead of half a minute.
_CYCLE = timedelta(days=146_097)
_LAST_YEARS = 9600


class Times(NamedTuple):
    """When something is live: windows, and up to when they are known; None: they are all."""

    windows: tuple[Window, ...]
    expanded_ms: int | None = None


class Recurrence(NamedTuple):
    """A recurrence: its RRULE, first start, length, end, and the zone whose clock counts."""

    rule: str
    from_ms: int
    lasts_ms: int
    until_ms: int | None
    timezone: str


def zone_named(name: str) -> ZoneInfo:
    """Return a time zone of the IANA database."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"there is no time zone {name!r}", hint="Maybe Europe/Berlin, America/New_York or UTC."
        ) from error


def read_moment(text: str, timezone: str, what: str) -> int:
    """Read a moment; one without an offset is by the clock of the time zone."""
    zone = zone_named(timezone)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return read_timestamp(text, what)  # says what is wrong
    if moment.tzinfo is not None:
        return read_timestamp(text, what)
    try:
        return _ms(moment, zone)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{what} {text!r} is no moment: {error}") from error


def _ms(local: datetime, zone: ZoneInfo) -> int:
    """Return when a clock shows a time, the first time; a skipped one as much later."""
    return round(local.replace(tzinfo=zone, fold=0).timestamp() * 1000)


def times_once(from_ms: int, until_ms: int | None) -> Times:
    """Return when a reservation that does not recur is live."""
    return Times(((from_ms, until_ms),))


def check_recurrence(recurrence: Recurrence) -> None:
    """Refuse a recurrence that cannot be read, never happens, or happens too often.

    Not for an event loop: that it never happens is found after about seconds.
    """
    found = list(islice(_starts(recurrence, recurrence.from_ms), MOST_WINDOWS + 1))
    if not found:
        raise InvalidRequest(f"recurrence {recurrence.rule!r} never happens")
    if len(found) > MOST_WINDOWS and found[-1] - found[0] < LEAST_AHEAD_MS:
        raise InvalidRequest(
            f"recurrence {recurrence.rule!r} happens more than {MOST_WINDOWS} times in "
            f"{LEAST_AHEAD_MS // DAY_MS} days",
            hint="Maybe a longer INTERVAL, or one reservation without a gap.",
        )


def expand(recurrence: Recurrence, now_ms: int) -> Times:
    """Return the windows of a recurrence that are not over, as far as the horizon."""
    horizon = max(now_ms, recurrence.from_ms) + AHEAD_MS
    windows: list[tuple[int, int]] = []
    expanded: int | None = None
    for start in _starts(recurrence, now_ms - recurrence.lasts_ms):
        if start >= horizon or len(windows) >= MOST_WINDOWS:
            expanded = start
            break
        end = start + recurrence.lasts_ms
        if recurrence.until_ms is not None:
            end = min(end, recurrence.until_ms)
        if end > now_ms:
            windows.append((start, end))
    merged: list[Window] = list(merge(windows))
    if expanded is not None:
        # Behind the horizon nobody has looked yet: it is live there until somebody has.
        if merged and merged[-1][1] is not None and merged[-1][1] >= expanded:
            merged[-1] = (merged[-1][0], recurrence.until_ms)
        else:
            merged.append((expanded, recurrence.until_ms))
    return Times(tuple(merged), expanded)


def reaches_further(times: Times, expanded_ms: int, now_ms: int) -> bool:
    """Say whether an expansion is worth writing: half as far again as is known now, or all.

    A recurrence that is dense just now does not reach as far ahead as others.
    """
    if times.expanded_ms is None:
        return True
    return 2 * (times.expanded_ms - expanded_ms) >= max(1, expanded_ms - now_ms)


def merge(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return windows in ascending order, those that overlap or touch as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _starts(recurrence: Recurrence, since_ms: int) -> Iterable[int]:
    """Yield when occurrences begin, from a moment on; local time is made UTC one by one."""
    zone = zone_named(recurrence.timezone)
    first = datetime.fromtimestamp(recurrence.from_ms / 1000, zone).replace(tzinfo=None)
    ahead = (_LAST_YEARS - first.year + 399) // 400 * _CYCLE
    rule, end = _read(recurrence.rule, first + ahead, zone)
    # A day earlier by any clock: zones are less than a day apart, and so are their changes.
    begin = datetime.fromtimestamp(max(0, since_ms - DAY_MS) / 1000, UTC).replace(tzinfo=None)
    last = LAST_MS if recurrence.until_ms is None else recurrence.until_ms
    try:
        for moved in rule.xafter(max(begin, first) + ahead, inc=True):
            local = moved - ahead
            start = _ms(local, zone)
            if start >= last or (end is not None and local > end):
                return
            if start >= since_ms:
                yield start
    except (ValueError, OverflowError):
        return  # behind the last year that a calendar has


def _read(text: str, first: datetime, zone: ZoneInfo) -> tuple[rrule | rruleset, datetime | None]:
    """Return a recurrence from its first start on, and until when, by the zone's clock."""
    by = _FREQUENCY.findall(text)
    if any(each.upper() not in FREQUENCIES for each in by):
        raise InvalidRequest(
            f"recurrence {text!r} counts by {by[0]}; it may by {', '.join(FREQUENCIES)}",
            hint="Maybe FREQ=DAILY;BYHOUR=0,6,12,18 says it.",
        )
    try:
        if "\n" in text or "DTSTART" in text.upper():
            raise ValueError("one RRULE alone is taken; its start is the reservation's")
        ends = [_end(each.upper(), zone) for each in _UNTIL.findall(text)]
        return rrulestr(_UNTIL.sub("", text), dtstart=first), min(ends, default=None)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(
            f"recurrence {text!r} cannot be read: {error}",
            hint="Maybe FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR as in RFC 5545.",
        ) from error


def _end(text: str, zone: ZoneInfo) -> datetime:
    """Read the UNTIL of a recurrence, which is the last moment at which one may begin."""
    moment = datetime.fromisoformat(text)
    if "T" not in text:
        return moment.replace(hour=23, minute=59, second=59)
    return moment.astimezone(zone).replace(tzinfo=None) if moment.tzinfo else moment
