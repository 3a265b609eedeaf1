"""Rules without what they count of a project: for VMs that are yet to come."""

import pytest

from roost.model.rules import Rule, RuleScope, RuleSet
from roost.placement.rules.lasting import without_counts


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('host.zone == "a" && project.vms < 3', 'host.zone == "a"'),
        ('project.name == "shop" && project.vms < 3', 'project.name == "shop"'),
        ('!(project.vms > 3 || host.zone == "a")', '!(host.zone == "a")'),
        ('host.vms < 3 && (host.zone == "a" || host.zone == "b") && has(project.quota.cpu)',
         'host.vms < 3 && (host.zone == "a" || host.zone == "b")'),
        ('host.zone == "a" || project.vms < 3', None),
        ("project.committed.cpu < project.quota.cpu", None),
    ],
)  # fmt: skip
def test_conditions_that_count_are_left_out_and_others_stay(text: str, left: str | None) -> None:
    scope = RuleScope(project="shop")
    found = without_counts(RuleSet((Rule("r", text, scope=scope),), 7))
    kept = () if left is None else (Rule("r", left, scope=scope),)
    assert found == RuleSet(kept, 7)


def test_rules_that_count_nothing_are_the_same_set() -> None:
    rules = RuleSet((Rule("r", 'host.zone == "a" && project.name == "shop"'),))
    assert without_counts(rules) is rules
