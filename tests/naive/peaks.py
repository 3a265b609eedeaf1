"""What hosts charge for peaks that a VM would share: plain loops over the VMs on each host."""

from collections.abc import Sequence

from roost.model.outlook import DayCourse
from tests.naive.fleet import Ask, Row

MOST_CHARGED = 15


def use_at(day: DayCourse, part: int) -> int:
    """Return what a VM uses in a part of the day: its peak times the level over 31."""
    return day.peak_milli * day.levels[part] // 31


def peak_penalties(rows: Sequence[Row], ask: Ask) -> dict[int, int]:
    """Return what every host charges, in hundredths of a score."""
    charged = dict.fromkeys((row.number for row in rows), 0)
    own = ask.request.day
    highest = 0 if own is None else max(use_at(own, part) for part in range(8))
    if own is None or highest == 0:
        return charged
    for row in rows:
        neighbours = ask.days.get(row.number, [])
        before = [sum(use_at(day, part) for day in neighbours) for part in range(8)]
        after = [before[part] + use_at(own, part) for part in range(8)]
        charged[row.number] = MOST_CHARGED * (max(after) - max(before)) // highest
    return charged
