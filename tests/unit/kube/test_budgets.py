"""Budgets cover what their selectors pick, and never let more VMs be disturbed than allowed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.kube.moving.budgets import Moving, covering, room, selects

WEB = {"app": "web", "tier": "front"}


def budget(name: str, selector: Any, allowed: int = 1, space: str = "s", **status: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def expression(key: str, operator: str, *values: str) -> Any:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "picked"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        (expression("app", "In", "web", "db"), True),
        (expression("app", "In", "db"), False),
        (expression("app", "NotIn", "db"), True),
        (expression("other", "NotIn", "db"), True),
        (expression("app", "NotIn", "web"), False),
        (expression("app", "Exists"), True),
        (expression("other", "Exists"), False),
        (expression("other", "DoesNotExist"), True),
        (expression("app", "DoesNotExist"), False),
        ({"matchLabels": {"app": "web"}, **expression("tier", "In", "back")}, False),
        (expression("app", "Like", "web"), False),
    ],
)
def test_selectors_pick_as_kubernetes_does(selector: Any, picked: bool) -> None:
    assert selects(selector, WEB) is picked


def test_only_budgets_of_the_namespace_cover() -> None:
    all_of = [budget("b", {}), budget("a", {}), budget("c", {}, space="other"), budget("d", None)]
    assert [each["metadata"]["name"] for each in covering(all_of, "s", WEB)] == ["a", "b"]


def test_without_a_budget_there_is_room() -> None:
    assert room([], "s", WEB, []).free


def test_a_full_budget_is_named_with_its_figures() -> None:
    full = budget("front", {}, 0, currentHealthy=2, desiredHealthy=2)
    told = room([budget("free", {}, 5), full], "s", WEB, [])
    assert not told.free
    assert told.reason == (
        "disruption budget front allows no more VM to be disturbed now: 2 healthy, 2 wanted"
    )
    told = room([budget("front", {}, 1)], "s", WEB, [Moving("s", WEB, 0)])
    assert told.reason.endswith("1 under way")


def test_a_budget_that_kubernetes_cannot_compute_says_why() -> None:
    conditions = [{"reason": "SyncFailed", "message": "found no controllers"}]
    told = room([budget("b", {}, 0, conditions=conditions)], "s", WEB, [])
    assert "found no controllers" in told.reason


def test_what_was_counted_before_the_budget_was_changed_allows_nothing() -> None:
    changed = budget("b", {}, 3, observedGeneration=1)
    changed["metadata"]["generation"] = 2
    told = room([changed], "s", WEB, [])
    assert (told.free, told.reason.partition(": ")[2]) == (
        False,
        "Kubernetes has yet to compute it",
    )
    changed["status"]["observedGeneration"] = 2
    assert room([changed], "s", WEB, []).free


@given(st.integers(0, 6), st.integers(0, 6), st.data())
def test_never_more_are_disturbed_than_are_allowed_without_the_targets(
    healthy: int, wanted: int, data: st.DataObject
) -> None:
    """Kubernetes counts targets that are ready as healthy; that must not make room."""
    moving: list[Moving] = []
    while True:
        targets = sum(each.second_pods for each in moving)
        allowed = max(healthy + targets - wanted, 0)
        if not room([budget("b", {}, allowed)], "s", WEB, moving).free:
            break
        moving.append(Moving("s", WEB, data.draw(st.integers(0, 1))))
    assert len(moving) == max(healthy - wanted, 0)
