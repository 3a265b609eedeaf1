"""Comparisons of a host's amounts as inequalities between whole numbers.

`host.free.memory >= 68719476736` is a floor: the index passes over blocks of hosts that cannot
reach it. `host.committed.cpu * 2 <= host.capacity.cpu` is an inequality that the kernels ask of
each host that passes all else. Only what cannot overflow becomes one, so that both agree with the
evaluator, for which an overflow is an error.
"""

from dataclasses import dataclass

from roost.model.resources import BASE_RESOURCES
from roost.placement.rules.paths import names, path_of
from roost.rules.evaluating import evaluate
from roost.rules.syntax import Binary, Expr, Literal, Unary

#: Where an amount is read.
FREE, COMMITTED, CAPACITY, VMS, TOTAL = "free", "committed", "capacity", "vms", "total"

#: An amount of a host: where it is read, and the resource; VMs have none.
Amount = tuple[str, str]

#: No amount of a host is larger, and no sum may be.
_MOST_AMOUNT, _MOST_SUM = 2**50, 2**61

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Line:
    """The inequality: sum of factor x amount >= bound."""

    terms: tuple[tuple[Amount, int], ...]
    bound: int

    @property
    def floor(self) -> tuple[str, int] | None:
        """Return (resource, least) if it only asks for so much of one resource to be free."""
        if len(self.terms) != 1:
            return None
        [((source, resource), factor)] = self.terms
        if source != FREE or factor < 1:
            return None
        return resource, -(-self.bound // factor)


@dataclass(frozen=True, slots=True)
class Sum:
    """Factors of amounts and a constant; `most` is above every value on the way there."""

    factors: dict[Amount, int]
    rest: int
    most: int


def lines_of(node: Expr) -> tuple[Line, ...] | None:
    """Return the inequalities that hold exactly where the comparison does, None if it is none."""
    if not isinstance(node, Binary) or node.operator not in (*_TURNED, "=="):
        return None
    left, right = sum_of(node.left), sum_of(node.right)
    if left is None or right is None or not (left.factors or right.factors):
        return None
    if not fits(left, right):
        return None
    both = (_at_least(left, right), _at_least(right, left))
    match node.operator:
        case ">=":
            return both[:1]
        case "<=":
            return both[1:]
        case ">":
            return (Line(both[0].terms, both[0].bound + 1),)
        case "<":
            return (Line(both[1].terms, both[1].bound + 1),)
    return both


def fits(left: Sum, right: Sum) -> bool:
    """Say whether no value on the way to comparing two sums can overflow."""
    return left.most + right.most <= _MOST_SUM


def _at_least(left: Sum, right: Sum) -> Line:
    """Return left >= right."""
    factors = dict(left.factors)
    for amount, factor in right.factors.items():
        factors[amount] = factors.get(amount, 0) - factor
    terms = tuple(sorted((amount, factor) for amount, factor in factors.items() if factor))
    return Line(terms, right.rest - left.rest)


def sum_of(node: Expr) -> Sum | None:
    """Return an expression of whole numbers as a sum, None if it is not one."""
    if not isinstance(node, Literal) and not names(node):
        value = evaluate(node, {})
        if isinstance(value, int) and not isinstance(value, bool):
            return Sum({}, value, abs(value))
        return None
    match node:
        case Literal("int", int(value)):
            return Sum({}, value, abs(value))
        case Unary("-", operand):
            inside = sum_of(operand)
            return None if inside is None else _scaled(inside, -1)
        case Binary("+" | "-" as operator, left, right):
            one, other = sum_of(left), sum_of(right)
            if one is None or other is None:
                return None
            return _added(one, other if operator == "+" else _scaled(other, -1))
        case Binary("*", left, right):
            one, other = sum_of(left), sum_of(right)
            if one is None or other is None or (one.factors and other.factors):
                return None
            return _scaled(one, other.rest) if not other.factors else _scaled(other, one.rest)
    amount = amount_of(node)
    return None if amount is None else Sum({amount: 1}, 0, _MOST_AMOUNT)


def amount_of(node: Expr) -> Amount | None:
    """Return the amount that a field reads, of those that every host has."""
    match path_of(node):
        case ("host", ("free" | "committed" | "capacity" | "total") as source, resource):
            return (source, resource) if resource in BASE_RESOURCES else None
        case ("host", "vms"):
            return (VMS, "")
    return None


def _scaled(inside: Sum, factor: int) -> Sum:
    factors = {amount: each * factor for amount, each in inside.factors.items()}
    return Sum(factors, inside.rest * factor, max(inside.most, inside.most * abs(factor)))


def _added(one: Sum, other: Sum) -> Sum:
    factors = dict(one.factors)
    for amount, factor in other.factors.items():
        factors[amount] = factors.get(amount, 0) + factor
    return Sum(factors, one.rest + other.rest, one.most + other.most)
