"""Contradictions of rules by all pairs of conjuncts of all pairs of rules, one after the other."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from roost.control.rules.demands import Demand, demands_of
from roost.model.rules import Rule


def no_value(one: Demand, other: Demand) -> bool:
    """Say whether no value satisfies two demands."""
    if one.path != other.path:
        return False
    for this, that in ((one, other), (other, one)):
        if this.values is not None and not any(_allows(that, value) for value in this.values):
            return True
        if this.least is not None and that.most is not None and _none(this.least, that.most):
            return True
    return False


def _allows(demand: Demand, value: object) -> bool:
    if demand.values is not None:
        return value in demand.values
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if demand.least is not None and _none(demand.least, (value, True)):
        return False
    return demand.most is None or not _none((value, True), demand.most)


def _none(least: tuple[float, bool], most: tuple[float, bool]) -> bool:
    return least[0] > most[0] or (least[0] == most[0] and not (least[1] and most[1]))


def contradictions(rules: Sequence[Rule], mine: str) -> Iterator[tuple[Demand, Demand]]:
    """Yield the first contradiction of each two hard rules, one of them mine, and of each alone."""
    demands = {rule.name: list(demands_of(rule)) for rule in rules if rule.hard}
    for one, other in [*((name, name) for name in demands), *combinations(demands, 2)]:
        if one == other:
            both = list(combinations(demands[one], 2))
        else:
            both = list(product(demands[one], demands[other]))
        found = next(((a, b) for a, b in both if no_value(a, b)), None)
        if found is not None and (one.startswith(mine) or other.startswith(mine)):
            yield found
