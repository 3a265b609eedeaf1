"""What rules say of one host and one VM."""

from typing import Any

import pytest

from roost.rules.checking import condition
from roost.rules.evaluating import evaluate, judge
from roost.rules.parsing import parse
from roost.rules.values import Trouble

HOST = {
    "name": "r1",
    "zone": "a",
    "labels": {"disk": "nvme"},
    "taints": [{"key": "batch", "value": "", "effect": "no-place"}],
    "free": {"cpu": 4000, "memory": 64 * 2**30},
}
WORLD: dict[str, Any] = {"host": HOST, "vm": {"labels": {"tier": "db"}, "demand": {"cpu": 2000}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('host.zone in ["a", "b"]', True),
        ('host.free.memory >= quantity("64Gi")', True),
        ('host.free.memory > quantity("64GiB")', False),
        ('host.free.cpu >= vm.demand.cpu + cores("2")', True),
        ('!host.taints.exists(t, t.key == "batch")', False),
        ('has(host.labels.gpu) || host.labels["disk"].startsWith("nv")', True),
        ('host.name.matches("^r[0-9]+$")', True),
        ('host.labels.gpu == "yes" || true', True),
        ('false && host.labels.gpu == "yes"', False),
        ("1 == 1.0 && !(true == dyn_like[0])", False),
    ],
)
def test_a_rule_holds_or_does_not(text: str, expected: bool) -> None:
    assert evaluate(parse(text), {**WORLD, "dyn_like": [True]}) is expected


def test_a_missing_label_is_trouble_with_its_place() -> None:
    found = judge(condition('host.zone == "a" && host.labels.gpu == "yes"'), WORLD)
    assert isinstance(found, Trouble)
    assert found.message == "host.labels has no 'gpu'"
    assert found.span.column == 21
