"""The language reference is true: its examples are run, its tables are those of the code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import RuleError
from roost.rules.checking import condition
from roost.rules.evaluating import judge
from roost.rules.fields import FIELDS
from roost.rules.functions import FUNCTIONS
from roost.rules.parsing import MACROS, MAX_DEPTH, MAX_ITEMS, MAX_TEXT, parse
from roost.rules.patterns import MAX_PATTERN
from roost.rules.tree import OPERATORS, condition_of_tree, to_tree
from roost.rules.values import Trouble

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rule-language.md"
TEXT = PAGE.read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


WORLD: dict[str, Any] = json.loads(blocks("json world")[0])
EXAMPLES = [
    (rule.strip(), said.strip())
    for block in blocks("cel")
    for rule, said in (line.rsplit("//", 1) for line in block.splitlines() if line.strip())
]
MISTAKES = blocks("text mistake")
TREES = [json.loads(block) for block in blocks("json tree")]


@pytest.mark.parametrize(("rule", "said"), EXAMPLES, ids=[rule for rule, _ in EXAMPLES])
def test_an_example_says_what_is_written_behind_it(rule: str, said: str) -> None:
    found = judge(condition(rule), WORLD)
    assert said == (f"error: {found.message}" if isinstance(found, Trouble) else str(found).lower())


@pytest.mark.parametrize("block", MISTAKES)
def test_a_mistake_is_told_as_written(block: str) -> None:
    rule = block.splitlines()[0]
    with pytest.raises(RuleError) as caught:
        condition(rule)
    error = caught.value
    assert block.rstrip("\n") == f"{error.picture}\n{error.message}\n{error.hint}"


@pytest.mark.parametrize("pair", TREES, ids=[pair["rule"] for pair in TREES])
def test_both_forms_of_an_example_are_the_same_rule(pair: dict[str, Any]) -> None:
    assert to_tree(parse(pair["rule"]), pair["rule"]) == pair["expression"]
    assert condition_of_tree(pair["expression"]).text == pair["rule"]


def field_rows() -> list[str]:
    """Return the rows of the table of fields; resources of one record share a row."""
    rows: dict[str, str] = {}
    for field in FIELDS.by_path.values():
        record, _, name = field.path.rpartition(".")
        shared = f"{record}.memory" in FIELDS.by_path and f"{record}.disk" in FIELDS.by_path
        path = f"{record}.cpu .memory .disk" if shared else field.path
        means = field.means.replace(f" {name}", " a resource") if shared else field.means
        unit = "millicores, bytes, bytes" if shared else field.unit
        what = f"{field.type}".replace(f"{field.path}[]", "record")
        said = f"{means} ({unit})" if unit else means
        rows.setdefault(path, f"| `{path}` | {what} | {said} | {field.changes.value} |")
    return list(rows.values())


def test_the_table_of_fields_is_that_of_the_code() -> None:
    assert [line for line in TEXT.splitlines() if line in field_rows()] == field_rows()


def test_every_function_macro_and_operator_is_in_the_reference() -> None:
    named = set(re.findall(r"`([A-Za-z_]+)[`(]|\.([A-Za-z_]+)\(", TEXT))
    words = {word for pair in named for word in pair}
    assert {*FUNCTIONS, *MACROS, *OPERATORS, "has"} <= words


@pytest.mark.parametrize("bound", [MAX_TEXT, MAX_DEPTH, MAX_ITEMS, MAX_PATTERN])
def test_bounds_are_in_the_reference(bound: int) -> None:
    assert f" {bound:,} " in TEXT
