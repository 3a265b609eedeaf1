"""The cases of cases.txt: what rules say of one host and one VM, and how they are refused."""

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import RuleError
from roost.rules.checking import condition
from roost.rules.evaluating import judge
from roost.rules.parsing import parse
from roost.rules.printing import write
from roost.rules.values import Trouble

GIB = 2**30
WORLD: dict[str, Any] = {
    "host": {
        "name": "h12",
        "zone": "north",
        "rack": "r3",
        "site": "",
        "labels": {"disk": "nvme", "generation": "4"},
        "taints": [{"key": "batch", "value": "", "effect": "prefer-not"}],
        "capabilities": ["nested", "uefi"],
        "devices": [
            {"model": "a100", "memory": 80 * GIB, "shareable": False},
            {"model": "a100", "memory": 40 * GIB, "shareable": False},
            {"model": "t4", "memory": 16 * GIB, "shareable": True},
        ],
        "capacity": {"cpu": 16000, "memory": 256 * GIB, "disk": 0},
        "committed": {"cpu": 12000, "memory": 192 * GIB, "disk": 0},
        "free": {"cpu": 4000, "memory": 64 * GIB, "disk": 0},
        "used": {},
        "pressure": {"cpu": 12.5},
        "vms": 3,
    },
    "vm": {
        "name": "pg-1",
        "project": "shop",
        "labels": {"tier": "db"},
        "priority": 50,
        "demand": {"cpu": 2000, "memory": 32 * GIB, "disk": 0},
    },
    "project": {"name": "shop", "vms": 12},
    "group": {"name": "pg", "hosts": ["h7", "h9"], "zones": ["south"], "size": 2},
    "fleet": {"load": 0.6, "hour": 22, "minute": 15, "weekday": 2},
}

CASES = [
    tuple(part.strip() for part in line.rsplit("->", 1))
    for line in Path(__file__).with_name("cases.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def said(text: str) -> str:
    """Return what becomes of a rule, as the cases write it."""
    try:
        rule = condition(text)
    except RuleError as error:
        message = error.message.removeprefix(f"line 1, column {error.column}: ")
        return f"refused {error.column}: {message} / {(error.hint or '').removeprefix('Maybe ')}"
    found = judge(rule, WORLD)
    if isinstance(found, Trouble):
        return f"error: {found.message}"
    return "true" if found else "false"


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_a_rule_says_what_its_line_says(text: str, expected: str) -> None:
    found = said(text)
    if " / " not in expected:
        found = found.partition(" / ")[0]
    assert found == expected


@pytest.mark.parametrize("text", [text for text, expected in CASES if "refused" not in expected])
def test_the_canonical_text_of_a_rule_is_the_same_rule(text: str) -> None:
    assert parse(write(parse(text))) == parse(text)
