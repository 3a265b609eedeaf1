"""What soft rules charge every host: how far it is from satisfying them, by weight and priority.

A rule that holds costs nothing. One that fails costs its weight times its shortfall: an inequality
falls short by the gap over the larger side, `&&` by the mean of its terms, `||` by the least of
them, anything else (an error too) wholly. Rules of priority 0 add to the score of the strategy.
Higher priorities are compared first, the highest before all others: hosts get ranks by
their penalties in that order, and one rank outweighs every score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from roost.fleet.layout import Int64Array
from roost.model.constraints import BoundRule
from roost.model.rules import WHOLE_WEIGHT
from roost.placement.rules.columns import HOLDS, Known, Patterns, RuleColumns
from roost.placement.rules.facts import amounts_of
from roost.placement.rules.folding import fold
from roost.placement.rules.lines import Sum, fits, sum_of
from roost.placement.rules.parts import Parts, is_kept
from roost.placement.rules.paths import names
from roost.rules.evaluating import Steps, evaluate
from roost.rules.syntax import Binary, Expr, Logical

#: A shortfall as thousandths.
WHOLLY = 1000

#: What one rank costs in hundredths of a score: more than any strategy's scores differ.
RANK_WEIGHT = 2**19

#: What rules of priority 0 charge together at most, so that no number of them outbids a rank.
MOST_CHARGED = RANK_WEIGHT // 2 - 1

#: Ranks beyond this count as this one, so that no penalty can overflow.
MOST_RANK = 2**15 - 1

_INEQUALITIES = {"<": -1, "<=": -1, ">": 1, ">=": 1}


@dataclass(frozen=True, slots=True)
class Penalties:
    """What soft rules charge each host: hundredths of a score, and the rank by priority."""

    charged: Int64Array
    rank: Int64Array

    def spread(self, rows: Int64Array, count: int) -> "Penalties":
        """Return the penalties of these hosts as columns over all; others are charged nothing."""
        charged, rank = np.zeros(count, np.int64), np.zeros(count, np.int64)
        charged[rows], rank[rows] = self.charged, self.rank
        return Penalties(charged, rank)

    def __len__(self) -> int:
        return len(self.charged)

    def __getitem__(self, rows: Int64Array) -> Int64Array:
        return self.charged[rows] + RANK_WEIGHT * self.rank[rows]


class SoftRules:
    """Computes the penalties of one fleet's hosts."""

    __slots__ = ("_columns",)

    def __init__(self, columns: RuleColumns) -> None:
        self._columns = columns

    def penalties(self, rules: Sequence[BoundRule], rows: Int64Array) -> Penalties:
        """Return what these rules charge each of these hosts, which are ranked among each other."""
        levels: dict[int, Int64Array] = {}
        for rule in rules:
            before = levels.get(rule.priority, np.zeros(len(rows), np.int64))
            levels[rule.priority] = before + self.hundredths(rule, rows)
        rank = np.zeros(len(rows), np.int64)
        for priority in sorted((each for each in levels if each > 0), reverse=True):
            values, place = np.unique(levels[priority], return_inverse=True)
            if len(values) > 1:
                _, rank = np.unique(rank * len(values) + place, return_inverse=True)
        charged = levels.get(0, np.zeros(len(rows), np.int64))
        charged = np.minimum(charged, MOST_CHARGED)
        return Penalties(charged, np.minimum(rank, MOST_RANK))

    def hundredths(self, rule: BoundRule, rows: Int64Array) -> Int64Array:
        """Return what one rule charges each of these hosts; a shortfall is never free."""
        assert rule.weight is not None
        return -(-rule.weight * self.shortfall(rule, rows) // (WHOLE_WEIGHT * WHOLLY // 100))

    def shortfall(self, rule: BoundRule, rows: Int64Array) -> Int64Array:
        """Return how far each of these hosts is from satisfying a rule, in thousandths."""
        parts: Parts = rule.parts
        return self._short(parts.whole, parts.patterns, rows)

    def _short(self, expr: Expr, patterns: Patterns, rows: Int64Array) -> Int64Array:
        if names(expr) - {"host"} and not is_kept(expr):
            expr = fold(expr, self._columns.known)
        match expr:
            case Logical(operator, terms):
                short = np.stack([self._short(each, patterns, rows) for each in terms])
                least: Int64Array = short.min(axis=0)
                return -(-short.sum(axis=0) // len(terms)) if operator == "&&" else least
            case Binary(operator, left, right) if operator in _INEQUALITIES:
                one, other = sum_of(left), sum_of(right)
                if one is not None and other is not None and fits(one, other):
                    return self._gaps(expr, one, other, patterns, rows)
                return self._graded(expr, patterns, rows)
        holds = self._columns.judge(expr, patterns, rows) == HOLDS
        return np.where(holds, 0, WHOLLY)

    def _gaps(
        self, expr: Binary, one: Sum, other: Sum, patterns: Patterns, rows: Int64Array
    ) -> Int64Array:
        left, right = self._value(one, rows), self._value(other, rows)
        holds = self._columns.judge(expr, patterns, rows) == HOLDS
        gap = (right - left) * _INEQUALITIES[expr.operator]
        scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1)
        short = np.ceil(WHOLLY * (gap / scale)).astype(np.int64)
        return np.where(holds, 0, np.clip(short, 1, WHOLLY))

    def _value(self, form: Sum, rows: Int64Array) -> Int64Array:
        total = np.full(len(rows), form.rest, np.int64)
        for (source, resource), factor in form.factors.items():
            total += factor * amounts_of(self._columns.fleet, source, resource, rows)
        return total

    def _graded(self, expr: Binary, patterns: Patterns, rows: Int64Array) -> Int64Array:
        def ask(known: Known, steps: Steps) -> int:
            return shortfall_of(expr, known, patterns, steps)

        found: Int64Array = self._columns.by_value(expr, rows, ask, np.int64)
        return found


def shortfall_of(expr: Binary, known: Known, patterns: Patterns, steps: Steps | None = None) -> int:
    """Return how far a comparison of any values is from holding, in thousandths."""
    if evaluate(expr, known, patterns, steps) is True:
        return 0
    left = evaluate(expr.left, known, patterns, steps)
    right = evaluate(expr.right, known, patterns, steps)
    for side in (left, right):
        if isinstance(side, bool) or not isinstance(side, int | float):
            return WHOLLY
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    gap = (right - left) * _INEQUALITIES[expr.operator]
    share = gap / max(abs(left), abs(right), 1)
    if share != share:  # not a number
        return WHOLLY
    return min(max(ceil(WHOLLY * share), 1), WHOLLY)
