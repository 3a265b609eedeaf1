"""Wall-clock times written for people and read from them: UTC, ISO 8601 with milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache

from roost.base.errors import InvalidRequest

#: The last moment that is taken, in the year 2200: further ones are mistakes.
LAST_MS = 7_258_118_400_000


def timestamp(ms: int) -> str:
    """Write wall-clock milliseconds for people."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def read_timestamp(text: str, what: str) -> int:
    """Read a moment with its offset from UTC, such as 2026-11-20T08:00:00Z, as milliseconds."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it has no offset from UTC")
        ms = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{what} {text!r} is no moment: {error}",
            hint="Maybe write it like 2026-11-20T08:00:00Z or 2026-11-20T08:00:00+01:00.",
        ) from error
    if not 0 <= ms <= LAST_MS:
        raise InvalidRequest(f"{what} {text!r} is not between 1970 and 2200")
    return ms
