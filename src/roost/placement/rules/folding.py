"""An expression with all that is known put in: what is left asks only about what is not.

Equal to the expression it came from on every host: a part that reads nothing unknown becomes its
value, `&&` and `||` lose the terms that decide nothing, and a part whose value is an error becomes
an expression that has an error, since `&&` and `||` may still absorb it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from roost.placement.rules.paths import Path, names, path_of
from roost.rules.evaluating import evaluate, key_value
from roost.rules.positions import NOWHERE, Span
from roost.rules.printing import write
from roost.rules.syntax import (
    Binary,
    Call,
    Conditional,
    Expr,
    Has,
    Ident,
    Index,
    ListOf,
    Literal,
    Logical,
    Macro,
    MapOf,
    Select,
    Unary,
)
from roost.rules.values import Duration, Trouble, type_name

TRUE, FALSE = Literal("bool", True), Literal("bool", False)
#: What `constant` makes of an error, as it is written.
_ERROR = re.compile(r'\{\}\["((?:[^"\\]|\\.)*)"\]')


def with_fields(node: Expr, fields: Mapping[Path, object]) -> Expr:
    """Return the expression with the values of single fields put in."""
    path = path_of(node)
    if path is not None and path in fields:
        return constant(fields[path])
    if names(node).isdisjoint(path[0] for path in fields):
        return node  # most rules read hosts and the VM alone

    def put_in(part: Expr, hidden: str | None) -> Expr:
        if hidden is None:
            return with_fields(part, fields)
        seen = {path: value for path, value in fields.items() if path[0] != hidden}
        return with_fields(part, seen)

    return _rebuilt(node, put_in)


def fold(node: Expr, known: Mapping[str, object]) -> Expr:
    """Return the expression with these variables put in."""
    if isinstance(node, Literal):
        return node
    path = path_of(node)
    if path is not None and path[0] not in known:
        return node
    read = names(node)
    if read <= known.keys():
        value = evaluate(node, known)
        # What the rule itself says stays as it is written: quantity("64Gi") reads better.
        return constant(value) if read or isinstance(value, bool) else node

    def folded(part: Expr, hidden: str | None) -> Expr:
        if hidden is not None and hidden in known:
            return fold(part, {name: known[name] for name in known if name != hidden})
        return fold(part, known)

    match _rebuilt(node, folded):
        case Logical(operator, terms, span=span):
            return joined(operator, terms, span)
        case Unary("!", Literal("bool", bool(value))):
            return FALSE if value else TRUE
        case Conditional(Literal("bool", bool(value)), then, otherwise):
            return then if value else otherwise
        case other:
            return other


def _rebuilt(node: Expr, change: Callable[[Expr, str | None], Expr]) -> Expr:
    """Return the node with its parts changed; inside a macro `change` is told its variable."""
    match node:
        case Literal() | Ident():
            return node
        case Select(operand) | Has(operand) | Unary(_, operand):
            now = change(operand, None)
            return node if now is operand else replace(node, operand=now)
        case Index(operand, index):
            return replace(node, operand=change(operand, None), index=change(index, None))
        case Binary(_, left, right):
            one, other = change(left, None), change(right, None)
            same = one is left and other is right
            return node if same else replace(node, left=one, right=other)
        case Call(_, target, arguments):
            return replace(
                node,
                target=None if target is None else change(target, None),
                arguments=tuple(change(each, None) for each in arguments),
            )
        case Logical(_, terms):
            return replace(node, terms=tuple(change(each, None) for each in terms))
        case Conditional(condition, then, otherwise):
            return replace(
                node,
                condition=change(condition, None),
                then=change(then, None),
                otherwise=change(otherwise, None),
            )
        case ListOf(items):
            return replace(node, items=tuple(change(each, None) for each in items))
        case MapOf(entries):
            return replace(
                node,
                entries=tuple((change(key, None), change(each, None)) for key, each in entries),
            )
        case Macro(_, over, variable, predicate, result):
            return replace(
                node,
                over=change(over, None),
                predicate=None if predicate is None else change(predicate, variable),
                result=None if result is None else change(result, variable),
            )


def joined(operator: str, terms: Sequence[Expr], span: Span = NOWHERE) -> Expr:
    """Return all terms (`&&`) or any term (`||`) as one, without those that decide nothing.

    A term that decides does so whatever the others are, errors included.
    """
    decides, nothing = (FALSE, TRUE) if operator == "&&" else (TRUE, FALSE)
    left: list[Expr] = []
    for term in terms:
        inside: tuple[Expr, ...] = (term,)
        if isinstance(term, Logical) and term.operator == operator:
            inside = term.terms
        for each in inside:
            if each == decides:
                return decides
            if each != nothing and each not in left:
                left.append(each)
    if not left:
        return nothing
    return left[0] if len(left) == 1 else Logical(operator, tuple(left), span=span)


def conjuncts(node: Expr) -> list[Expr]:
    """Return the conditions that hold together exactly where this one holds."""
    match node:
        case Logical("&&", terms):
            return [part for term in terms for part in conjuncts(term)]
        case Unary("!", Logical("||", terms), span=span):
            return [part for term in terms for part in conjuncts(Unary("!", term, span=span))]
        case Unary("!", Unary("!", operand)):
            return conjuncts(operand)
    return [node]


def shown(expr: Expr) -> str:
    """Write what is left of a rule for people: a part whose value is an error as that error."""
    return _ERROR.sub(lambda found: f"({found[1]})", write(expr))


def constant(value: object) -> Expr:
    """Return an expression that has this value, or this error, whatever is asked."""
    if isinstance(value, Trouble):
        return Index(MapOf(()), Literal("string", value.message))
    if value is None or isinstance(value, bool | int | float | str | Duration):
        return Literal(type_name(value), value)
    if isinstance(value, Mapping):
        entries = value.items()
        return MapOf(tuple((constant(key_value(key)), constant(each)) for key, each in entries))
    assert isinstance(value, Sequence)
    return ListOf(tuple(constant(each) for each in value))
