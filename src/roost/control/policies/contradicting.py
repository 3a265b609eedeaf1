"""Rules that cannot hold together, found from their texts alone, whatever the hosts are.

Only what every reader sees: two conjuncts about one field that leave it no value, by `==`, `in`,
or a comparison with a number. What is not found here may still have no host (`conflicts`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

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
    part: str
    path: Path
    values: frozenset[object] | None = None
    least: tuple[Number, bool] | None = None  # the bound, and whether it is a value itself
    most: tuple[Number, bool] | None = None

    def contradicts(self, other: "Demand") -> bool:
        """Say whether no value satisfies both."""
        if self.path != other.path:
            return False
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


def contradictions(rules: Sequence[Rule]) -> Iterator[tuple[Demand, Demand]]:
    """Yield the first contradiction of each two hard rules, and of each rule with itself."""
    demands = {rule.name: list(demands_of(rule)) for rule in rules if rule.hard}
    pairs = [*((name, name) for name in demands), *combinations(demands, 2)]
    for one, other in pairs:
        if one == other:
            both = combinations(demands[one], 2)
        else:
            both = ((a, b) for a in demands[one] for b in demands[other])  # type: ignore[assignment]
        found = next(((a, b) for a, b in both if a.contradicts(b)), None)
        if found is not None:
            yield found


def demands_of(rule: Rule) -> Iterator[Demand]:
    """Yield what the conjuncts of a rule ask of single fields."""
    for part in conjuncts(checked(rule.expression).expr):
        if isinstance(part, Binary):
            found = _demand(rule.name, shown(part), part)
            if found is not None:
                yield found


def _demand(rule: str, text: str, part: Binary) -> Demand | None:
    path, operator, value = path_of(part.left), part.operator, _constant(part.right)
    if operator == "in":
        if path is None or not isinstance(value, list):
            return None
        return Demand(rule, text, path, values=frozenset(value))
    if operator not in _TURNED:
        return None
    if path is None or value is None:  # written the other way round
        path, operator, value = path_of(part.right), _TURNED[operator], _constant(part.left)
    if path is None or value is None:
        return None
    if operator == "==":
        return Demand(rule, text, path, values=frozenset([value]))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    bound = (value, operator in ("<=", ">="))
    if operator in (">", ">="):
        return Demand(rule, text, path, least=bound)
    return Demand(rule, text, path, most=bound)


def _constant(node: Expr) -> object:
    """Return the value of an expression that reads nothing, as far as it is a plain one."""
    if names(node):
        return None
    value = evaluate(node, {})
    if isinstance(value, list):
        return value if all(isinstance(each, str | int | float | bool) for each in value) else None
    return value if isinstance(value, str | int | float | bool) else None
