"""What is asked of a fleet, counted: where the mix of typical requests is learnt from.

Every request for a VM counts once when it is asked, whether it is placed, queued or refused; old
ones count less and less. The mix is then the set of kinds that make up nearly all of it. Who asks
the engine hands requests in here; nothing here reads a clock or a database.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from roost.model.resources import Demand
from roost.placement.mix import MOST_KINDS, Mix, TypicalRequest

#: What one request counts.
ONE = 64
#: When all that is counted is this many requests, every count is halved.
MOST_COUNTED = 16_384
#: Kinds that are counted; with more, the rarest half is forgotten.
MOST_ASKED = 4_096
#: Requests that are noted before they are counted.
MOST_NOTED = 1_024
#: The most frequent kinds are the mix, rare ones too: large rare requests need protection most.
#: A kind that is in it stays while it is among so many, so that the mix does not change to and fro.
STAYING = MOST_KINDS * 5 // 4
#: The mix is looked at anew after this many requests at most, and before that at each doubling.
LOOK_EVERY = 256


class Asked:
    """Counts requests by kind and says which kinds are typical."""

    __slots__ = ("_count", "_counts", "_mix", "_new", "_next", "_noted", "_total")

    def __init__(self, counts: Mapping[TypicalRequest, int] | None = None) -> None:
        self._new: dict[TypicalRequest, int] = {}
        self._noted: list[Demand] = []  # asked and not counted yet: every create adds one
        self._mix = Mix(())
        self._count, self._next = 0, 1
        self._counts: dict[TypicalRequest, int] = {}
        self._total = 0
        if counts:
            self.replace(counts)

    def __len__(self) -> int:
        self._count_noted()
        return len(self._counts)

    def note(self, demand: Demand) -> None:
        """Count a request that is asked now."""
        self._noted.append(demand)
        if len(self._noted) >= MOST_NOTED:
            self._count_noted()

    def note_all(self, demands: Iterable[Demand]) -> None:
        """Count many requests that are asked now."""
        for demand in demands:
            self.note(demand)

    def note_kinds(self, kinds: Mapping[TypicalRequest, int]) -> None:
        """Count so many requests of each kind."""
        self._count_noted()
        for kind, count in kinds.items():
            self._note(kind, count)

    def _count_noted(self) -> None:
        """Count what was noted, those of one demand together: most share a few."""
        if not self._noted:
            return
        noted, self._noted = self._noted, []
        counts = Counter(map(id, noted))
        for demand in {id(each): each for each in noted}.values():
            kind = TypicalRequest(
                demand.cpu_milli, demand.memory_bytes, demand.devices, demand.numa
            )
            self._note(kind, counts[id(demand)])

    def _note(self, kind: TypicalRequest, count: int = 1) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + count * ONE
        self._new[kind] = self._new.get(kind, 0) + count * ONE
        self._total += count * ONE
        self._count += count
        if self._total > MOST_COUNTED * ONE or len(self._counts) > MOST_ASKED:
            self._forget()
        if len(self._new) > MOST_ASKED:
            self._new = _commonest(self._new)

    def _forget(self) -> None:
        """Let what was asked before count half; of too many kinds, the rarest not at all."""
        halved = ((kind, count // 2) for kind, count in self._counts.items())
        self._counts = _commonest({kind: count for kind, count in halved if count})
        self._total = sum(self._counts.values())

    def taken(self) -> dict[TypicalRequest, int]:
        """Return what was counted since the last time, to be added to what is kept."""
        self._count_noted()
        new, self._new = self._new, {}
        return new

    def give_back(self, counts: Mapping[TypicalRequest, int]) -> None:
        """Take back what could not be kept."""
        for kind, count in counts.items():
            self._new[kind] = self._new.get(kind, 0) + count
        if len(self._new) > MOST_ASKED:
            self._new = _commonest(self._new)

    def replace(self, counts: Mapping[TypicalRequest, int]) -> None:
        """Begin anew from what is kept, with what was counted since."""
        self._count_noted()
        self._counts = dict(counts)
        for kind, count in self._new.items():
            self._counts[kind] = self._counts.get(kind, 0) + count
        self._total = sum(self._counts.values())
        self._next = 0

    def mix(self) -> Mix:
        """Return the mix; the same object as long as the same kinds are in it."""
        self._count_noted()
        if self._count >= self._next:
            self._next = self._count + max(1, min(self._count, LOOK_EVERY))
            kinds = self._typical()
            if kinds != self._mix.kinds:
                self._mix = Mix(kinds)
        return self._mix

    def _typical(self) -> tuple[TypicalRequest, ...]:
        before = set(self._mix.kinds)
        ordered = sorted(self._counts.items(), key=lambda each: (-each[1], _order(each[0])))
        kinds = [kind for kind, _ in ordered]
        staying = [kind for kind in kinds[MOST_KINDS:STAYING] if kind in before]
        new = [kind for kind in kinds[:MOST_KINDS] if kind not in before]
        left = max(0, len(new) - len(staying)) if staying else len(new)
        picked = [kind for kind in kinds[:MOST_KINDS] if kind in before] + new[:left] + staying
        return tuple(sorted(picked[:MOST_KINDS], key=_order))


def _commonest(counts: Mapping[TypicalRequest, int]) -> dict[TypicalRequest, int]:
    """Return the kinds that are asked most, half as many as may be counted, the rarest first."""
    ordered = sorted(counts.items(), key=lambda each: (each[1], _order(each[0])))
    return dict(ordered[-MOST_ASKED // 2 :])


def _order(kind: TypicalRequest) -> tuple[object, ...]:
    devices = kind.devices
    if devices is None:
        return (kind.cpu_milli, kind.memory_bytes, kind.numa.value)
    shares = (devices.count, devices.milli, devices.memory_bytes, devices.models)
    return (kind.cpu_milli, kind.memory_bytes, kind.numa.value, *shares)
