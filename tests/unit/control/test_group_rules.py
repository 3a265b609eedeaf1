"""Whether a group's rule holds for its members where they are."""

import pytest

from roost.control.groups.rules import Place, Rule, broken, uneven


def places(*words: str) -> list[Place]:
    """Return places from words like a@h1:z1; what follows the colon is the domain."""
    found = []
    for word in words:
        vm, _, where = word.partition("@")
        host, _, domain = where.partition(":")
        found.append(Place(vm, host, domain))
    return found


@pytest.mark.parametrize(
    ("rule", "members"),
    [
        ("anti-affinity", ()),
        ("anti-affinity", ("a@h1:z1", "b@h2:z2")),
        ("anti-affinity", ("a@h1:z1", "a@h2:z1")),  # one that moves is not beside itself
        ("affinity", ("a@h1:z1", "b@h2:z1", "b@h3:z1")),
        ("spread", ("a@h1:z1", "b@h1:z1", "c@h1:z1")),  # uneven, which is another question
    ],
)
def test_it_holds(rule: str, members: tuple[str, ...]) -> None:
    assert broken(Rule(rule, "zone"), places(*members)) == []


@pytest.mark.parametrize(
    ("rule", "members", "said"),
    [
        (
            "anti-affinity",
            ("a@h1:z1", "b@h2:z1", "c@h3:z2"),
            "VM 'a' on host 'h1', VM 'b' on host 'h2' share the zone 'z1'",
        ),
        (
            "anti-affinity",
            ("a@h1:z1", "a@h2:z2", "b@h3:z2"),
            "VM 'a' on host 'h2', VM 'b' on host 'h3' share the zone 'z2'",
        ),
        (
            "affinity",
            ("a@h1:z1", "b@h2:z1", "c@h3:z2"),
            "VM 'c' on host 'h3' is in the zone 'z2', and not in 'z1', where 2 others are",
        ),
        ("spread", ("a@h1:",), "VM 'a' is on host 'h1', whose zone is unknown"),
    ],
)
def test_whoever_breaks_it_is_named_with_the_host(
    rule: str, members: tuple[str, ...], said: str
) -> None:
    assert broken(Rule(rule, "zone"), places(*members)) == [said]


def test_many_that_break_it_are_counted() -> None:
    crowd = places(*(f"v{n}@h1:h1" for n in range(9)))
    (said,) = broken(Rule("anti-affinity", "host"), crowd)
    assert "VM 'v4' on host 'h1', 4 more share the host 'h1'" in said


def test_a_spread_is_uneven_by_more_than_its_skew() -> None:
    members = places("a@h1:z1", "b@h1:z1")
    assert uneven(Rule("spread", "zone", 2), members, {"z1", "z2", ""}) == ""
    said = uneven(Rule("spread", "zone", 1), members, {"z1", "z2", ""})
    assert said == "the zone 'z1' has 2 members and 'z2' has 0: 2 apart, 1 is asked for"
    assert uneven(Rule("affinity", "zone", 1), members, {"z1", "z2"}) == ""
    assert uneven(Rule("spread", "zone", 1), [], []) == ""
