"""Whatever text comes in, it is read in bounded time or refused with a sentence."""

from time import process_time

import pytest

from roost.base.errors import RuleError
from roost.rules.checking import condition
from roost.rules.costs import MAX_STEPS
from roost.rules.evaluating import evaluate, judge
from roost.rules.parsing import MAX_DEPTH, MAX_ITEMS, MAX_TEXT, parse
from roost.rules.patterns import MAX_PATTERN
from roost.rules.tree import condition_of_tree
from roost.rules.values import Trouble


def refusal(text: str) -> RuleError:
    with pytest.raises(RuleError) as caught:
        condition(text)
    assert len(caught.value.picture) <= 200
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1000 + "true" + ")" * 1000,
        "[" * 1000 + "]" * 1000,
        "{1:" * 1000 + "1" + "}" * 1000,
        "!(" * 1000 + "true" + ")" * 1000,
        "size(" * 1000 + "1" + ")" * 1000,
        "host.labels[" * 1000 + "1" + "]" * 1000,
        "true ? true : " * 1000 + "true",
        "1" + " + 1" * 1000 + " == 1",
        "[1].map(x, " * 1000 + "1" + ")" * 1000,
        "host" + ".name" * 1000,
    ],
    ids=lambda text: text[:12],
)
def test_what_is_nested_a_thousand_deep_is_refused(text: str) -> None:
    assert f"nested more than {MAX_DEPTH} levels deep" in refusal(text).message


def test_as_deep_as_the_bound_is_accepted() -> None:
    text = "(" * (MAX_DEPTH - 1) + "true" + ")" * (MAX_DEPTH - 1)
    assert judge(condition(text), {}) is True
    chain = "1" + " + 1" * (MAX_DEPTH - 3) + " > 0"
    assert judge(condition(chain), {}) is True


def test_long_chains_of_conditions_and_signs_are_one_level() -> None:
    assert judge(condition(" && ".join(["true"] * 1000)), {}) is True
    assert judge(condition(" || ".join(["false"] * 1000)), {}) is False
    assert judge(condition("!" * 1000 + "true"), {}) is True


def test_a_long_text_is_refused_before_it_is_read() -> None:
    error = refusal("host.zone == 'a' || " * 10_000 + "true")
    assert f"has 200004 characters; at most {MAX_TEXT} are read" in error.message


def test_a_long_list_is_refused() -> None:
    assert refusal("1 in [" + "1," * MAX_ITEMS + "1]").message.endswith(
        f"there are more than {MAX_ITEMS} items here"
    )


@pytest.mark.parametrize("length", [MAX_PATTERN + 1, 15_000, 100_000])
def test_a_long_pattern_is_refused(length: int) -> None:
    error = refusal(f'host.name.matches("{"a" * length}")')
    assert "characters; at most" in error.message


def test_a_pattern_that_would_grow_is_refused_by_re2() -> None:
    assert "RE2" in refusal('host.name.matches("((a{100}){100}){100}")').message


def test_a_hard_pattern_takes_linear_time() -> None:
    rule = condition('host.name.matches("(a+)+$")')
    begun = process_time()
    assert judge(rule, {"host": {"name": "a" * 50_000 + "b"}}) is False
    assert process_time() - begun < 1.0


def test_nested_macros_end_in_an_error() -> None:
    items = "[" + ",".join(["0"] * 100) + "]"
    found = evaluate(parse(f"{items}.all(a, {items}.all(b, {items}.all(c, a + b + c == 0)))"), {})
    assert isinstance(found, Trouble)
    assert str(MAX_STEPS) in found.message


def test_macros_that_could_take_too_many_steps_are_refused_at_their_place() -> None:
    items = "[1,2,3,4,5,6,7,8,9]"
    text = "a + b + c + d + e + host.vms > 0"
    for name in "edcba":
        text = f"{items}.all({name}, {text})"
    error = refusal(text)
    assert "steps on every host" in error.message
    assert (error.line, error.column) == (1, 28)
    refusal("host.devices.all(a, host.taints.all(b, host.labels.all(c, host.labels.all(d, c==d))))")
    condition("host.devices.all(a, host.taints.all(b, a.model != b.key))")


def test_a_list_that_holds_one_list_a_thousand_times_is_weighed() -> None:
    thousand = {name: "[" + ",".join([name] * 1000) + "]" for name in "1ab"}
    text = f"[{thousand['1']}].all(a, [{thousand['a']}].all(b, [{thousand['b']}].all(c, c == c)))"
    begun = process_time()
    assert isinstance(evaluate(parse(text), {}), Trouble)
    assert process_time() - begun < 1.0


def test_texts_do_not_grow_without_bound() -> None:
    grown = "host.name + host.name" + " + host.name" * 40
    found = evaluate(parse(f"size({grown})"), {"host": {"name": "x" * 100_000}})
    assert isinstance(found, Trouble)


@pytest.mark.parametrize("call", ["quantity", "duration", "cores", "double", "int"])
def test_a_number_of_thousands_of_digits_is_an_error(call: str) -> None:
    digits = "9" * 5000 + ("h" if call == "duration" else "")
    error = refusal(f'{call}("{digits}") == {call}("1")')
    assert len(error.message) < 200
    found = evaluate(parse(f"{call}(vm.name)"), {"vm": {"name": digits}})
    assert isinstance(found, Trouble)


def test_a_tree_with_a_number_of_thousands_of_digits_is_refused() -> None:
    leaf = {"left": "host.free.memory", "operator": "gte", "right": "9" * 5000}
    with pytest.raises(RuleError):
        condition_of_tree(leaf)


def test_half_a_character_is_refused() -> None:
    assert "half a character" in refusal('host.name == "\ud800"').message


def test_the_picture_of_a_long_line_shows_the_place() -> None:
    error = refusal("true && " * 100 + "host.zon == 'a'" + " && true" * 100)
    line, carets = error.picture.split("\n")
    assert line[carets.index("^") : carets.rindex("^") + 1] == "zon"


def test_bad_texts_are_refused_quickly() -> None:
    begun = process_time()
    for text in ('"""' * 5000, "'" * 16_000, "1" * 16_000, "." * 16_000, "((" * 8000, "a." * 8000):
        with pytest.raises(RuleError):
            parse(text)
    assert process_time() - begun < 1.0


def test_what_stands_behind_a_comment_is_told_at_its_place() -> None:
    with pytest.raises(RuleError) as caught:
        parse("true // why\n  $")
    assert (caught.value.line, caught.value.column) == (2, 3)
    with pytest.raises(RuleError) as caught:
        parse("true && // why")
    assert (caught.value.line, caught.value.column) == (1, 15)
    assert parse("true // a / b") == parse("// first\ntrue")
