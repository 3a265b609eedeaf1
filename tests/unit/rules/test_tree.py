"""The JSON tree of rules: both forms convert to each other, and mistakes have a place."""

from typing import Any

import pytest

from roost.base.errors import RuleError
from roost.rules.parsing import parse
from roost.rules.printing import write
from roost.rules.tree import condition_of_tree, from_tree, to_tree


def leaf(left: str, operator: str, right: Any = None) -> dict[str, Any]:
    found = {"left": left, "operator": operator, "right": right}
    return found if right is not None else {"left": left, "operator": operator}


def both(word: str, *inside: dict[str, Any]) -> dict[str, Any]:
    return {"logicalOperator": word, "subExpressions": list(inside)}


PAIRS = [
    (leaf("host.zone", "eq", "a"), 'host.zone == "a"'),
    (leaf("host.zone", "neq", "a"), 'host.zone != "a"'),
    (leaf("host.vms", "lt", 5), "host.vms < 5"),
    (leaf("host.vms", "lte", 5), "host.vms <= 5"),
    (leaf("host.pressure.cpu", "gt", 2.5), "host.pressure.cpu > 2.5"),
    (leaf("host.free.memory", "gte", "64Gi"), 'host.free.memory >= quantity("64Gi")'),
    (leaf("host.free.cpu", "gte", "250m"), 'host.free.cpu >= cores("250m")'),
    (
        leaf("host.free.memory", "gte", {"field": "vm.demand.memory"}),
        "host.free.memory >= vm.demand.memory",
    ),
    (leaf("host.zone", "in", ["a", "b"]), 'host.zone in ["a", "b"]'),
    (leaf("host.zone", "not_in", ["a"]), '!(host.zone in ["a"])'),
    (leaf("host.name", "not_in", {"field": "group.hosts"}), "!(host.name in group.hosts)"),
    (leaf("host.labels.gpu", "exists"), "has(host.labels.gpu)"),
    (leaf("host.labels.gpu", "not_exists"), "!has(host.labels.gpu)"),
    (leaf("host.name", "contains", "db"), 'host.name.contains("db")'),
    (leaf("host.capabilities", "contains", "uefi"), '"uefi" in host.capabilities'),
    (leaf('host.labels["a/b"]', "eq", "c"), 'host.labels["a/b"] == "c"'),
    (both("NOT", leaf("host.zone", "eq", "a")), '!(host.zone == "a")'),
    (
        both(
            "AND",
            leaf("host.zone", "eq", "a"),
            both("OR", leaf("host.vms", "lt", 5), leaf("vm.priority", "gt", 9)),
        ),
        'host.zone == "a" && (host.vms < 5 || vm.priority > 9)',
    ),
]


@pytest.mark.parametrize(("tree", "text"), PAIRS, ids=[text for _, text in PAIRS])
def test_both_forms_convert_to_each_other(tree: dict[str, Any], text: str) -> None:
    assert write(from_tree(tree)) == text
    assert to_tree(parse(text), text) == tree
    assert condition_of_tree(tree).text == text


def test_a_value_on_the_left_side_changes_sides() -> None:
    text = '5 > host.vms && quantity("1Gi") <= host.free.memory'
    assert to_tree(parse(text), text) == both(
        "AND", leaf("host.vms", "lt", 5), leaf("host.free.memory", "gte", "1Gi")
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("host.vms + 1 < 5", 1),
        ("true", 1),
        ('host.zone == "a" && host.taints.exists(t, t.key == "b")', 21),
        ('host.zone == "a" ? true : false', 1),
        ('host.name.startsWith("a")', 1),
        ("1 in [1]", 1),
        ("host.vms == size(host.labels)", 13),
    ],
)
def test_what_the_tree_cannot_say_is_refused_at_its_place(text: str, column: int) -> None:
    with pytest.raises(RuleError, match="the JSON tree cannot say") as caught:
        to_tree(parse(text), text)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ([], "expression: an object is needed here"),
        ({}, "expression.operator: there is no operator None"),
        (leaf("host.zone", "equals", "a"), "expression.operator: there is no operator 'equals'"),
        (leaf("host.zon", "eq", "a"), "expression.left: 'host.zon' is not a field"),
        (leaf("host.zone ==", "eq", "a"), "expression.left: line 1, column 13"),
        (leaf("1 + 1", "eq", 2), "expression.left: '1 + 1' is not a field"),
        (leaf("host", "exists"), "expression.left: a variable is always there"),
        ({"left": "host.zone", "operator": "eq"}, "expression: eq needs a right side"),
        (leaf("host.zone", "in", "a"), "expression.right: a list is needed here"),
        (leaf("host.zone", "in", [{}]), "expression.right[0]: a value or"),
        (leaf("host.vms", "eq", 2**63), "expression.right: this whole number"),
        (leaf("host.pressure.cpu", "lt", float("inf")), "expression.right: inf is not a number"),
        (both("XOR", leaf("host.vms", "lt", 1)), "expression.logicalOperator: 'XOR' is none of"),
        (both("AND"), "expression.subExpressions: AND needs a list"),
        (both("NOT", leaf("host.vms", "lt", 1), leaf("host.vms", "gt", 1)), "NOT takes one, not 2"),
        ({**both("AND"), **leaf("host.vms", "lt", 1)}, "either left and operator or"),
        ({"lft": "host.zone"}, "there is no 'lft'"),
        (both("AND", leaf("host.zon", "eq", "a")), "expression.subExpressions[0].left"),
    ],
)
def test_a_mistake_in_a_tree_names_its_place(tree: object, says: str) -> None:
    with pytest.raises(RuleError) as caught:
        from_tree(tree)
    assert says in caught.value.message


def test_types_of_a_tree_are_checked_too() -> None:
    with pytest.raises(RuleError, match="never equal"):
        condition_of_tree(leaf("host.zone", "eq", 1))


def test_a_tree_of_a_thousand_levels_is_refused() -> None:
    tree = leaf("host.vms", "lt", 1)
    for _ in range(1000):
        tree = both("NOT", tree)
    with pytest.raises(RuleError, match="64 levels deep"):
        condition_of_tree(tree)
