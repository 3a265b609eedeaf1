"""Watts: curves from labels, and consolidation that saves them."""

import pytest

from roost.model.hosts import HostSpec
from roost.planner.drafting import Wish, draft
from roost.planner.power import LABEL, Curve, curve_of
from tests.builders import host, request
from tests.unit.planner.boards import board_of


def drawing(name: str, watts: str) -> HostSpec:
    """Return a host of eight cores that says what it draws."""
    return host(name, 8000, labels=((LABEL, watts),))


def test_a_curve_is_a_line_between_its_points() -> None:
    curve = curve_of(((LABEL, "100/200/240"),))
    assert curve == Curve((100.0, 200.0, 240.0))
    assert [curve.watts(load) for load in (0, 0.25, 0.5, 0.75, 1, 2)] == [
        100, 150, 200, 220, 240, 240,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "100", "a/b", "-1/5", "200/100", "1//2", "\u00b2/5", "1/1000000", "1/" * 12 + "1"]
)
def test_a_curve_that_cannot_be_read_is_none(text: str) -> None:
    assert curve_of(((LABEL, text),)) is None


def test_the_host_that_draws_the_most_is_emptied_though_another_is_emptier() -> None:
    hosts = [drawing("old", "300/400"), drawing("new", "100/200"), drawing("next", "100/200")]
    placed = {"old": [request("v1", 1000), request("v2", 1000)], "new": [request("v3", 1000)],
              "next": [request("v4", 4000)]}  # fmt: skip
    found = draft(board_of(hosts, placed, v4={"stays": "it stays"}), Wish("consolidate"))
    assert {each.who.name for each in found.moves} == {"v1", "v2"}  # "next" is at its mark then
    assert found.before.watts is not None
    assert found.after.watts is not None
    assert found.after.watts < found.before.watts - 250


def test_vms_fill_hosts_up_though_they_would_add_fewer_watts_elsewhere() -> None:
    hosts = [drawing(name, "100/101/140/200") for name in "abc"]  # the first third costs nothing
    placed = {"a": [request("v1", 500)], "b": [request("v2", 1500)], "c": [request("v3", 4000)]}
    found = draft(board_of(hosts, placed), Wish("consolidate"))
    assert {each.who.name for each in found.moves} == {"v1", "v2"}
    assert found.after.in_use == 1


def test_a_host_is_not_emptied_where_the_others_would_draw_more() -> None:
    # An idle watt more is nothing beside what the other draws for two cores.
    hosts = [drawing("small", "1/9"), drawing("steep", "2/802")]
    placed = {"small": [request("v1", 2000)], "steep": [request("v2", 1000)]}
    board = board_of(hosts, placed, v2={"stays": "it stays"})
    assert draft(board, Wish("consolidate")).moves == ()
    plain = board_of([host("small", 8000), host("steep", 8000)], placed, v2={"stays": "it stays"})
    assert len(draft(plain, Wish("consolidate")).moves) == 1
