"""Do-not-disturb periods of VMs: a label says when a plan leaves a VM alone.

`roost.do-not-disturb` is `always`, or times of day by UTC such as `08:00-18:00` or `22:00-06:00`,
several with commas. What cannot be read counts as `always`: nobody is disturbed by a typing error.
"""

from roost.control.plans.daytimes import DAY, read_daytimes

LABEL = "roost.do-not-disturb"


def why_quiet(text: str | None, now_ms: int) -> str:
    """Return why a VM with this label is not to be disturbed now; empty when it may be."""
    if text is None:
        return ""
    periods = read_daytimes(text)
    if periods is None:
        return f"do not disturb: {text}"
    minute = now_ms // 60_000 % DAY
    for first, last, words in periods:
        inside = first <= minute < last if first <= last else minute >= first or minute < last
        if inside:
            return f"do not disturb from {words} UTC"
    return ""
