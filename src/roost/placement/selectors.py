"""Selectors: attribute rules evaluated once for the whole fleet and kept as marks.

Every distinct conjunction of attribute rules that requests use is a selector. One that many hosts
satisfy owns a bit in the `marks` of every host, so a search can skip blocks without it; one that
few hosts satisfy is kept as a list of those hosts, and the search asks only them. How many
different pools of hosts there are does not matter: only how many different rules are asked.

The first word of the marks belongs to no selector: it says in which rack and zone a host is.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int64Array
from roost.placement.kernels.domain_bits import WHERE, domain_bits
from roost.placement.rankings import Rankings

NO_BIT = -1

#: What a selector says of some hosts.
Column = Callable[[Int64Array], BoolArray]
_WORD_BITS = 63  # the sign bit stays clear
_MOST_WORDS = 64
_FIRST_WORD = WHERE + 1


@dataclass(slots=True)
class Selector:
    """One conjunction of attribute rules: a bit, or the list of the few hosts that satisfy it."""

    column: Column
    seen: int  # head of the attribute log at the last look
    bit: int = NO_BIT  # number of its bit over all words
    rows: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def word(self) -> int:
        """Return the word of its bit, -1 if it has none."""
        return _FIRST_WORD + self.bit // _WORD_BITS if self.bit >= 0 else -1

    @property
    def shift(self) -> int:
        """Return the place of its bit in the word."""
        return self.bit % _WORD_BITS if self.bit >= 0 else 0


class Selectors:
    """All selectors of one fleet, and the marks of its hosts."""

    __slots__ = ("_bits", "_fleet", "_kept", "_located", "_rankings", "generation", "marks")

    def __init__(self, fleet: Fleet, rankings: Rankings) -> None:
        self._fleet = fleet
        self._rankings = rankings
        self._kept: dict[Hashable, Selector] = {}
        self.generation = 0  # grows when every selector was dropped
        self._start()

    def _start(self) -> None:
        self._bits = 0
        self._located = 0  # head of the attribute log at the last look where hosts are
        self.marks = np.zeros((self._fleet.hosts.row_capacity, _FIRST_WORD + 1), np.int64)
        self._locate(np.arange(self._fleet.hosts.count))

    def ensure_rows(self) -> None:
        """Make the marks as long as the host columns, and right about where hosts are."""
        capacity = self._fleet.hosts.row_capacity
        if len(self.marks) < capacity:
            grown = np.zeros((capacity, self.marks.shape[1]), np.int64)
            grown[: len(self.marks)] = self.marks
            self.marks = grown
        if self._located != self._fleet.attribute_changes.head:
            rows = self._fleet.attribute_changes.since(self._located)
            self._locate(np.arange(self._fleet.hosts.count) if rows is None else rows)

    def _locate(self, rows: Int64Array) -> None:
        # The rankings learn of it by the fleet's change log, which has these rows too.
        self.marks[rows, WHERE] = domain_bits(self._fleet.hosts.arrays.domain[rows])
        self._located = self._fleet.attribute_changes.head

    def get(self, key: Hashable, column: Column, *, listed: bool) -> Selector:
        """Return the selector under this key, brought up to date.

        A selector that may be `listed` gets no bit while few hosts satisfy it.
        """
        self.ensure_rows()
        selector = self._kept.get(key)
        if selector is None:
            return self._add(key, column, listed)
        selector.column = column  # who asks may be another than who asked first
        head = self._fleet.attribute_changes.head
        if selector.seen != head:
            rows = self._fleet.attribute_changes.since(selector.seen)
            if rows is None:
                del self._kept[key]
                return self._add(key, column, listed, selector.bit)
            self._update(selector, rows)
            selector.seen = head
        return selector

    def _few(self) -> int:
        return max(32, self._fleet.hosts.count // 512)

    def _add(self, key: Hashable, column: Column, listed: bool, bit: int = NO_BIT) -> Selector:
        rows = np.arange(self._fleet.hosts.count)
        passes = column(rows)
        selector = Selector(column, self._fleet.attribute_changes.head, bit)
        self._kept[key] = selector
        if bit == NO_BIT and listed and np.count_nonzero(passes) <= self._few():
            selector.rows = np.flatnonzero(passes)
        else:
            self._give_bit(selector, rows, passes)
        return selector

    def _give_bit(self, selector: Selector, rows: Int64Array, passes: BoolArray) -> None:
        if selector.bit == NO_BIT:
            selector.bit = self._bits
            self._bits += 1
        word, flag = selector.word, np.int64(1 << selector.shift)
        if word >= self.marks.shape[1]:
            wider = np.zeros((len(self.marks), 2 * self.marks.shape[1]), np.int64)
            wider[:, : self.marks.shape[1]] = self.marks
            self.marks = wider
        self.marks[rows[passes], word] |= flag
        self.marks[rows[~passes], word] &= ~flag
        self._rankings.mark_all(word, selector.shift)

    def _update(self, selector: Selector, rows: Int64Array) -> None:
        passes = selector.column(rows)
        if selector.bit == NO_BIT:
            kept = np.setdiff1d(selector.rows, rows, assume_unique=True)
            selector.rows = np.union1d(kept, rows[passes])
            if len(selector.rows) > 2 * self._few():
                everything = np.arange(self._fleet.hosts.count)
                self._give_bit(selector, everything, np.isin(everything, selector.rows))
            return
        word, flag = selector.word, np.int64(1 << selector.shift)
        gained = rows[passes]
        self.marks[gained, word] |= flag
        self.marks[rows[~passes], word] &= ~flag
        self._rankings.mark_rows(gained, word, selector.shift)

    def evaluate_again(self, key: Hashable) -> None:
        """Look at every host anew, for a rule that depends on more than attributes."""
        selector = self._kept.pop(key, None)
        if selector is not None:
            self._add(key, selector.column, selector.bit == NO_BIT, selector.bit)

    def look_again(self, key: Hashable, rows: Int64Array) -> None:
        """Look at some hosts anew, for a mark that depends on more than attributes."""
        selector = self._kept.get(key)
        if selector is not None and len(rows):
            self._update(selector, rows)

    def full(self) -> bool:
        """Say whether so many bits are given out that it is time to start again."""
        return self._bits >= _MOST_WORDS * _WORD_BITS

    def clear(self) -> None:
        """Forget every selector; those still in use come back when they are asked for."""
        self._kept.clear()
        self._start()
        self.generation += 1
