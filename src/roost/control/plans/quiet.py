"""Do-not-disturb periods of VMs: a label says when a plan leaves a VM alone.

`roost.do-not-disturb` is `always`, or times of day by UTC such as `08:00-18:00` or `22:00-06:00`,
several with commas. What cannot be read counts as `always`: nobody is disturbed by a typing error.
"""

import re

LABEL = "roost.do-not-disturb"

_PERIOD = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


def why_quiet(text: str | None, now_ms: int) -> str:
    """Return why a VM with this label is not to be disturbed now; empty when it may be."""
    if text is None:
        return ""
    minute = now_ms // 60_000 % 1440
    for part in text.split(","):
        found = _PERIOD.fullmatch(part.strip())
        if found is None:
            return f"do not disturb: {text}"
        first, last = (60 * int(found[i]) + int(found[i + 1]) for i in (1, 3))
        inside = first <= minute < last if first <= last else minute >= first or minute < last
        if inside:
            return f"do not disturb from {part.strip().replace('-', ' to ')} UTC"
    return ""
