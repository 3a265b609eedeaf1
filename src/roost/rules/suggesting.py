"""What was probably meant by a mistake in a rule, from the types and values that were written.

Each suggestion is what stands behind "Maybe": one short sentence, true of the place. Only the
checker asks, when a rule is made; nothing here is asked at a placement.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from roost.rules.functions import FUNCTIONS, QUANTITIES, cores, duration, quantity
from roost.rules.mistakes import closest
from roost.rules.parsing import MACROS
from roost.rules.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    NUMBERS,
    ORDERED,
    STRING,
    Type,
    comparable,
)
from roost.rules.values import Unanswerable

#: How each function is called.
EXAMPLES: Mapping[str, str] = {
    "size": "size(host.labels)",
    "startsWith": 'host.name.startsWith("db")',
    "endsWith": 'host.name.endsWith("1")',
    "contains": 'host.name.contains("db")',
    "matches": 'host.name.matches("^db")',
    "quantity": 'quantity("64Gi")',
    "cores": 'cores("4")',
    "duration": 'duration("10m")',
    "int": 'int("4")',
    "double": "double(4)",
    "string": "string(4)",
}
#: What other languages call a function.
_FOREIGN = {"len": "size", "length": "size", "count": "size", "any": "exists", "like": "matches"}
_FUNCTIONS = (*FUNCTIONS, *MACROS, "has")
_NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z", re.ASCII)
#: Characters of the rule that a suggestion repeats.
_MOST_REPEATED = 60


def like(example: str) -> str:
    """Suggest something of the kind of an example."""
    return f"{example} or the like is meant."


def shown(text: str) -> str:
    """Return a part of the rule as a suggestion repeats it: three dots for a long one."""
    return text if len(text) <= _MOST_REPEATED and text.isprintable() else "..."


def a_condition(text: str, kind: Type, *, brackets: bool = False) -> str:
    """Suggest a condition about a value that is none, in brackets if it stands behind !."""
    beside = {INT: "> 0", DOUBLE: "> 0.5", STRING: '== "a"', DURATION: '> duration("10m")'}
    found = 'host.zone == "a"'
    if kind in beside:
        found = f"{text} {beside[kind]}"
    elif kind.name in ("list", "map"):
        found = f"size({text}) > 0"
    return like(f"({found})" if brackets else found)


def a_function(name: str) -> str:
    """Suggest the function that a name stands for, or name them all."""
    meant = _FOREIGN.get(name.lower()) or closest(name, _FUNCTIONS)
    return f"{meant}() is meant." if meant else f"one of {', '.join(_FUNCTIONS)} is meant."


def behind(text: str, name: str, kind: Type) -> str:
    """Suggest what can stand behind the dot after a value that has no fields."""
    calls = [
        each
        for each, overloads in FUNCTIONS.items()
        if any(way.member and way.takes[0].name == kind.name for way in overloads)
    ]
    if kind.name == "list":
        calls += MACROS
        if kind.inside[0].name == "record":
            return like(f'{text}.exists(item, item.{name} == "a")')
    meant = closest(name, calls)
    return f"{text}.{meant}() is meant." if meant else f"{text} is meant, without .{name}."


def looked_for(left: Type, right: Type) -> str:
    """Suggest another way to look for something than `in` in these types."""
    if right == STRING:
        return '== is meant, or x.contains("a") for a part of a text.'
    if right.name not in ("list", "map"):
        return "== is meant: in looks into several."
    if left == INT and right.inside[0] == STRING:
        return "string(...) around the number is meant."
    return converted("==", left, right.inside[0])


def converted(operator: str, left: Type, right: Type) -> str:
    """Suggest how two values that do not get on with an operator would."""
    kinds = {left, right}
    if NULL in kinds:
        return "has(...) is meant: a field that is missing is not null."
    if operator == "%":
        return "two whole numbers are meant: int(...) makes one of another."
    if kinds == {INT, DOUBLE}:
        return "double(...) around the whole number is meant."
    if operator == ":":
        return "two values of one type are meant."
    if kinds == {INT, STRING}:
        into = "string(...) around the number" if operator == "+" else "int(...) around the text"
        return f"{into} is meant."
    if kinds == {DOUBLE, STRING}:
        return "double(...) around the text is meant."
    if kinds == {BOOL, STRING}:
        return '"true" with quotes is meant for a text, true without for a condition.'
    if operator in ("<", "<=", ">", ">="):
        if not kinds <= {*ORDERED, DYN} and comparable(left, right):
            return "== or != is meant: these have no order."
        return "two values of one type are meant."
    if operator in ("-", "*", "/"):
        return "two numbers of one type are meant."
    if operator == "+":
        return "two numbers, texts, lists or durations of one type are meant."
    return "two values of one type are meant."


def negated(kind: Type) -> str:
    """Suggest what a minus before a value that is no number was to be."""
    if kind == BOOL:
        return "! is meant: it negates a condition."
    if kind == STRING:
        return "-int(...) is meant, if the text is a number."
    return "a number is meant behind the minus."


def a_call(name: str, kinds: list[Type]) -> str:
    """Suggest how a function is called that was given something else."""
    numbers = any(kind in NUMBERS for kind in kinds)
    if numbers and name in ("quantity", "cores", "duration"):
        return f"quotes are meant: {EXAMPLES[name]}."
    return like(EXAMPLES[name])


def a_constant(function: str, value: object) -> str:
    """Suggest a constant that a function can take, close to one that it cannot."""
    if function == "matches":
        return "x.contains(...) is meant, which takes a text as it stands."
    if isinstance(value, str) and (tried := _NUMBER.match(value)) is not None:
        number, unit = tried.groups()
        for call, text in _guesses(function, value, number, unit):
            if _answers(call, text):
                return f'{call.__name__}("{text}") is meant.'
    return like(EXAMPLES[function])


def _guesses(
    function: str, value: str, number: str, unit: str
) -> list[tuple[Callable[[str], Any], str]]:
    """Return what a number with a unit may stand for, the likeliest first."""
    known = {each.lower(): each for each in QUANTITIES if each}
    near = closest(unit, known)
    match function:
        case "quantity":
            return [(cores, value), *([(quantity, number + known[near])] if near else [])]
        case "cores":
            return [(quantity, value), *([(cores, number)] if unit.lower() == "cores" else [])]
        case "duration":
            return [(duration, f"{number}{unit or 's'}")]
    return []


def _answers(call: Callable[[str], Any], text: str) -> bool:
    try:
        call(text)
    except Unanswerable:
        return False
    return True
