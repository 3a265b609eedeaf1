"""Evaluate a rule for one host and one VM: the plain interpreter, with the semantics of CEL.

The engine compiles rules to columns; this is what it must agree with, and what explains, checks of
single hosts and dry runs of one rule go by. Missing fields, overflow and the like yield a `Trouble`
(CEL's error value), which `&&`, `||`, `all` and `exists` absorb when the rest decides. Nothing is
raised, whatever the values are.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any

from roost.rules.checking import Condition
from roost.rules.costs import MAX_STEPS
from roost.rules.functions import FUNCTIONS
from roost.rules.positions import Span
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
from roost.rules.values import (
    INT_MAX,
    INT_MIN,
    Duration,
    Trouble,
    Unanswerable,
    Value,
    type_name,
)

#: Characters or items of a text or list that + may make.
MAX_LENGTH = 1_000_000

_CHARACTERS_PER_STEP = 64
_TEXTS_PER_STEP = 16

Bindings = Mapping[str, Any]


class Steps:
    """Steps that evaluations of one expression may take together, beside the bound of each.

    `lists` keeps the lists of constants in it, which are made once for all of them.
    """

    __slots__ = ("left", "lists")

    def __init__(self, left: int) -> None:
        self.left = left
        self.lists: dict[int, list[Any]] = {}


def evaluate(
    expr: Expr,
    bindings: Bindings,
    patterns: Mapping[str, Any] | None = None,
    shared: Steps | None = None,
) -> Value | Trouble:
    """Return the value of an expression, or the error value."""
    allowed = MAX_STEPS if shared is None else min(MAX_STEPS, shared.left)
    lists = None if shared is None else shared.lists
    evaluation = _Evaluation(dict(bindings), patterns or {}, allowed, lists)
    try:
        found: Value = evaluation.value(expr)
    except _Failed as failed:
        return failed.trouble
    finally:
        if shared is not None:
            shared.left -= allowed - max(evaluation.steps, 0)
    return found


def judge(rule: Condition, bindings: Bindings) -> bool | Trouble:
    """Say whether a rule holds; what is neither true nor false is trouble."""
    found = evaluate(rule.expr, bindings, rule.patterns)
    if isinstance(found, bool | Trouble):
        return found
    return Trouble(f"the rule is a condition, and yields a {type_name(found)}", rule.expr.span)


class _Failed(Exception):
    """How trouble travels inside one evaluation."""

    def __init__(self, message: str, span: Span) -> None:
        self.trouble = Trouble(message, span)


class _Evaluation:
    """One evaluation: variables, compiled patterns, and the steps that are left."""

    def __init__(
        self,
        variables: dict[str, Any],
        patterns: Mapping[str, Any],
        steps: int,
        lists: dict[int, list[Any]] | None,
    ) -> None:
        self.lists = lists
        self.variables = variables
        self.patterns = patterns
        self.allowed = self.steps = steps

    def value(self, node: Expr) -> Any:
        """Return the value of a node, one step further."""
        self.steps -= 1
        if self.steps < 0:
            raise self.exhausted(node)
        return _EVALUATORS[type(node)](self, node)

    def exhausted(self, node: Expr) -> "_Failed":
        """Return the error of a rule whose steps are used up."""
        if self.allowed < MAX_STEPS:
            return _Failed("the rule takes too many steps for this many hosts", node.span)
        return _Failed(f"the rule takes more than {MAX_STEPS} steps", node.span)

    def weigh(self, node: Expr, value: Any) -> None:
        """Take a step for every item inside a value, and for so many characters of a text.

        A list may hold one and the same list a thousand times: what it weighs, not what it took to
        write, is what comparing or copying it costs.
        """
        if isinstance(value, str):
            self.steps -= len(value) // _CHARACTERS_PER_STEP
        elif isinstance(value, Mapping):
            self.steps -= len(value)
            for each in value.values():
                self.weigh(node, each)
        elif isinstance(value, Sequence):
            self.steps -= len(value)
            for each in value:
                if not isinstance(each, int | float):
                    self.weigh(node, each)
        if self.steps < 0:
            raise self.exhausted(node)

    def literal(self, node: Literal) -> Any:
        return node.value

    def ident(self, node: Ident) -> Any:
        try:
            return self.variables[node.name]
        except KeyError:
            raise _Failed(f"{node.name} is not known here", node.span) from None

    def select(self, node: Select) -> Any:
        operand = self.value(node.operand)
        if not isinstance(operand, Mapping):
            raise _Failed(f"a {type_name(operand)} has no field {node.field!r}", node.span)
        try:
            return operand[node.field]
        except KeyError:
            raise _Failed(f"{_name(node.operand)} has no {node.field!r}", node.span) from None

    def has(self, node: Has) -> Any:
        operand = self.value(node.operand)
        if not isinstance(operand, Mapping):
            raise _Failed(f"a {type_name(operand)} has no field {node.field!r}", node.span)
        return node.field in operand

    def index(self, node: Index) -> Any:
        operand, index = self.value(node.operand), self.value(node.index)
        if isinstance(operand, Mapping):
            key = _key(index)
            if key in operand:
                return operand[key]
            raise _Failed(f"{_name(node.operand)} has no {_shown(index)}", node.span)
        if not isinstance(operand, Sequence) or isinstance(operand, str):
            raise _Failed(f"a {type_name(operand)} has no items", node.span)
        place = _key(index)
        if isinstance(place, bool) or not isinstance(place, int):
            raise _Failed(f"a {type_name(index)} is no place in a list", node.span)
        if not 0 <= place < len(operand):
            raise _Failed(f"{_name(node.operand)} has {len(operand)} items, no {place}", node.span)
        return operand[place]

    def call(self, node: Call) -> Any:
        parts = (*node.arguments,) if node.target is None else (node.target, *node.arguments)
        values = [self.value(part) for part in parts]
        kinds = [type_name(value) for value in values]
        for overload in FUNCTIONS.get(node.function, ()):
            if overload.member is (node.target is not None) and kinds == [
                kind.name for kind in overload.takes
            ]:
                for value in values:
                    if isinstance(value, str):
                        self.weigh(node, value)
                try:
                    if node.function == "matches" and (kept := self.patterns.get(values[1])):
                        return kept.search(values[0]) is not None
                    return overload.call(*values)
                except Unanswerable as error:
                    raise _Failed(str(error), node.span) from None
        raise _Failed(f"{node.function}() does not take {', '.join(kinds)}", node.span)

    def unary(self, node: Unary) -> Any:
        operand = self.value(node.operand)
        if node.operator == "!" and isinstance(operand, bool):
            return not operand
        if node.operator == "-" and not isinstance(operand, bool):
            if isinstance(operand, int):
                return _int64(-operand, node.span)
            if isinstance(operand, float):
                return -operand
        raise _Failed(f"{node.operator} does not work on a {type_name(operand)}", node.span)

    def binary(self, node: Binary) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(right, str | Sequence | Mapping):
            self.weigh_sides(node, left, right)
        match node.operator:
            case "==":
                return equal(left, right)
            case "!=":
                return not equal(left, right)
            case "<" | "<=" | ">" | ">=":
                return _ordered(node, left, right)
            case "in":
                return self.contained(node, left, right)
        return _arithmetic(node, left, right)

    def weigh_sides(self, node: Binary, left: Any, right: Any) -> None:
        """Take the steps of comparing, joining or searching texts, lists and maps."""
        if node.operator != "in":
            self.weigh(node, right)
        elif isinstance(left, str) and isinstance(right, Sequence):
            self.steps -= len(right) // _TEXTS_PER_STEP
        elif not isinstance(right, Mapping):  # where a key is found at once
            self.weigh(node, right)
        if node.operator == "+":
            self.weigh(node, left)

    def contained(self, node: Binary, item: Any, place: Any) -> bool:
        """Look for an item in a list or a key in a map."""
        if isinstance(place, Mapping):
            if not isinstance(item, str | int | float):
                raise _Failed(f"a {type_name(item)} is no key of a map", node.span)
            return _key(item) in place
        if isinstance(place, Sequence) and not isinstance(place, str):
            if isinstance(item, str):  # equal to no value of another type, in Python as well
                return item in place
            return any(equal(item, other) for other in place)
        raise _Failed(f"in does not look into a {type_name(place)}", node.span)

    def logical(self, node: Logical) -> Any:
        """Go through all terms: one that decides wins over trouble in any other."""
        decisive = node.operator == "||"
        trouble: _Failed | None = None
        for term in node.terms:
            try:
                found = self.value(term)
                if found is decisive:
                    return decisive
                if found is not (not decisive):
                    raise _Failed(
                        f"{node.operator} does not work on a {type_name(found)}", term.span
                    )
            except _Failed as failed:
                trouble = trouble or failed
        if trouble is not None:
            raise trouble
        return not decisive

    def conditional(self, node: Conditional) -> Any:
        condition = self.value(node.condition)
        if not isinstance(condition, bool):
            raise _Failed(f"a {type_name(condition)} is no condition", node.condition.span)
        return self.value(node.then if condition else node.otherwise)

    def list_of(self, node: ListOf) -> Any:
        if self.lists is not None and id(node) in self.lists:
            return self.lists[id(node)]
        found = [self.value(item) for item in node.items]
        if self.lists is not None and all(isinstance(item, Literal) for item in node.items):
            self.lists[id(node)] = found
        for each in found:
            if isinstance(each, Sequence | Mapping):
                self.weigh(node, each)
        return found

    def map_of(self, node: MapOf) -> Any:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.entries:
            key = self.value(key_node)
            if not isinstance(key, str | int):
                raise _Failed(f"a {type_name(key)} is no key of a map", key_node.span)
            if _key(key) in found:
                raise _Failed(f"the key {_shown(key)} is there twice", key_node.span)
            found[_key(key)] = self.value(value_node)
            self.weigh(node, found[_key(key)])
        return found

    def macro(self, node: Macro) -> Any:
        """Go through a list, or the keys of a map, with a variable for each item."""
        over = self.value(node.over)
        if isinstance(over, str) or not isinstance(over, Sequence | Mapping):
            raise _Failed(f"{node.name}() does not go through a {type_name(over)}", node.span)
        hidden = self.variables.get(node.variable, self)
        try:
            return _MACROS[node.name](self, node, over)
        finally:
            if hidden is self:
                self.variables.pop(node.variable, None)
            else:
                self.variables[node.variable] = hidden

    def asked(self, node: Macro, item: Any) -> bool:
        """Evaluate the condition of a macro for one item."""
        self.bind(node, item)
        if node.predicate is None:
            return True
        found = self.value(node.predicate)
        if not isinstance(found, bool):
            raise _Failed(f"a {type_name(found)} is no condition", node.predicate.span)
        return found

    def bind(self, node: Macro, item: Any) -> None:
        """Set the variable of a macro, one step further."""
        self.steps -= 1
        if self.steps < 0:
            raise self.exhausted(node)
        self.variables[node.variable] = key_value(item)

    def any_or_all(self, node: Macro, over: Any) -> bool:
        """Evaluate `exists` or `all`, which absorb trouble as || and && do."""
        decisive = node.name == "exists"
        trouble: _Failed | None = None
        for item in over:
            try:
                if self.asked(node, item) is decisive:
                    return decisive
            except _Failed as failed:
                trouble = trouble or failed
                if self.steps < 0:
                    break
        if trouble is not None:
            raise trouble
        return not decisive

    def exists_one(self, node: Macro, over: Any) -> bool:
        return sum(self.asked(node, item) for item in over) == 1

    def filter(self, node: Macro, over: Any) -> list[Any]:
        found = [key_value(item) for item in over if self.asked(node, item)]
        self.weigh(node, found)
        return found

    def map(self, node: Macro, over: Any) -> list[Any]:
        assert node.result is not None
        found = []
        for item in over:
            if self.asked(node, item):
                each = self.value(node.result)
                self.weigh(node, each)
                found.append(each)
        return found


_MACROS: Mapping[str, Callable[[_Evaluation, Macro, Any], Any]] = {
    "all": _Evaluation.any_or_all,
    "exists": _Evaluation.any_or_all,
    "exists_one": _Evaluation.exists_one,
    "filter": _Evaluation.filter,
    "map": _Evaluation.map,
}

_EVALUATORS: Mapping[type, Callable[[_Evaluation, Any], Any]] = {
    Literal: _Evaluation.literal,
    Ident: _Evaluation.ident,
    Select: _Evaluation.select,
    Has: _Evaluation.has,
    Index: _Evaluation.index,
    Call: _Evaluation.call,
    Unary: _Evaluation.unary,
    Binary: _Evaluation.binary,
    Logical: _Evaluation.logical,
    Conditional: _Evaluation.conditional,
    ListOf: _Evaluation.list_of,
    MapOf: _Evaluation.map_of,
    Macro: _Evaluation.macro,
}


# Python says True == 1 and gives both one place in a dict; the language does not. Keys of maps that
# a rule writes are wrapped accordingly, those of maps that are handed in are texts.
_BOOLEANS = {False: ("bool", False), True: ("bool", True)}


def _key(value: Any) -> Any:
    """Return the dictionary key of a value of the language."""
    if isinstance(value, bool):
        return _BOOLEANS[value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else ("double", value)
    return value if isinstance(value, str | int) else ("none", id(value))


def key_value(key: Any) -> Any:
    """Return the value of the language behind a dictionary key."""
    return key[1] if isinstance(key, tuple) and key and key[0] == "bool" else key


def equal(left: Any, right: Any) -> bool:
    """Say whether two values are equal: numbers by value, other types never across."""
    kind, other = type_name(left), type_name(right)
    if kind != other:
        return {kind, other} == {"int", "double"} and float(left) == float(right)
    if kind == "list":
        return len(left) == len(right) and all(map(equal, left, right))
    if kind == "map":
        return len(left) == len(right) and all(
            key in right and equal(value, right[key]) for key, value in left.items()
        )
    return bool(left == right)


def _ordered(node: Binary, left: Any, right: Any) -> bool:
    kinds = {type_name(left), type_name(right)}
    if not (kinds <= {"int", "double"} or (len(kinds) == 1 and kinds <= _ORDERED)):
        raise _Failed(
            f"{node.operator} does not compare {type_name(left)} with {type_name(right)}", node.span
        )
    if len(kinds) == 2:  # as doubles, which is CEL's word on whole numbers beyond 2^53
        left, right = float(left), float(right)
    match node.operator:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


_ORDERED = {"bool", "string", "duration"}


def _arithmetic(node: Binary, left: Any, right: Any) -> Any:
    kind, operator = type_name(left), node.operator
    if kind == type_name(right):
        if kind == "int":
            return _whole(node, left, right)
        if kind == "double" and operator != "%":
            return _double(operator, left, right)
        if kind == "duration" and operator in "+-":
            ns = left.ns + right.ns if operator == "+" else left.ns - right.ns
            return Duration(_int64(ns, node.span))
        if kind in ("string", "list") and operator == "+":
            if len(left) + len(right) > MAX_LENGTH:
                raise _Failed(f"+ makes something longer than {MAX_LENGTH}", node.span)
            return left + right if kind == "string" else [*left, *right]
    raise _Failed(f"{operator} does not work on {kind} and {type_name(right)}", node.span)


def _whole(node: Binary, left: int, right: int) -> int:
    match node.operator:
        case "+":
            return _int64(left + right, node.span)
        case "-":
            return _int64(left - right, node.span)
        case "*":
            return _int64(left * right, node.span)
    if right == 0:
        raise _Failed(f"{left} {node.operator} 0 has no value", node.span)
    if node.operator == "/":
        quotient = abs(left) // abs(right)
        return _int64(quotient if (left < 0) == (right < 0) else -quotient, node.span)
    if left == INT_MIN and right == -1:
        raise _Failed(f"{left} % {right} does not fit into 64 bits", node.span)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _double(operator: str, left: float, right: float) -> float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return nan
    return inf if (left > 0) == (str(right)[0] != "-") else -inf


def _int64(number: int, span: Span) -> int:
    if not INT_MIN <= number <= INT_MAX:
        raise _Failed(f"{number} does not fit into 64 bits", span)
    return number


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)[:80]


def _name(node: Expr) -> str:
    """Name a node in an error: a path where it is one."""
    match node:
        case Ident(name):
            return name
        case Select(operand, field):
            return f"{_name(operand)}.{field}"
        case Index(operand, Literal(_, value)):
            return f"{_name(operand)}[{_shown(value)}]"
    return "this"
