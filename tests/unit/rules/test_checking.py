"""Mistakes in rules are told when a rule is made: where, what, and what was probably meant."""

import pytest

from roost.base.errors import RuleError
from roost.rules.checking import condition
from roost.rules.fields import Changes, Fields


def refusal(text: str, fields: Fields | None = None) -> RuleError:
    with pytest.raises(RuleError) as caught:
        condition(text, fields or Fields.of())
    return caught.value


@pytest.mark.parametrize(
    ("text", "column", "says", "maybe"),
    [
        ('host.zon == "a"', 6, "host has no field 'zon'", "host.zone"),
        ('hots.zone == "a"', 1, "there is no variable 'hots'", "host"),
        ("host.free.memry > 0", 11, "host.free has no field 'memry'", "host.free.memory"),
        ('host.name.startWith("a")', 1, "there is no function 'startWith'", "startsWith()"),
        ("host.zone == 1", 1, "== compares string with int", "int(...)"),
        ("host.zone == null", 1, "never equal", "has(...)"),
        ("host.free.memory / 2.0 > 1.0", 1, "/ does not work on int and double", "double(...)"),
        ("host.free.memory >= 64", 21, "counts bytes", 'quantity("64Gi")'),
        ("host.free.cpu >= 4", 18, "counts millicores", 'cores("4")'),
        ('host.free.memory >= quantity("64gi")', 30, "unknown unit 'gi'", ""),
        ("host.name", 1, "a rule is a condition; this is of type string", ""),
        ('host.name.matches("(")', 19, "not one of RE2", ""),
        ("host.vms && true", 1, "&& joins conditions, and this is of type int", ""),
    ],
)
def test_a_mistake_has_its_place_and_a_suggestion(
    text: str, column: int, says: str, maybe: str
) -> None:
    error = refusal(text)
    assert (error.line, error.column) == (1, column)
    assert says in error.message
    assert maybe in (error.hint or "")


def test_the_picture_points_at_the_mistake() -> None:
    error = refusal('host.rack == "1" &&\n  host.zon == "a"')
    assert (error.line, error.column) == (2, 8)
    assert error.picture == '  host.zon == "a"\n       ^^^'


def test_extended_resources_are_fields_of_a_fleet_that_has_them() -> None:
    assert "has no field 'licence'" in refusal("host.free.licence > 0").message
    assert condition("host.free.licence > 0", Fields.of(("licence",))).reads
    assert condition('host.free["vendor.example/card"] > 0').reads


def test_a_condition_knows_what_it_reads() -> None:
    rule = condition('host.labels.disk == "nvme" && host.free.memory > vm.demand.memory')
    assert {(read.field.path, read.key) for read in rule.reads} == {
        ("host.labels", "disk"),
        ("host.free.memory", None),
        ("vm.demand.memory", None),
    }
    assert rule.changes == {Changes.HOST, Changes.AMOUNTS, Changes.VM}


def test_a_label_and_all_labels_are_two_reads() -> None:
    rule = condition('size(host.labels) > 1 && host.labels["a"] == "b"')
    assert {(read.field.path, read.key) for read in rule.reads} == {
        ("host.labels", None),
        ("host.labels", "a"),
    }


@pytest.mark.parametrize("name", ["host", "vm", "project", "group", "fleet"])
def test_a_macro_does_not_hide_a_variable_of_every_rule(name: str) -> None:
    with pytest.raises(RuleError) as caught:
        condition(f'true && [{{"name": "x"}}].all({name}, {name}.name == "p")')
    assert caught.value.column == 9
    assert caught.value.hint == "Maybe another name is meant."
