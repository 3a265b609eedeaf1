"""How near hosts are to those that a VM talks with: what distance charges, and which bounds hold.

What a host charges is the sum, over all partners that are somewhere, of traffic times distance;
the distance is the latency of the way, and a little for each hop. 100 Mbit/s over 1 ms charge one
whole score. Where the farthest host would charge more than MOST_CHARGED all are charged in
proportion, so that their order stays. A host that the network does not know is as far as the
farthest that it knows, and passes no bound. A partner that is nowhere asks nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import Constraints, Talk
from roost.topology.distances import ENDLESS_KBIT, NO_WAY, Distances

#: What a hop counts beside its latency, in microseconds.
HOP_US = 10
#: kbit/s times microseconds that charge a hundredth of a score: 100 Mbit/s over 1 ms are 100.
PER_HUNDREDTH = 1_000_000
#: What distance charges at most, in hundredths of a score.
MOST_CHARGED = 500
#: Traffic and distance beyond these count as these, so that no sum overflows.
MOST_KBIT, MOST_US = 10**8, 10**7
#: Partners whose distance is counted: those with the most traffic.
MOST_PARTNERS = 64
#: What a host behind a saturated uplink charges, in hundredths of a score.
SATURATED_WEIGHT = 50


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """What the engine knows of the network: distances, and who is behind a saturated uplink."""

    distances: Distances
    saturated: frozenset[str] = frozenset()


class Nearness:
    """The network in the rows of one fleet."""

    def __init__(self, fleet: Fleet, network: HostNetwork | None = None) -> None:
        self._fleet = fleet
        self.network = network
        self._index = np.zeros(0, np.int64)  # the network's number of each row's host; -1: none
        self._seen = -1  # head of the attribute log at the last look

    def is_saturated(self, rows: Int64Array) -> BoolArray:
        """Return which hosts are behind an uplink that is asked for more than it has."""
        names = self._fleet.hosts.names
        away = frozenset[str]() if self.network is None else self.network.saturated
        return np.array([names[row] in away for row in rows.tolist()], np.bool_)

    # Where hosts and partners are

    def _indexes(self) -> Int64Array:
        """Return the network's number of every row's host."""
        assert self.network is not None
        log, names = self._fleet.attribute_changes, self._fleet.hosts.names
        known, count = self.network.distances.hosts, self._fleet.hosts.count
        if self._seen != log.head or len(self._index) != count:
            rows = log.since(self._seen) if len(self._index) == count else None
            if rows is None:
                self._index = np.array(
                    [known.get(names[row], -1) for row in range(count)], np.int64
                )
            else:
                for row in rows.tolist():
                    self._index[row] = known.get(names[row], -1)
            self._seen = log.head
        return self._index

    def row_of(self, talk: Talk) -> int:
        """Return the row of the host that a partner is on; -1: it is nowhere."""
        vms = self._fleet.vms
        number = vms.numbers.get(talk.key)
        return -1 if number is None else int(vms.host[number])

    # What is between

    def between(self, partner: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return latency (us), hops and bandwidth (kbit/s) from some hosts to a partner's.

        NO_WAY and 0 kbit/s where no way is known; nothing lies between a host and itself.
        """
        us = np.full(len(rows), NO_WAY, np.int64)
        hops, kbit = us.copy(), np.zeros(len(rows), np.int64)
        if self.network is not None:
            distances, index = self.network.distances, self._indexes()
            there, here = int(index[partner]), index[rows]
            if there >= 0:
                known = here >= 0
                at = here[known]
                walk, point = distances.walk(int(distances.point[there])), distances.point[at]
                sums = walk.us[point] + distances.own_us[at] + distances.own_us[there]
                us[known] = np.minimum(sums, NO_WAY)
                sums = walk.hops[point] + distances.own_hops[at] + distances.own_hops[there]
                hops[known] = np.minimum(sums, NO_WAY)
                narrow = np.minimum(walk.kbit[point], distances.own_kbit[at])
                kbit[known] = np.minimum(narrow, distances.own_kbit[there])
        same = rows == partner
        us[same], hops[same], kbit[same] = 0, 0, ENDLESS_KBIT
        return us, hops, kbit

    # Charging

    def charges(self, talks: Sequence[Talk]) -> Int64Array:
        """Return what distance charges every row, in hundredths of a score."""
        sums = self.sums(talks, np.arange(self._fleet.hosts.count))
        most = int(sums[self._fleet.present_rows()].max(initial=0))
        # A fair share of the most for the farthest, and less for all others.
        unit = max(PER_HUNDREDTH, -(-most // MOST_CHARGED))
        charged: Int64Array = -(-sums // unit)
        return charged

    def sums(self, talks: Sequence[Talk], rows: Int64Array) -> Int64Array:
        """Return traffic times distance (kbit/s and us) of a VM on each of some hosts."""
        found = np.zeros(len(rows), np.int64)
        if self.network is None:
            return found
        for talk in talks_that_count(talks):
            if (partner := self.row_of(talk)) >= 0:
                found += min(talk.kbit, MOST_KBIT) * self._far(partner, rows)
        return found

    def _far(self, partner: int, rows: Int64Array) -> Int64Array:
        """Return how far every row is from a partner; an unknown one as far as the farthest."""
        far = self._known_far(partner, rows)
        if (unknown := far < 0).any():
            most = int(self._known_far(partner, self._fleet.present_rows()).max(initial=0))
            far[unknown] = most
        return far

    def _known_far(self, partner: int, rows: Int64Array) -> Int64Array:
        """Return how far every row is from a partner; -1 where no way is known."""
        us, hops, _ = self.between(partner, rows)
        far: Int64Array = np.minimum(us + HOP_US * hops, MOST_US)
        far[us >= NO_WAY] = -1
        return far

    # Bounds

    def latency_holds(self, talk: Talk, rows: Int64Array) -> BoolArray:
        """Return which hosts are near enough to a partner by latency."""
        partner = self.row_of(talk)
        if talk.most_us is None or partner < 0:
            return np.ones(len(rows), np.bool_)
        near: BoolArray = self.between(partner, rows)[0] <= talk.most_us
        return near

    def bandwidth_holds(self, talk: Talk, rows: Int64Array) -> BoolArray:
        """Return which hosts have a way to a partner with enough bandwidth left."""
        partner = self.row_of(talk)
        if talk.least_kbit is None or partner < 0:
            return np.ones(len(rows), np.bool_)
        wide: BoolArray = self.between(partner, rows)[2] >= talk.least_kbit
        return wide

    def holds(self, talks: Sequence[Talk], rows: Int64Array) -> BoolArray:
        """Return which hosts satisfy every bound."""
        passes = np.ones(len(rows), np.bool_)
        for talk in talks:
            if is_bound(talk):
                passes &= self.latency_holds(talk, rows) & self.bandwidth_holds(talk, rows)
        return passes

    def nearest(
        self, talk: Talk, constraints: Constraints, *, wide: bool
    ) -> tuple[str, int] | None:
        """Return the host that comes nearest to a bound, and its value; None if none is known.

        Of those that take VMs, and that the request neither excludes nor leaves out.
        """
        partner, rows = self.row_of(talk), self._fleet.present_rows()
        if partner < 0 or not len(rows):
            return None
        rows = rows[self._fleet.hosts.arrays.takes[rows]]
        names, pinned = self._fleet.hosts.names, constraints.pinned
        may = [
            names[row] not in constraints.excluded and (not pinned or names[row] in pinned)
            for row in rows.tolist()
        ]
        rows = rows[np.array(may, np.bool_)]
        us, _, kbit = self.between(partner, rows)
        known = us < NO_WAY
        if not known.any():
            return None
        rows, us, kbit = rows[known], us[known], kbit[known]
        at = int(np.argmax(kbit)) if wide else int(np.argmin(us))
        return self._fleet.hosts.names[int(rows[at])], int((kbit if wide else us)[at])


def is_bound(talk: Talk) -> bool:
    """Say whether a partner must be near, and not only should be."""
    return talk.most_us is not None or talk.least_kbit is not None


def talks_that_count(talks: Sequence[Talk]) -> list[Talk]:
    """Return the partners whose distance is charged: those with the most traffic."""
    heard = sorted(
        (each for each in talks if each.kbit > 0), key=lambda each: (-each.kbit, each.key)
    )
    return heard[:MOST_PARTNERS]


def ms_text(us: int) -> str:
    """Return a latency for a reader."""
    return f"{us / 1000:g} ms"


def mbit_text(kbit: int) -> str:
    """Return a bandwidth for a reader."""
    return f"{kbit / 1000:g} Mbit/s"
