"""The conformance cases of the CEL specification, as far as the subset goes.

They are read from the folder `cel-spec` under DATA and are no part of roost. A case is left out
only for a reason of `BEYOND`; how many each reason left out is printed.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import RuleError
from roost.rules.checking import type_of
from roost.rules.evaluating import evaluate
from roost.rules.parsing import parse
from roost.rules.syntax import (
    Binary,
    Call,
    Conditional,
    Expr,
    Has,
    Index,
    ListOf,
    Logical,
    Macro,
    MapOf,
    Select,
    Unary,
)
from roost.rules.values import Trouble
from tests.unit.rules.textproto import Message, read

FILES = ("basic", "comparisons", "fields", "logic", "macros", "parse")

#: What the language leaves out of CEL on purpose, and how a case shows that it needs it.
BEYOND = (
    ("unsigned numbers", re.compile(r"\b(0[xX][0-9a-fA-F]+|[0-9]+)[uU]\b|\buint\b")),
    ("bytes", re.compile(r"""(^|[^\w'"])[rR]?[bB][rR]?['"]|\bbytes\b""")),
    ("messages", re.compile(r"TestAllTypes|google\.protobuf|\b[A-Z]\w*\s*\{")),
    ("timestamps", re.compile(r"\btimestamp\b")),
    ("names in backticks", re.compile(r"\.`")),
)
_FOLDER = Path(os.environ.get("DATA", "")) / "cel-spec"


def cases(message: Message) -> list[Message]:
    return [test for section in message["section"] for test in section["test"]]


def value_of(message: Message) -> Any:
    """Return the value that a case expects or binds."""
    [(kind, [found, *_])] = message.items()
    match kind:
        case "null_value":
            return None
        case "bool_value":
            return found == "true"
        case "int64_value":
            return int(found)
        case "double_value":
            return float(found)
        case "string_value":
            return found
        case "list_value":
            return [value_of(each) for each in found.get("values", [])]
        case "map_value":
            return {
                value_of(entry["key"][0]): value_of(entry["value"][0])
                for entry in found.get("entries", [])
            }
    raise LookupError(kind)


def undressed(node: Expr) -> Expr:
    """Take away dyn(), of which the interpreter has no need."""
    match node:
        case Call("dyn", None, (inner,)):
            return undressed(inner)
        case Call(function, target, arguments):
            owner = None if target is None else undressed(target)
            return Call(function, owner, tuple(map(undressed, arguments)))
        case Select(operand, field):
            return Select(undressed(operand), field)
        case Has(operand, field):
            return Has(undressed(operand), field)
        case Index(operand, index):
            return Index(undressed(operand), undressed(index))
        case Unary(operator, operand):
            return Unary(operator, undressed(operand))
        case Binary(operator, left, right):
            return Binary(operator, undressed(left), undressed(right))
        case Logical(operator, terms):
            return Logical(operator, tuple(map(undressed, terms)))
        case Conditional(condition, then, otherwise):
            return Conditional(undressed(condition), undressed(then), undressed(otherwise))
        case ListOf(items):
            return ListOf(tuple(map(undressed, items)))
        case MapOf(entries):
            return MapOf(tuple((undressed(key), undressed(value)) for key, value in entries))
        case Macro(name, over, variable, predicate, result):
            return Macro(
                name,
                undressed(over),
                variable,
                None if predicate is None else undressed(predicate),
                None if result is None else undressed(result),
            )
    return node


def why_beyond(case: Message) -> str | None:
    if "container" in case:
        return "messages"
    if any("." in binding["key"][0] for binding in case.get("bindings", [])):
        return "names with dots in them"
    whole = f"{case['expr'][0]} {case.get('value', '')} {case.get('bindings', '')}"
    for reason, mark in BEYOND:
        if mark.search(whole) or mark.search(case["name"][0]):
            return reason
    return None


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and (ours == theirs or ours != ours != theirs)


def wrong(case: Message) -> str | None:
    """Say how our answer to a case differs, or None."""
    text = case["expr"][0]
    try:
        expr = undressed(parse(text))
    except RuleError as error:
        return f"{text}: {error}"
    bindings = {
        each["key"][0]: value_of(each["value"][0]["value"][0]) for each in case.get("bindings", [])
    }
    found = evaluate(expr, bindings)
    if "eval_error" in case or "any_eval_errors" in case:
        return None if isinstance(found, Trouble) else f"{text} is {found}, not an error"
    if not same(found, value_of(case["value"][0]) if "value" in case else True):
        return f"{text} is {found}"
    if not bindings and "disable_check" not in case and "dyn(" not in text:
        try:
            type_of(expr, text)
        except RuleError as error:
            return f"{text}: {error}"
    return None


@pytest.mark.parametrize("name", FILES)
def test_the_cases_of_the_specification_hold(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = _FOLDER / f"{name}.textproto"
    if not path.is_file():
        pytest.skip("no cel-spec cases: set DATA to the folder that has cel-spec")
    found = cases(read(path.read_text("utf-8")))
    beyond = Counter(reason for case in found if (reason := why_beyond(case)))
    inside = [case for case in found if not why_beyond(case)]
    differing = [f"{case['name'][0]}: {said}" for case in inside if (said := wrong(case))]
    left_out = ", ".join(f"{count} {reason}" for reason, count in beyond.most_common())
    with capsys.disabled():
        print(f"\n{name}: {len(inside)} cases of CEL, left out: {left_out or 'none'}")
    assert differing == []
    assert inside
