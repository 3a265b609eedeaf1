"""The JSON form of rules, and conversion from and to the language.

It is the ConstraintExpression of the Resource-Aware Scheduler plan:

    {"left": "host.zone", "operator": "in", "right": ["a", "b"]}
    {"logicalOperator": "AND", "subExpressions": [..., ...]}

`left` is a field. `right` is a value, a list of values, or `{"field": "vm.demand.memory"}`; beside
an amount a text means a quantity ("64Gi") or cores ("250m"). The tree can say less than the
language: what it cannot say is refused at its place, never approximated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from roost.base.errors import RuleError
from roost.rules.checking import Condition, condition
from roost.rules.fields import AMOUNT_RECORDS, FIELDS, RESOURCE_UNITS, Fields
from roost.rules.mistakes import closest, mistake
from roost.rules.parsing import MAX_DEPTH, MAX_ITEMS, parse
from roost.rules.printing import write
from roost.rules.syntax import (
    Binary,
    Call,
    Expr,
    Has,
    Ident,
    Index,
    ListOf,
    Literal,
    Logical,
    Select,
    Unary,
)
from roost.rules.types import STRING, Type
from roost.rules.values import INT_MAX, INT_MIN

COMPARISONS = {"eq": "==", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
OPERATORS = (*COMPARISONS, "in", "not_in", "exists", "not_exists", "contains")
LOGICAL = {"AND": "&&", "OR": "||"}

_NAMES = {mark: name for name, mark in COMPARISONS.items()}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KEYS = ("left", "operator", "right", "subExpressions", "logicalOperator")
_LEAF = '{"left": "host.zone", "operator": "eq", "right": "a"} or the like is meant.'
_QUANTITIES = {"bytes": "quantity", "millicores": "cores"}


def condition_of_tree(tree: object, fields: Fields = FIELDS) -> Condition:
    """Convert a tree of decoded JSON to the language, and check it; places are of its text."""
    return condition(write(from_tree(tree, fields)), fields)


def from_tree(tree: object, fields: Fields = FIELDS) -> Expr:
    """Return the expression that a tree of decoded JSON means; its types are not checked yet."""
    return _Reading(fields).node(tree, "expression", 1)


def to_tree(expr: Expr, text: str, fields: Fields = FIELDS) -> dict[str, Any]:
    """Return the tree of an expression; what it cannot say is refused at its place in the text."""
    return _Writing(text, fields).node(expr)


def path_type(expr: Expr, fields: Fields) -> tuple[str, Type] | None:
    """Return path and type of a field, a label or an amount; None for any other expression."""
    if isinstance(expr, Ident):
        kind = fields.members[""].get(expr.name)
        return None if kind is None else (expr.name, kind)
    if isinstance(expr, Select):
        key = expr.field
    elif isinstance(expr, Index) and isinstance(expr.index, Literal):
        if not isinstance(expr.index.value, str):
            return None
        key = expr.index.value
    else:
        return None
    owner = path_type(expr.operand, fields)
    if owner is None:
        return None
    path, kind = owner
    if kind.name == "map":
        return f"{path}.{key}", kind.inside[1]
    if kind.name == "record":
        found = fields.members[kind.path].get(key)
        if found is None and kind.path in AMOUNT_RECORDS and isinstance(expr, Index):
            found = fields.members[kind.path]["cpu"]
        return None if found is None else (f"{path}.{key}", found)
    return None


def _unit(path: str) -> str:
    """Return the unit of an amount: bytes, millicores, or none."""
    record, _, resource = path.rpartition(".")
    return RESOURCE_UNITS.get(resource, "") if record in AMOUNT_RECORDS else ""


class _Reading:
    """A tree on its way to an expression; `at` names the place in the JSON."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields

    def mistake(self, at: str, message: str, maybe: str) -> RuleError:
        """Build the error of a mistake at a place in the tree."""
        return RuleError(message, line=1, column=1, picture="", hint=f"Maybe {maybe}", at=at)

    def node(self, tree: object, at: str, level: int) -> Expr:
        """Read one object of the tree."""
        if level > MAX_DEPTH:
            maybe = "several rules are meant: all of them must hold."
            raise self.mistake(at, f"the tree is nested more than {MAX_DEPTH} levels deep", maybe)
        if not isinstance(tree, Mapping):
            raise self.mistake(at, f"an object is needed here, not {tree!r:.40}", _LEAF)
        for key in tree:
            if key not in _KEYS:
                meant = closest(str(key), _KEYS)
                maybe = f"{meant} is meant." if meant else f"one of {', '.join(_KEYS)} is meant."
                raise self.mistake(at, f"there is no {key!r:.40} in a constraint expression", maybe)
        present = {key for key in _KEYS if tree.get(key) not in (None, "", [], ())}
        if "logicalOperator" in present or "subExpressions" in present:
            if present & {"left", "operator"} or tree.get("right") is not None:
                raise self.mistake(
                    at,
                    "either left and operator or subExpressions, not both",
                    "the comparison is meant as one more of the subExpressions.",
                )
            return self.compound(tree, at, level)
        return self.leaf(tree, at)

    def compound(self, tree: Mapping[str, Any], at: str, level: int) -> Expr:
        """Read AND, OR or NOT of other objects."""
        word, inside = tree.get("logicalOperator"), tree.get("subExpressions")
        if word not in ("AND", "OR", "NOT"):
            raise self.mistake(
                f"{at}.logicalOperator", f"{word!r:.40} is none of AND, OR and NOT", "AND is meant."
            )
        if not isinstance(inside, Sequence) or isinstance(inside, str) or not inside:
            raise self.mistake(
                f"{at}.subExpressions",
                f"{word} needs a list of expressions",
                'a list is meant, such as [{"left": "host.zone", "operator": "eq", "right": "a"}].',
            )
        if len(inside) > MAX_ITEMS:
            raise self.mistake(
                f"{at}.subExpressions",
                f"there are more than {MAX_ITEMS} items",
                f"one more {word} around some of them is meant.",
            )
        terms = [
            self.node(each, f"{at}.subExpressions[{number}]", level + 1)
            for number, each in enumerate(inside)
        ]
        if word == "NOT":
            if len(terms) != 1:
                raise self.mistake(
                    f"{at}.subExpressions",
                    f"NOT takes one, not {len(terms)}",
                    "AND or OR around them is meant, below the NOT.",
                )
            return Unary("!", terms[0])
        if len(terms) == 1:
            return terms[0]
        flat: list[Expr] = []
        for term in terms:
            joins = isinstance(term, Logical) and term.operator == LOGICAL[word]
            flat.extend(term.terms if joins and isinstance(term, Logical) else [term])
        return Logical(LOGICAL[word], tuple(flat))

    def leaf(self, tree: Mapping[str, Any], at: str) -> Expr:
        """Read one comparison."""
        name = tree.get("operator")
        if name not in OPERATORS:
            meant = closest(str(name), OPERATORS)
            raise self.mistake(
                f"{at}.operator",
                f"there is no operator {name!r:.40}",
                f"{meant} is meant." if meant else f"one of {', '.join(OPERATORS)} is meant.",
            )
        left, path, kind = self.field(tree.get("left"), f"{at}.left")
        if name in ("exists", "not_exists"):
            if tree.get("right") is not None:
                raise self.mistake(
                    f"{at}.right", f"{name} takes no right side", "eq or neq is meant."
                )
            found = self.existence(left, f"{at}.left")
            return found if name == "exists" else Unary("!", found)
        if "right" not in tree:
            raise self.mistake(
                at, f"{name} needs a right side", '"right": "a" is meant, or exists.'
            )
        if name in COMPARISONS:
            return Binary(COMPARISONS[name], left, self.value(tree["right"], path, f"{at}.right"))
        if name == "contains":
            item = self.value(tree["right"], "", f"{at}.right")
            if kind == STRING:
                return Call("contains", left, (item,))
            return Binary("in", item, left)
        found = Binary("in", left, self.several(tree["right"], path, f"{at}.right"))
        return found if name == "in" else Unary("!", found)

    def field(self, text: object, at: str) -> tuple[Expr, str, Type]:
        """Read the name of a field."""
        if not isinstance(text, str) or not text:
            raise self.mistake(
                at,
                f"a field's name is needed here, not {text!r:.40}",
                "host.zone or the like is meant.",
            )
        try:
            expr = parse(text)
        except RuleError as error:
            maybe = (error.hint or "").removeprefix("Maybe ")
            raise self.mistake(at, error.message, maybe) from None
        found = path_type(expr, self.fields)
        if found is None:
            known = [*self.fields.by_path]
            meant = closest(text, known)
            raise self.mistake(
                at,
                f"{text[:80]!r} is not a field",
                f"{meant} is meant." if meant else "host.zone or the like is meant.",
            )
        return expr, *found

    def existence(self, left: Expr, at: str) -> Expr:
        """Build the test whether a field is there."""
        if isinstance(left, Select):
            return Has(left.operand, left.field)
        if isinstance(left, Index):
            return Binary("in", left.index, left.operand)
        raise self.mistake(at, "a variable is always there", "one of its fields is meant.")

    def value(self, right: object, path: str, at: str) -> Expr:
        """Read a value, or another field."""
        match right:
            case None:
                return Literal("null", None)
            case bool():
                return Literal("bool", right)
            case int():
                if not INT_MIN <= right <= INT_MAX:
                    maybe = f"a number from {INT_MIN} to {INT_MAX} is meant."
                    raise self.mistake(at, "this whole number does not fit into 64 bits", maybe)
                return Literal("int", right)
            case float():
                if not abs(right) < float("inf"):
                    maybe = "a finite number is meant, such as 1e308."
                    raise self.mistake(at, f"{right} is not a number of JSON", maybe)
                number = Literal("double", abs(right))
                if right == 0 and str(right)[0] == "-":
                    return Unary("-", number)
                return Literal("double", right)
            case str():
                function = _QUANTITIES.get(_unit(path))
                text = Literal("string", right)
                return text if function is None else Call(function, None, (text,))
            case {"field": str(other), **rest} if not rest:
                return self.field(other, f"{at}.field")[0]
        raise self.mistake(
            at,
            f'a value or {{"field": ...}} is needed here, not {right!r:.40}',
            '"a", 1, true or {"field": "vm.demand.memory"} or the like is meant.',
        )

    def several(self, right: object, path: str, at: str) -> Expr:
        """Read a list of values, or the field of a list."""
        if isinstance(right, Sequence) and not isinstance(right, str):
            if len(right) > MAX_ITEMS:
                raise self.mistake(
                    at,
                    f"there are more than {MAX_ITEMS} items",
                    "several lists below OR are meant.",
                )
            items = (self.value(each, path, f"{at}[{n}]") for n, each in enumerate(right))
            return ListOf(tuple(items))
        if isinstance(right, Mapping):
            return self.value(right, path, at)
        raise self.mistake(
            at, f"a list is needed here, not {right!r:.40}", "[...] around it is meant."
        )


