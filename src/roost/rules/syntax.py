"""Expressions of the rule language as a tree of frozen nodes.

Two nodes are equal when they mean the same text; where they stand (`span`) does not count, so equal
parts of different rules can share what was computed for one of them. Chains of `&&` and of `||` are
one node with all their terms. Nothing here knows which fields exist or what they hold.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.rules.positions import NOWHERE, Span
from roost.rules.values import Duration


@dataclass(frozen=True, slots=True)
class Node:
    """What all nodes have: the characters of the rule that they were read from."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant. `kind` tells 1, 1.0 and true apart, which Python calls equal."""

    kind: str  # null, bool, int, double, string, duration
    value: bool | int | float | str | Duration | None


@dataclass(frozen=True, slots=True)
class Ident(Node):
    """A variable: host, vm, project, group, fleet, or one that a macro binds."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`: a field of a record, or the value of a map under this key."""

    operand: "Expr"
    field: str


@dataclass(frozen=True, slots=True)
class Has(Node):
    """`has(operand.field)`: whether the field is there."""

    operand: "Expr"
    field: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`operand[index]`: an item of a list, or the value of a map under a key."""

    operand: "Expr"
    index: "Expr"


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(arguments)`, or `target.function(arguments)`."""

    function: str
    target: "Expr | None"
    arguments: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`!operand` or `-operand`."""

    operator: str
    operand: "Expr"


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """A comparison, `in`, or arithmetic."""

    operator: str  # == != < <= > >= in + - * / %
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """All terms (`&&`) or any term (`||`): two or more, none of them of the same operator."""

    operator: str  # && ||
    terms: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`condition ? then : otherwise`."""

    condition: "Expr"
    then: "Expr"
    otherwise: "Expr"


@dataclass(frozen=True, slots=True)
class ListOf(Node):
    """A list that is written out: `[item, ...]`."""

    items: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class MapOf(Node):
    """A map that is written out: `{key: value, ...}`."""

    entries: tuple[tuple["Expr", "Expr"], ...]


@dataclass(frozen=True, slots=True)
class Macro(Node):
    """`over.all(variable, predicate)` and its like; `result` is the last argument of map."""

    name: str  # all exists exists_one filter map
    over: "Expr"
    variable: str
    predicate: "Expr | None"
    result: "Expr | None" = None


Expr = (
    Literal
    | Ident
    | Select
    | Has
    | Index
    | Call
    | Unary
    | Binary
    | Logical
    | Conditional
    | ListOf
    | MapOf
    | Macro
)


def _none(node: Any) -> tuple[Expr, ...]:
    return ()


def _operand(node: Any) -> tuple[Expr, ...]:
    return (node.operand,)


#: The expressions directly inside each kind of node: asked of every node of every rule, for which a
#: match statement takes four times as long.
_CHILDREN: Mapping[type, Callable[[Any], tuple[Expr, ...]]] = {
    Literal: _none,
    Ident: _none,
    Select: _operand,
    Has: _operand,
    Unary: _operand,
    Index: lambda node: (node.operand, node.index),
    Call: lambda node: node.arguments if node.target is None else (node.target, *node.arguments),
    Binary: lambda node: (node.left, node.right),
    Logical: lambda node: node.terms,
    Conditional: lambda node: (node.condition, node.then, node.otherwise),
    ListOf: lambda node: node.items,
    MapOf: lambda node: tuple(part for entry in node.entries for part in entry),
    Macro: lambda node: tuple(
        part for part in (node.over, node.predicate, node.result) if part is not None
    ),
}


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the expressions directly inside a node, in the order they are written."""
    return _CHILDREN[type(node)](node)


def walk(node: Expr) -> Iterator[Expr]:
    """Yield the node and everything inside it, outermost first."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))
