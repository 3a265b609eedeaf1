"""Which part of which rule does not hold on a host, with the values that the host has there.

Goes by the evaluator itself, one host at a time, so that an explanation says what the rule's author
would find by hand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roost.fleet.fleet import Fleet
from roost.model.constraints import BoundRule, HostRequirements
from roost.placement.rules.facts import HostRecord
from roost.placement.rules.folding import constant
from roost.placement.rules.parts import Part, Parts, hard_parts
from roost.placement.rules.paths import Path, reads
from roost.rules.evaluating import evaluate
from roost.rules.printing import write
from roost.rules.syntax import Expr, Ident, Select
from roost.rules.values import Trouble


@dataclass(frozen=True, slots=True)
class RuleRefusal:
    """A part of a rule that does not hold on a host: its text, what it read, or its error."""

    rule: str
    part: str
    values: tuple[tuple[str, str], ...]
    error: str = ""


def refusals(
    fleet: Fleet, row: int, terms: HostRequirements, known: Mapping[str, object]
) -> tuple[RuleRefusal, ...]:
    """Return every part of the hard rules that bind a VM which does not hold on a host."""
    bindings = {**known, "host": HostRecord(fleet, row)}
    return _not_true(hard_parts(terms), bindings)


def shortcomings(
    fleet: Fleet, row: int, rule: BoundRule, known: Mapping[str, object]
) -> tuple[RuleRefusal, ...]:
    """Return every part of one rule, hard or soft, which does not hold on a host."""
    parts: Parts = rule.parts
    bindings = {**known, "host": HostRecord(fleet, row)}
    return _not_true(((rule, part) for part in parts.conjuncts), bindings)


def _not_true(
    asked: Iterable[tuple[BoundRule, Part]], bindings: Mapping[str, object]
) -> tuple[RuleRefusal, ...]:
    found = []
    for rule, part in asked:
        value = evaluate(part.expr, bindings, part.patterns)
        if value is not True:
            error = value.message if isinstance(value, Trouble) else ""
            found.append(RuleRefusal(rule.name, part.text, _values(part.expr, bindings), error))
    return tuple(found)


def _values(expr: Expr, bindings: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return what an expression read, by path; what is missing is left out."""
    values = []
    for path in sorted(reads(expr)):
        node = _node(path)
        value = evaluate(node, bindings)
        if len(path) > 1 and not isinstance(value, Trouble):
            values.append((write(node), write(constant(value))))
    return tuple(values)


def _node(path: Path) -> Expr:
    node: Expr = Ident(path[0])
    for name in path[1:]:
        node = Select(node, name)
    return node
