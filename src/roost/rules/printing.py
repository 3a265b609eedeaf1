"""Write a tree as the text of a rule, in one canonical form.

`parse(write(tree)) == tree`, for every tree that `parse` or `tree.from_tree` has made. Comments and
needless brackets are gone, strings have double quotes, operators have a space on either side.
"""

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
from roost.rules.values import Duration

#: How tightly the outermost operator of a text binds; what binds less is put into brackets.
_CONDITIONAL, _OR, _AND, _RELATION, _SUM, _PRODUCT, _SIGN, _MEMBER = range(8)

_BINDS = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), _RELATION),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write(expr: Expr) -> str:
    """Return the canonical text of an expression."""
    return _write(expr, _CONDITIONAL)


def quoted(text: str) -> str:
    """Return a text as a string literal."""
    return f'"{"".join(map(_character, text))}"'


def _character(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    point = ord(char)
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _write(expr: Expr, least: int) -> str:
    """Write an expression where operators must bind at least this tightly."""
    text, binds = _written(expr)
    return text if binds >= least else f"({text})"


def _written(expr: Expr) -> tuple[str, int]:
    match expr:
        case Literal(_, value):
            return _literal(value)
        case Ident(name):
            return name, _MEMBER
        case Select(operand, field):
            return f"{_write(operand, _MEMBER)}.{field}", _MEMBER
        case Has(operand, field):
            return f"has({_write(operand, _MEMBER)}.{field})", _MEMBER
        case Index(operand, index):
            return f"{_write(operand, _MEMBER)}[{write(index)}]", _MEMBER
        case Call(function, target, arguments):
            owner = "" if target is None else f"{_write(target, _MEMBER)}."
            return f"{owner}{function}({_joined(arguments)})", _MEMBER
        case Unary(operator, operand):
            # A sign before a number would become part of it.
            text = _write(operand, _MEMBER)
            return f"{operator}({text})" if text[0] in "0123456789" else f"{operator}{text}", _SIGN
        case Binary(operator, left, right):
            binds = _BINDS[operator]
            return f"{_write(left, binds)} {operator} {_write(right, binds + 1)}", binds
        case Logical(operator, terms):
            binds = _OR if operator == "||" else _AND
            return f" {operator} ".join(_write(term, binds + 1) for term in terms), binds
        case Conditional(condition, then, otherwise):
            question = f"{_write(condition, _OR)} ? {_write(then, _OR)}"
            return f"{question} : {write(otherwise)}", _CONDITIONAL
        case ListOf(items):
            return f"[{_joined(items)}]", _MEMBER
        case MapOf(entries):
            inside = ", ".join(f"{write(key)}: {write(value)}" for key, value in entries)
            return f"{{{inside}}}", _MEMBER
        case Macro(name, over, variable, predicate, result):
            parts = [variable, *(write(part) for part in (predicate, result) if part is not None)]
            return f"{_write(over, _MEMBER)}.{name}({', '.join(parts)})", _MEMBER


def _joined(items: tuple[Expr, ...]) -> str:
    return ", ".join(map(write, items))


def _literal(value: bool | int | float | str | Duration | None) -> tuple[str, int]:
    match value:
        case None:
            return "null", _MEMBER
        case bool():
            return ("true" if value else "false"), _MEMBER
        case str():
            return quoted(value), _MEMBER
        case Duration(ns):
            return f'duration("{ns}ns")', _MEMBER
    return repr(value), _SIGN if value < 0 else _MEMBER
