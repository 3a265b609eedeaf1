"""Every mistake in a rule, as a text or as a tree, has a suggestion beside its place."""

from typing import Any

import pytest

from roost.base.errors import RuleError
from roost.rules import suggesting
from roost.rules.checking import condition, type_of
from roost.rules.functions import FUNCTIONS
from roost.rules.parsing import parse
from roost.rules.tree import condition_of_tree, to_tree

#: Texts that are no rules, and a part of what is suggested.
BAD = {
    "host.name": 'host.name == "a"',
    "host.labels": "size(host.labels) > 0",
    "host.vms && true": "host.vms > 0",
    "!host.vms": "(host.vms > 0)",
    "host.vms ? true : false": "host.vms > 0",
    'true ? 1 : "a"': "one type",
    'host.zone in "a"': "x.contains(",
    "host.name in host.vms": "== is meant",
    '1 in ["a"]': "string(...)",
    '"a" in [1]': "int(...)",
    '-host.name == "a"': "-int(...)",
    "-true": "! is meant",
    "host.name.x == 1": "host.name is meant",
    "host.name.sizes == 1": "host.name.size() is meant",
    "host.taints.key == 1": "host.taints.exists(item, item.key",
    "host.vms[0] == 1": "host.vms is meant",
    'host.devices["a"].model == "x"': "[0]",
    'host.labels[1] == "x"': "type string",
    "host.free[1] > 0": '["cpu"]',
    "size(1) > 0": "size(host.labels)",
    "quantity(64) > 0": 'quantity("64Gi")',
    "foo(1)": "exists_one",
    "len(host.name) > 1": "size() is meant",
    "host.name.all(x, true)": "host.taints.all(",
    'host.name.matches("(")': "x.contains(",
    'quantity("64gi") > 0': 'quantity("64Gi") is meant',
    'quantity("250m") > 0': 'cores("250m") is meant',
    'quantity("1TB5") > 0': 'quantity("64Gi") or the like',
    'cores("x") > 0': 'cores("4")',
    'cores("4GiB") > 0': 'quantity("4GiB") is meant',
    'duration("10") == duration("1s")': 'duration("10s") is meant',
    'int("a") > 0': 'int("4")',
    "host.vms < true": "one type",
    "host.taints < host.taints": "no order",
    'host.labels == {"a": 1}': "one type",
    "host.labels.a == true": "with quotes",
    "2.5 % 1.0 > 0.0": "whole numbers",
    '"a" - "b" == "c"': "two numbers",
    '"a" + 1 == "c"': "string(...)",
    'host.zone == "a': "behind the text",
    "host.zone == $": "in quotes",
    "host.zone == \u201ca\u201d": '" is meant',
    "(host.vms > 1": ") is meant at the end",
    "(host.vms > 1 and true)": "&& is meant",
    "[1, 2": "] is meant at the end",
    "host.vms > 1)": "one bracket less",
    "host.vms > 1 : 2": "c ? a : b",
    "host.zone not in [1]": "!(x in y)",
    'host.name contains "a"': "x.contains(y)",
    "host.": "a name such as zone",
    'host.labels."a/b"': '["a/b"]',
    "host.vms >": "or the like is meant",
    "host.vms <> 1": "!= is meant",
    "host.vms > 1 host.zone": "&& or ||",
    "if(true)": "c ? a : b",
    "package == 1": "another name",
    "1u > 0": "1 is meant",
    "99999999999999999999 > 0": "9223372036854775807",
    "9" * 30: "9223372036854775807",
    "1e999 > 0.0": "1e308",
    "{1 2}": ": is meant",
    "{1, 2}": "a list is meant",
    "(" * 70 + "true" + ")" * 70: "several rules",
    "1 in [" + "1, " * 1001 + "1]": "matches()",
    'host.zone == b"a"': "without the b",
    'host.zone == "\\d"': "a raw string",
    'host.zone == "\ud800"': "the whole character",
    "": "host.zone",
}


@pytest.mark.parametrize(("text", "maybe"), BAD.items(), ids=[text[:40] for text in BAD])
def test_a_text_that_is_refused_is_told_what_was_meant(text: str, maybe: str) -> None:
    with pytest.raises(RuleError) as caught:
        condition(text)
    hint = caught.value.hint or ""
    assert hint.startswith("Maybe ")
    assert maybe in hint
    assert "\n" not in hint
    assert len(hint) < 200


LEAF = {"left": "host.vms", "operator": "lt", "right": 1}
#: Trees that are no rules, and a part of what is suggested.
TREES: list[tuple[Any, str]] = [
    ([], '{"left": "host.zone"'),
    ({"left": "host.zone", "operator": "eq"}, '"right": "a"'),
    ({"left": "host.zone", "operator": "exists", "right": 1}, "eq or neq"),
    ({"left": "", "operator": "eq", "right": 1}, "host.zone"),
    ({"left": "host.zone ==", "operator": "eq", "right": 1}, "is meant"),
    ({"left": "host.zone", "operator": "in", "right": "a"}, "[...] around it"),
    ({"left": "host.zone", "operator": "in", "right": ["a"] * 1001}, "several lists"),
    ({"left": "host.zone", "operator": "eq", "right": {}}, '{"field"'),
    ({"left": "host.vms", "operator": "eq", "right": 2**63}, "9223372036854775807"),
    ({"left": "host.load", "operator": "eq", "right": 1}, "is meant"),
    ({"left": "host.pressure.cpu", "operator": "lt", "right": float("inf")}, "finite"),
    ({"left": "host.vms", "operator": "eq", "right": "a"}, "is meant"),
    ({"logicalOperator": "NOT", "subExpressions": []}, "a list is meant"),
    ({"logicalOperator": "NOT", "subExpressions": [LEAF, LEAF]}, "AND or OR"),
    ({"logicalOperator": "AND", "subExpressions": [LEAF] * 1001}, "one more AND"),
    ({"logicalOperator": "AND", "subExpressions": [LEAF]} | LEAF, "subExpressions"),
    ({"logicalOperator": "XOR", "subExpressions": [LEAF]}, "AND is meant"),
]


@pytest.mark.parametrize(("tree", "maybe"), TREES, ids=[str(tree)[:60] for tree, _ in TREES])
def test_a_tree_that_is_refused_is_told_what_was_meant(tree: object, maybe: str) -> None:
    with pytest.raises(RuleError) as caught:
        condition_of_tree(tree)
    assert (caught.value.hint or "").startswith("Maybe ")
    assert maybe in (caught.value.hint or "")


def test_a_tree_that_is_nested_too_deep_is_told_what_was_meant() -> None:
    tree: Any = LEAF
    for _ in range(70):
        tree = {"logicalOperator": "NOT", "subExpressions": [tree]}
    with pytest.raises(RuleError, match="levels deep") as caught:
        condition_of_tree(tree)
    assert "several rules" in (caught.value.hint or "")


def test_what_a_tree_cannot_say_is_told_to_be_left_a_text() -> None:
    text = "host.vms + 1 < 5"
    with pytest.raises(RuleError) as caught:
        to_tree(parse(text), text)
    assert caught.value.hint == "Maybe the text of the rule is meant: it says more than a tree."


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_function_is_right(name: str) -> None:
    example = suggesting.EXAMPLES[name]
    assert f"{name}(" in example
    type_of(parse(example), example)