class _Writing:
    """An expression on its way to a tree."""

    def __init__(self, text: str, fields: Fields) -> None:
        self.text = text
        self.fields = fields

    def refusal(self, expr: Expr, what: str) -> RuleError:
        """Build the error of something that the tree has no form for."""
        return mistake(
            self.text,
            expr.span,
            f"the JSON tree cannot say {what}",
            maybe="the text of the rule is meant: it says more than a tree.",
        )

    def node(self, expr: Expr) -> dict[str, Any]:
        """Write one condition."""
        match expr:
            case Logical(operator, terms):
                word = "AND" if operator == "&&" else "OR"
                return {
                    "logicalOperator": word,
                    "subExpressions": [self.node(term) for term in terms],
                }
            case Unary("!", operand):
                return self.negation(operand)
            case Has(operand, field):
                return {
                    "left": self.path(Select(operand, field, span=expr.span)),
                    "operator": "exists",
                }
            case Binary("in", left, right):
                return self.containment(expr, left, right)
            case Binary(operator, left, right) if operator in _NAMES:
                return self.comparison(expr, operator, left, right)
            case Call("contains", target, (item,)) if target is not None:
                return {
                    "left": self.path(target),
                    "operator": "contains",
                    "right": self.value(item, ""),
                }
        raise self.refusal(expr, _KINDS.get(type(expr), "this"))

    def negation(self, operand: Expr) -> dict[str, Any]:
        """Write a negation, which three operators have a name of their own for."""
        inside = self.node(operand)
        if inside.get("operator") in ("in", "exists"):
            return {**inside, "operator": f"not_{inside['operator']}"}
        return {"logicalOperator": "NOT", "subExpressions": [inside]}

    def containment(self, expr: Expr, left: Expr, right: Expr) -> dict[str, Any]:
        """Write `in` as in, contains or exists."""
        if path_type(left, self.fields) is not None:
            path = self.path(left)
            unit = path_type(left, self.fields)
            many = (
                [self.value(item, unit[0] if unit else "") for item in right.items]
                if isinstance(right, ListOf)
                else {"field": self.path(right)}
            )
            return {"left": path, "operator": "in", "right": many}
        if isinstance(left, Literal) and path_type(right, self.fields) is not None:
            return {"left": self.path(right), "operator": "contains", "right": self.value(left, "")}
        raise self.refusal(expr, "an in without a field on one side")

    def comparison(self, expr: Expr, operator: str, left: Expr, right: Expr) -> dict[str, Any]:
        """Write a comparison with its field on the left side."""
        if path_type(left, self.fields) is None:
            left, right, operator = right, left, _MIRRORED[operator]
        found = path_type(left, self.fields)
        if found is None:
            raise self.refusal(expr, "a comparison without a field on one side")
        value = self.value(right, found[0])
        return {"left": self.path(left), "operator": _NAMES[operator], "right": value}

    def path(self, expr: Expr) -> str:
        """Write a field."""
        if path_type(expr, self.fields) is None:
            raise self.refusal(expr, f"{write(expr)[:60]}, which is not a field")
        return write(expr)

    def value(self, expr: Expr, path: str) -> Any:
        """Write a value, or another field."""
        match expr:
            case Literal(kind, value) if kind == "string" and _unit(path):
                raise self.refusal(expr, "a text beside an amount")
            case Literal(_, value):
                return value
            case Unary("-", Literal("double", float(value))):
                return -value
            case Call(function, None, (Literal("string", str(text)),)) if (
                function == _QUANTITIES.get(_unit(path))
            ):
                return text
        if path_type(expr, self.fields) is None:
            raise self.refusal(expr, "this as a value")
        return {"field": write(expr)}


_KINDS: Mapping[type, str] = {
    Binary: "arithmetic",
    Call: "this function",
    Ident: "a bare variable",
    Literal: "a bare value",
    Select: "a bare field",
}
