"""Conditions as columns: for every host true, false or error, exactly as the evaluator says.

A condition is evaluated once for each different combination of what it reads, not once per host.
What only a host's attributes decide is kept, and computed again for the hosts whose attributes
changed. `&&`, `||`, `!` and `?:` join columns as they join values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import BoundRule, HostRequirements
from roost.placement.rules.facts import HostRecord, amounts_of, host_codes
from roost.placement.rules.folding import fold
from roost.placement.rules.lines import Line, lines_of
from roost.placement.rules.parts import How, Part, Parts, hard_parts, is_kept
from roost.placement.rules.paths import names, reads
from roost.placement.rules.refusing import RuleRefusal, refusals
from roost.rules.evaluating import Steps, evaluate
from roost.rules.syntax import Conditional, Expr, Literal, Logical, Unary

#: What a condition is on a host.
HOLDS, FAILS, ERROR = 1, 0, -1

Int8Array = npt.NDArray[np.int8]
Patterns = Mapping[str, Any]
#: What a decision knows besides hosts: its group, its project, the whole fleet.
Known = Mapping[str, object]

#: Parts of rules that only attributes decide, and all that are known before a search begins.
ATTRIBUTES = frozenset({How.KEPT})
BEFOREHAND = frozenset({How.KEPT, How.ANEW})

#: Kept columns in all; beyond that everything is forgotten and asked for again.
_MOST_KEPT = 4096

#: Steps that a column may take (about half a microsecond each): some in all, and some for each
#: different host, so that a plain condition is answered however many hosts there are. The hosts
#: that are left when they are used up are errors.
COLUMN_STEPS = 100_000
HOST_STEPS = 16


@dataclass(slots=True)
class _Kept:
    """A column of all hosts, and the head of the attribute log when it was right."""

    values: Int8Array
    seen: int


class RuleColumns:
    """The columns of one fleet."""

    __slots__ = ("_kept", "fleet", "known")

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._kept: dict[Expr, _Kept] = {}
        #: What the decision at hand knows; set before what is computed anew is asked for.
        self.known: Known = {}

    # Rules

    def rule(self, rule: BoundRule, rows: Int64Array) -> Int8Array:
        """Return what a whole rule is on these hosts."""
        parts: Parts = rule.parts
        return self._all([self.part(each, rows) for each in parts.conjuncts], rows)

    def part(self, part: Part, rows: Int64Array) -> Int8Array:
        """Return what one conjunct is on these hosts."""
        if part.how is How.KEPT:
            return self._kept_column(part.expr, part.patterns)[rows]
        return self.judge(part.expr, part.patterns, rows)

    def hold(self, terms: HostRequirements, rows: Int64Array, which: frozenset[How]) -> BoolArray:
        """Return which hosts satisfy all such parts of the hard rules that bind a VM."""
        passes = np.ones(len(rows), np.bool_)
        for _, part in hard_parts(terms):
            if part.how in which:
                passes &= self.part(part, rows) == HOLDS
        return passes

    def refusals(self, terms: HostRequirements, row: int) -> tuple[RuleRefusal, ...]:
        """Return which parts of hard rules do not hold on one host, with its values."""
        found = refusals(self.fleet, row, terms, self.known)
        told = {(each.rule, each.part) for each in found}
        at = np.array([row])
        unanswered = tuple(
            RuleRefusal(rule.name, part.text, (), "the rule takes too many steps for so many hosts")
            for rule, part in hard_parts(terms)
            if part.how is How.KEPT
            and (rule.name, part.text) not in told
            and self.part(part, at)[0] == ERROR
        )
        return found + unanswered

    # Conditions

    def judge(self, expr: Expr, patterns: Patterns, rows: Int64Array) -> Int8Array:
        """Return what a condition is on these hosts."""
        if is_kept(expr):
            return self._kept_column(expr, patterns)[rows]
        if names(expr) - {"host"}:
            folded = fold(expr, self.known)
            if folded != expr:
                return self.judge(folded, patterns, rows)
        match expr:
            case Logical("&&", terms):
                return self._all([self.judge(each, patterns, rows) for each in terms], rows)
            case Logical("||", terms):
                turned = [_not(self.judge(each, patterns, rows)) for each in terms]
                return _not(self._all(turned, rows))
            case Unary("!", operand):
                return _not(self.judge(operand, patterns, rows))
            case Conditional(condition, then, otherwise):
                asked = self.judge(condition, patterns, rows)
                found = np.where(
                    asked == HOLDS,
                    self.judge(then, patterns, rows),
                    self.judge(otherwise, patterns, rows),
                )
                return np.where(asked == ERROR, ERROR, found).astype(np.int8)
        lines = lines_of(expr)
        if lines is not None:
            return self.lines_hold(lines, rows).astype(np.int8)
        return self._evaluated(expr, patterns, rows)

    def lines_hold(self, lines: Sequence[Line], rows: Int64Array) -> BoolArray:
        """Return on which of these hosts all inequalities hold."""
        holds = np.ones(len(rows), np.bool_)
        for line in lines:
            holds &= self.sums(line, rows) >= line.bound
        return holds

    def sums(self, line: Line, rows: Int64Array) -> Int64Array:
        """Return the left side of an inequality on these hosts."""
        total = np.zeros(len(rows), np.int64)
        for (source, resource), factor in line.terms:
            total += factor * amounts_of(self.fleet, source, resource, rows)
        return total

    def by_value(
        self, expr: Expr, rows: Int64Array, ask: Callable[[Known, Steps], int], dtype: type
    ) -> npt.NDArray[Any]:
        """Return `ask` for each host, called once for every combination of what is read.

        All calls share the steps of one column.
        """
        places, inverse = self._different(expr, rows)
        steps = Steps(COLUMN_STEPS + HOST_STEPS * len(places))
        answers: npt.NDArray[Any] = np.array(
            [ask({"host": HostRecord(self.fleet, row)}, steps) for row in places], dtype
        )
        return answers[inverse]

    def _all(self, columns: Sequence[Int8Array], rows: Int64Array) -> Int8Array:
        """Join conditions that must all hold: one that fails decides, then one with an error."""
        if not columns:
            return np.full(len(rows), HOLDS, np.int8)
        joined = columns[0]
        for column in columns[1:]:
            fails = (joined == FAILS) | (column == FAILS)
            joined = np.where(fails, FAILS, np.minimum(joined, column)).astype(np.int8)
        return joined

    def _evaluated(self, expr: Expr, patterns: Patterns, rows: Int64Array) -> Int8Array:
        if isinstance(expr, Literal) and isinstance(expr.value, bool):
            return np.full(len(rows), int(expr.value), np.int8)

        def ask(known: Known, steps: Steps) -> int:
            found = evaluate(expr, known, patterns, steps)
            return int(found) if isinstance(found, bool) else ERROR

        return self.by_value(expr, rows, ask, np.int8)

    def _different(self, expr: Expr, rows: Int64Array) -> tuple[list[int], Int64Array]:
        """Return one host for each combination of what is read, and the combination of each."""
        if len(rows) == 1:
            return rows.tolist(), np.zeros(1, np.int64)
        paths = [path for path in reads(expr) if path[0] == "host"]
        inverse = np.zeros(len(rows), np.int64)
        places = np.zeros(min(1, len(rows)), np.int64)
        for path in paths:
            values, codes = np.unique(host_codes(self.fleet, path, rows), return_inverse=True)
            if len(values) > 1:
                pairs = inverse * len(values) + codes
                _, places, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        return rows[places].tolist(), inverse

    def _kept_column(self, expr: Expr, patterns: Patterns) -> Int8Array:
        """Return the column of all hosts, computed again where attributes changed."""
        log, count = self.fleet.attribute_changes, self.fleet.hosts.count
        kept = self._kept.get(expr)
        if kept is not None:
            if kept.seen == log.head:
                return kept.values
            rows = log.since(kept.seen)
            if rows is not None:
                if len(kept.values) < count:
                    grown = np.zeros(self.fleet.hosts.row_capacity, np.int8)
                    grown[: len(kept.values)] = kept.values
                    kept.values = grown
                kept.values[rows] = self._evaluated(expr, patterns, rows)
                kept.seen = log.head
                return kept.values
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        values = np.zeros(self.fleet.hosts.row_capacity, np.int8)
        values[:count] = self._evaluated(expr, patterns, np.arange(count))
        self._kept[expr] = _Kept(values, log.head)
        return values


def _not(column: Int8Array) -> Int8Array:
    return np.where(column == ERROR, ERROR, 1 - column).astype(np.int8)
