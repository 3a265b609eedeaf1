"""Moments as Kubernetes writes them: UTC, to the second, or to the microsecond in leases."""

from datetime import UTC, datetime


def moment_text(wall_ms: int, *, micro: bool = False) -> str:
    """Return a moment as text; without `micro` its milliseconds are left out."""
    when = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}{f'.{when:%f}' if micro else ''}Z"


def moment_ms(text: str) -> int:
    """Return milliseconds since 1970 of a moment."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
