"""All live copies that run at once, and how they share the network.

Every node has one interface; each copy takes from that of its source and that of its target. The
shares are max-min fair: nobody's can grow without taking from one that has less or as little.
They are computed anew whenever a copy begins or ends. Pure: time is an argument.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from roost.kube.moving.precopy import Copy

K = TypeVar("K", bound=Hashable)


def fair_shares(
    flows: Mapping[K, tuple[str, str]], capacity: Callable[[str], float]
) -> dict[K, float]:
    """Return the max-min fair rate of each flow between two nodes, by progressive filling.

    All rates grow alike until some node is full; its flows stay there, the others go on.
    """
    rates: dict[K, float] = {}
    ends = {key: frozenset(pair) for key, pair in flows.items()}
    room = {node: capacity(node) for pair in ends.values() for node in pair}
    growing = dict(ends)
    while growing:
        crowd = dict.fromkeys(room, 0)
        for pair in growing.values():
            for node in pair:
                crowd[node] += 1
        # By name among equals, so that the same flows always get the same rates to the bit.
        level, tightest = min((room[node] / many, node) for node, many in crowd.items() if many)
        for key in [key for key, pair in growing.items() if tightest in pair]:
            rates[key] = level
            for node in growing.pop(key):
                room[node] = max(room[node] - level, 0.0)
    return rates


class _Flow(NamedTuple):
    copy: Copy
    nodes: tuple[str, str]


class Copying(Generic[K]):
    """The copies that are under way."""

    def __init__(self, capacity: Callable[[str], float]) -> None:
        self._capacity = capacity
        self._flows: dict[K, _Flow] = {}
        self._rates: dict[K, float] = {}
        self.now_s = -math.inf

    def __contains__(self, key: K) -> bool:
        return key in self._flows

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._flows))

    def get(self, key: K) -> Copy | None:
        """Return a copy that was begun and not removed; it may be over."""
        flow = self._flows.get(key)
        return flow.copy if flow else None

    def rate(self, key: K) -> float:
        """Return the bandwidth that a copy has now, in bytes per second."""
        return self._rates.get(key, 0.0)

    def begin(self, key: K, source: str, target: str, copy: Copy) -> None:
        """Let a copy take part from now on; one that began earlier catches up at its new share."""
        self.advance(copy.now_s)
        self._flows[key] = _Flow(copy, (source, target))
        self._share()
        if copy.now_s < self.now_s:
            self.advance(self.now_s)

    def remove(self, key: K) -> None:
        """Forget a copy; the others get what it had."""
        if self._flows.pop(key, None) is not None:
            self._share()

    def next_event(self) -> float:
        """Return when something happens next in any copy; inf when nothing will."""
        return min(
            (flow.copy.next_event(self._rates[key]) for key, flow in self._running()),
            default=math.inf,
        )

    def advance(self, to_s: float) -> None:
        """Let time pass; whenever a copy ends, the others share what it had from that moment."""
        while (event_s := self.next_event()) <= to_s:
            self._go_to(event_s)
            self._share()
        self._go_to(to_s)

    def _go_to(self, to_s: float) -> None:
        for key, flow in self._running():
            flow.copy.advance(to_s, self._rates[key])
        self.now_s = max(self.now_s, to_s)

    def _running(self) -> list[tuple[K, _Flow]]:
        return [(key, flow) for key, flow in self._flows.items() if not flow.copy.over]

    def _share(self) -> None:
        flows = {key: flow.nodes for key, flow in self._running()}
        self._rates = fair_shares(flows, self._capacity)
