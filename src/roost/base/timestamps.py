"""Wall-clock times written for people: UTC, ISO 8601 with milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache


def timestamp(ms: int) -> str:
    """Write wall-clock milliseconds for people."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
