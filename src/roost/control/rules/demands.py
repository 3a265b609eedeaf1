"""What the conjuncts of a rule ask of single fields, as far as its text alone says it.

By `==`, `in`, or a comparison with a number. `contradicting` compares them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from roost.model.rules import Rule
from roost.placement.rules.binding import checked
from roost.placement.rules.folding import conjuncts, shown
from roost.placement.rules.paths import Path, names, path_of
from roost.rules.evaluating import evaluate
from roost.rules.syntax import Binary, Expr

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
Number = int | float


@dataclass(frozen=True, slots=True)
class Demand:
    """What one conjunct asks of one field: one of some values, or to lie within bounds."""

    rule: str
    conjunct: Expr
    path: Path
    values: frozenset[object] | None = None
    least: tuple[Number, bool] | None = None  # the bound, and whether it is a value itself
    most: tuple[Number, bool] | None = None

    @property
    def part(self) -> str:
        """Return the conjunct as it is written; of the few that are told."""
        return shown(self.conjunct)

    def contradicts(self, other: "Demand") -> bool:
        """Say whether no value satisfies both."""
        if self.path != other.path:
            return False
        if self.values is not None and other.values is not None:
            return self.values.isdisjoint(other.values)
        for one, two in ((self, other), (other, self)):
            if one.values is not None and not any(two.allows(each) for each in one.values):
                return True
            if one.least is not None and two.most is not None and _empty(one.least, two.most):
                return True
        return False

    def allows(self, value: object) -> bool:
        """Say whether a value satisfies this demand."""
        if self.values is not None:
            return value in self.values
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        here = (value, True)
        return not (self.least is not None and _empty(self.least, here)) and not (
            self.most is not None and _empty(here, self.most)
        )


def _empty(least: tuple[Number, bool], most: tuple[Number, bool]) -> bool:
    return least[0] > most[0] or (least[0] == most[0] and not (least[1] and most[1]))


def demands_of(rule: Rule) -> Iterator[Demand]:
    """Yield what the conjuncts of a rule ask of single fields."""
    for part in conjuncts(checked(rule.expression).expr):
        if isinstance(part, Binary):
            found = _demand(rule.name, part)
            if found is not None:
                yield found


def _demand(rule: str, part: Binary) -> Demand | None:
    path, operator, value = path_of(part.left), part.operator, _constant(part.right)
    if operator == "in":
        if path is None or not isinstance(value, list):
            return None
        return Demand(rule, part, path, values=frozenset(value))
    if operator not in _TURNED:
        return None
    if path is None or value is None:  # written the other way round
        path, operator, value = path_of(part.right), _TURNED[operator], _constant(part.left)
    if path is None or value is None:
        return None
    if operator == "==":
        return Demand(rule, part, path, values=frozenset([value]))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    bound = (value, operator in ("<=", ">="))
    if operator in (">", ">="):
        return Demand(rule, part, path, least=bound)
    return Demand(rule, part, path, most=bound)


def _constant(node: Expr) -> object:
    """Return the value of an expression that reads nothing, as far as it is a plain one."""
    if names(node):
        return None
    value = evaluate(node, {})
    if isinstance(value, list):
        return value if all(isinstance(each, str | int | float | bool) for each in value) else None
    return value if isinstance(value, str | int | float | bool) else None
