"""The JSON tree and the language say the same: a tree survives the way to text and back."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roost.rules.parsing import parse
from roost.rules.printing import write
from roost.rules.tree import from_tree, to_tree

LABELS = ("host.labels.disk", 'vm.labels["a/b"]')
TEXTS = ("host.zone", "vm.name", *LABELS)
AMOUNTS = ("host.free.memory", "vm.demand.cpu", 'fleet.free["licence"]', "host.vms")
LISTS = ("host.capabilities", "group.hosts", "vm.groups")
ORDER = ("eq", "neq", "lt", "lte", "gt", "gte")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)


def leaf(left: str, operator: str, *right: Any) -> dict[str, Any]:
    return {"left": left, "operator": operator, **({"right": right[0]} if right else {})}


def fields(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    return st.sampled_from(names).map(lambda name: {"field": name})


leaves = st.one_of(
    st.builds(leaf, st.sampled_from(TEXTS), st.sampled_from(ORDER), texts | fields(TEXTS)),
    st.builds(leaf, st.sampled_from(AMOUNTS), st.sampled_from(ORDER), numbers | fields(AMOUNTS)),
    st.builds(leaf, st.sampled_from(AMOUNTS[:2]), st.just("gte"), st.sampled_from(["4", "2Gi"])),
    st.builds(leaf, st.sampled_from(TEXTS), st.sampled_from(["in", "not_in"]), fields(LISTS)),
    st.builds(
        leaf, st.sampled_from(TEXTS), st.sampled_from(["in", "not_in"]), st.lists(texts, max_size=3)
    ),
    st.builds(leaf, st.sampled_from(TEXTS), st.sampled_from(["exists", "not_exists"])),
    st.builds(leaf, st.sampled_from((*TEXTS, *LISTS)), st.just("contains"), texts),
)


def compound(word: str, inside: list[Any]) -> dict[str, Any]:
    return {"logicalOperator": word, "subExpressions": inside[:1] if word == "NOT" else inside}


trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        compound, st.sampled_from(["AND", "OR", "NOT"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(trees)
def test_a_tree_survives_the_way_to_text_and_back(tree: dict[str, Any]) -> None:
    text = write(from_tree(tree))
    assert from_tree(to_tree(parse(text), text)) == parse(text)
