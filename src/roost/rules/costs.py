"""What evaluating a rule may cost, from its text alone: refused when it is made, not at a decision.

Counts the steps that the interpreter would take if every macro went through all its items. A list
that is written out has its length, one that is read from a field an assumed one. The interpreter's
own count holds whatever the lists are.
"""

from collections.abc import Mapping
from typing import NamedTuple

from roost.rules.mistakes import mistake
from roost.rules.syntax import (
    Binary,
    Conditional,
    Expr,
    Ident,
    ListOf,
    Macro,
    MapOf,
    children,
)

#: Steps of one evaluation: parts evaluated, items of lists made, searched or compared, and 64
#: characters of texts made or searched.
MAX_STEPS = 20_000

#: Items that a list or map of a field is taken to have.
ASSUMED_ITEMS = 16


class _Size(NamedTuple):
    """Items of a list, and what the largest item of it has inside."""

    items: int = ASSUMED_ITEMS
    inside: "_Size | None" = None


_UNKNOWN = _Size()


def check_cost(expr: Expr, text: str) -> None:
    """Refuse a rule whose nested macros could take too many steps."""
    _cost(expr, {}, text)


def _cost(node: Expr, scope: Mapping[str, _Size], text: str) -> int:
    """Return the steps of a node, with the sizes of the variables that macros have bound."""
    if not isinstance(node, Macro):
        return 1 + sum(_cost(part, scope, text) for part in children(node))
    size = _size(node.over, scope)
    inner = {**scope, node.variable: size.inside or _UNKNOWN}
    each = 1 + sum(
        _cost(part, inner, text) for part in (node.predicate, node.result) if part is not None
    )
    cost = 1 + _cost(node.over, scope, text) + size.items * each
    if cost > MAX_STEPS:
        raise mistake(
            text,
            node.span,
            f"{node.name}() may take {cost} steps on every host; at most {MAX_STEPS} are allowed",
            maybe="fewer macros inside each other, or shorter lists, are meant.",
        )
    return cost


def _size(node: Expr, scope: Mapping[str, _Size]) -> _Size:
    match node:
        case ListOf(items):
            return _Size(len(items), _largest([_size(each, scope) for each in items]))
        case MapOf(entries):
            return _Size(len(entries))
        case Ident(name) if name in scope:
            return scope[name]
        case Macro("filter", over):
            return _size(over, scope)
        case Macro("map", over, variable, _, result) if result is not None:
            outer = _size(over, scope)
            return _Size(outer.items, _size(result, {**scope, variable: outer.inside or _UNKNOWN}))
        case Binary("+", left, right):
            one, other = _size(left, scope), _size(right, scope)
            inside = [each.inside or _UNKNOWN for each in (one, other)]
            return _Size(one.items + other.items, _largest(inside))
        case Conditional(_, then, otherwise):
            return _largest([_size(then, scope), _size(otherwise, scope)]) or _UNKNOWN
    return _UNKNOWN


def _largest(sizes: list[_Size]) -> _Size | None:
    """Return a size that no other exceeds: the most items, with the most inside."""
    if not sizes:
        return None
    inside = [each.inside for each in sizes if each.inside is not None]
    return _Size(max(each.items for each in sizes), _largest(inside))
