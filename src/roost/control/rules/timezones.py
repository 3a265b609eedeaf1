"""The time of day as rules read it: hour, minute and weekday, in UTC or a named time zone.

Rules themselves know no calendar. On the two odd days of summer time an hour of the day is missing
or comes twice, and a condition on it is true never or twice, as on a clock on the wall.
"""

import difflib
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from roost.base.errors import InvalidRequest


def time_in(now_ms: int, zone: str | None = None) -> dict[str, int]:
    """Return hour, minute and weekday at a time; in UTC without a zone."""
    at = datetime.fromtimestamp(now_ms // 1000, _zone(zone) if zone else UTC)
    return {"hour": at.hour, "minute": at.minute, "weekday": at.isoweekday()}


def require_zone(name: str) -> str:
    """Return the name of a time zone, or refuse one that nobody knows."""
    known = _known()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise InvalidRequest(
            f"there is no time zone {name!r}",
            hint=f"Maybe {close[0]!r}?" if close else "Maybe a name such as Europe/Berlin.",
            time_zone=name,
        )
    return name


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
