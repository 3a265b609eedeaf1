"""Peaks of neighbours: what a VM would add to the highest part of each host's day.

The day of a host is the sum of the days of its VMs (`Expected.day`); what uses the same all day
long moves no peak and is left out. With h and v the use of host and VM by part of the day,

    added = max(h + v) - max(h)         between what v uses in its lowest part and in its highest

and a host charges MOST_CHARGED hundredths of a score times added / max(v), rounded down: all of it
where the VM peaks when its neighbours do, or has none; little where it fills their valley. The sum
of all hosts' peaks grows by what is added, and that is the room a fleet needs.
"""

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import E_DAY, Int64Array
from roost.model.outlook import DAY_LEVELS, DAY_PARTS, DayCourse

#: What a host charges a VM that peaks with its neighbours, in hundredths of a score.
MOST_CHARGED = 15
#: Bits of one level in a packed day, from the last part to the first.
_BITS = 5
_SHIFTS = np.arange(_BITS * (DAY_PARTS - 1), -1, -_BITS, dtype=np.int64)


class HostDays:
    """The days of one fleet's hosts, kept while VMs come and go."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._days = np.zeros((0, DAY_PARTS), np.int64)
        self._seen = -1  # head of the log of changes at the last look

    def days(self) -> Int64Array:
        """Return the use of every host by part of the day, in millicores, [hosts, DAY_PARTS]."""
        log, count = self._fleet.changes, self._fleet.hosts.count
        if self._seen != log.head or len(self._days) != count:
            known = self._seen >= 0 and len(self._days) == count
            rows = log.since(self._seen) if known else None
            if rows is None:
                self._days = np.zeros((count, DAY_PARTS), np.int64)
                rows = np.arange(count)
            self._sum(rows)
            self._seen = log.head
        return self._days

    def _sum(self, rows: Int64Array) -> None:
        """Add up the days of the VMs on some hosts anew."""
        vms, among = self._fleet.vms, np.zeros(len(self._days) + 1, np.bool_)
        among[rows] = True  # the last is that of VMs which are nowhere
        placed, packed = vms.host[: vms.count], vms.expected[: vms.count, E_DAY]
        here = np.flatnonzero(among[placed] & (packed > 0))
        self._days[rows] = 0
        np.add.at(self._days, placed[here], unpacked(packed[here]))

    def charges(self, day: DayCourse) -> Int64Array:
        """Return what every host charges a VM of such a day, in hundredths of a score."""
        hosts, own = self.days(), np.array(day.amounts(), np.int64)
        peak = int(own.max())
        if not peak:
            return np.zeros(len(hosts), np.int64)
        added = (hosts + own).max(axis=1) - hosts.max(axis=1)
        charged: Int64Array = MOST_CHARGED * added // peak
        return charged


def unpacked(packed: Int64Array) -> Int64Array:
    """Return the use by part of the day of packed courses, [courses, DAY_PARTS]."""
    levels = packed[:, None] >> _SHIFTS & ((1 << _BITS) - 1)
    peak = packed >> _BITS * DAY_PARTS
    amounts: Int64Array = peak[:, None] * levels // DAY_LEVELS
    return amounts
