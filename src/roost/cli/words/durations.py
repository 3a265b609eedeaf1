"""Lengths of time as they are typed: 30m, 12h, 90d."""

import re

from roost.base.errors import InvalidRequest

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_duration(text: str) -> int:
    """Return the seconds that a text such as "90d" or "12h" means."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([smhd])\s*", text)
    if match is None:
        raise InvalidRequest(f"{text!r} is no length of time", hint="Maybe 30m, 12h or 90d?")
    return int(match[1]) * _UNITS[match[2]]
