"""The rule language means what CEL means: every drawn expression through ours and Google's."""

import re
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from roost.base.errors import RuleError
from roost.rules.checking import type_of
from roost.rules.evaluating import evaluate
from roost.rules.parsing import parse
from roost.rules.printing import write
from roost.rules.syntax import Expr
from tests.property.rule_expressions import (
    FIELDS,
    SIMPLE,
    VALUES,
    Refused,
    Stopped,
    alike,
    expressions,
    google,
)
from tests.turns import draws_in_turn

ANY_KIND = st.sampled_from(SIMPLE).flatmap(expressions)


@draws_in_turn(settings.default.max_examples * 2)
@given(st.one_of(expressions(wrong=0), ANY_KIND))
def test_values_and_errors_are_those_of_cel(expr: Expr) -> None:
    text = write(expr)
    ours, theirs = evaluate(parse(text), VALUES), google(text)
    assume(not isinstance(theirs, Stopped))
    assert not isinstance(theirs, Refused), text
    assert alike(ours, theirs), f"{text}\nours:   {ours}\ntheirs: {theirs}"


def refused(attempt: Callable[[], object]) -> RuleError | None:
    """Return how the language refused something, or None."""
    try:
        attempt()
    except RuleError as error:
        return error
    return None


#: Where the checker knows less than CEL's: a type that only the empty list or a dyn would settle.
VAGUE = re.compile(r"\[\]|\{\}|\bany\b")
#: What the checker refuses for a constant's value, of which CEL learns at the evaluation only.
CONSTANT = re.compile(r'duration\("(x|10)"\)|matches\("\("\)|\bint\("')


@draws_in_turn()
@given(st.one_of(expressions(wrong=0), ANY_KIND))
def test_types_are_checked_as_in_cel_but_for_numbers(expr: Expr) -> None:
    text = write(expr)
    assume(CONSTANT.search(text) is None)
    same_verdict_on_types(text)


def same_verdict_on_types(text: str) -> None:
    theirs = google(text, checked=True)
    refusal = refused(lambda: type_of(parse(text), text, FIELDS))
    if refusal is not None:
        assert isinstance(theirs, Refused), f"{text}: {refusal}"
    elif isinstance(theirs, Refused) and not VAGUE.search(text):
        assert "int" in theirs.message, theirs.message
        assert "double" in theirs.message, theirs.message


#: Values of every kind; among them those that are equal in Python and not in CEL.
POOL = (
    *("null", "true", "false", "0", "1", "-1", "2", "7", "-7", "3", "-3", "9223372036854775807"),
    *("-9223372036854775808", "0.0", "1.0", "-2.5", "3.0", "9223372036854775807.0", "''", "'a'"),
    *("'1'", "[]", "[1]", "[1.0, true]", "['a']", "{}", "{'a': 1}", "{1: 2}", "{true: 1}"),
    *("duration('1s')", "duration('1000ms')", "duration('-1h')", "1 / 0"),
)
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%", "&&", "||")


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_on_every_pair_of_values_is_that_of_cel(operator: str) -> None:
    for left, right in product(POOL, POOL):
        text = f"{left} {operator} {right}"
        ours, theirs = evaluate(parse(text), VALUES), google(text)
        assert alike(ours, theirs), f"{text}\nours:   {ours}\ntheirs: {theirs}"


@pytest.mark.parametrize("operator", OPERATORS)
def test_types_of_every_pair_are_checked_as_in_cel(operator: str) -> None:
    typed = POOL[1:]  # to CEL, null may be a duration; here nothing but null is
    for left, right in product(typed, typed):
        same_verdict_on_types(f"{left} {operator} {right}")


LISTS = ("[]", "[1, 2]", "[1, 0, 2]", "[0]", "[0, 1, 1]", "{'a': 1}", "['a', 1]", "[true]", "word")
CONDITIONS = (
    *("item > 0", "10 / item > 4", "10 / item > 9", "item == 'a'", "item", "item.x == 1"),
    *("[3].exists(item, item == 3) && item == 1", "[3].map(item, item) == [3] && item > 1"),
    "[5].all(one, one == 5) && one == item",
)


@pytest.mark.parametrize("macro", ["all", "exists", "exists_one", "filter", "map"])
def test_macros_and_their_variables_are_those_of_cel(macro: str) -> None:
    for over, inside in product(LISTS, CONDITIONS):
        call = f"{over}.{macro}(item, {inside})"
        for text in (call, f"{over}.map(item, {inside}, item)", f"{call} == true && one == 1"):
            ours, theirs = evaluate(parse(text), VALUES), google(text)
            assert alike(ours, theirs), f"{text}\nours:   {ours}\ntheirs: {theirs}"


TOKEN = re.compile(r"""\s+|"(?:[^"\\]|\\.)*"|[0-9.]+|\w+|[=!<>]=|&&|\|\||.""", re.DOTALL)
MORE = (
    *("a", "has", "all", "true", "null", "in", "if", "size", "1", "2.5", "'s'", "!", "?", ":", "."),
    *("+", "-", "*", "/", "==", "<", "&&", "||", "(", ")", "()", "[", "]", "{", "}", ",", ", 1"),
)
#: Syntax that is not of the subset: messages, a leading dot, and a lone comma as an empty list.
BEYOND = re.compile(r"[\[{]\s*,|[\w}]\s*\{|(^|[^\w)\]}'\"])\s*\.|`")


@st.composite
def almost_right(draw: st.DrawFn) -> str:
    """Draw a correct text, and change one token of it."""
    kind = draw(st.sampled_from(SIMPLE))
    tokens = TOKEN.findall(write(draw(expressions(kind, depth=2))))
    at = draw(st.integers(0, len(tokens)))
    tokens[at : at + draw(st.integers(0, 1))] = draw(st.lists(st.sampled_from(MORE), max_size=1))
    return "".join(tokens)


@given(almost_right())
@example("size('a',)")
@example("has(a)")
def test_text_is_accepted_where_cel_accepts_it(text: str) -> None:
    assume(not BEYOND.search(text))
    theirs = google(text)
    refusal = refused(lambda: parse(text))
    assert refusal is None or (refusal.hint or "").startswith("Maybe "), text
    # To CEL, a macro with other arguments is a function that does not exist.
    assume(refusal is None or "() takes" not in refusal.message)
    assert (refusal is not None) == isinstance(theirs, Refused), f"{text}: {refusal} {theirs}"


@given(ANY_KIND)
def test_written_text_is_parsed_to_the_same_tree(expr: Expr) -> None:
    assert parse(write(expr)) == expr
