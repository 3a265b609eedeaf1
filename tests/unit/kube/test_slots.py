"""Migrations begin in the order in which they were asked for, and within every limit."""

import math
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roost.kube.moving.slots import Begun, Wish, admit

NODES = st.sampled_from(["a", "b", "c"])
APPS = st.sampled_from(["web", "db"])


def wish(name: str, node: str = "a", at: str = "1", app: str = "web") -> Wish:
    return Wish(("s", name), node, {"app": app}, at)


def budget(app: str, allowed: int) -> Any:
    return {
        "metadata": {"name": f"keep-{app}", "namespace": "s"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def test_who_asked_first_begins_first() -> None:
    wishes = [wish("late", "a", "2"), wish("early", "b", "1")]
    admitted = admit(wishes, [], [], at_once=1, per_node=2)
    assert [each.key[1] for each in admitted.begin] == ["early"]
    assert admitted.reasons == {("s", "late"): "at most 1 migrations are under way at once"}


def test_one_without_room_does_not_hold_up_the_others() -> None:
    wishes = [wish("a1", "a", "1"), wish("a2", "a", "2"), wish("b1", "b", "3")]
    admitted = admit(wishes, [], [], at_once=5, per_node=1)
    assert [each.key[1] for each in admitted.begin] == ["a1", "b1"]
    assert admitted.reasons == {("s", "a2"): "at most 1 migrations leave node a at once"}


def test_a_budget_is_named() -> None:
    admitted = admit([wish("a")], [], [budget("web", 0)], at_once=5, per_node=2)
    assert "disruption budget keep-web" in admitted.reasons["s", "a"]
    assert admit([wish("a", app="db")], [], [budget("web", 0)], at_once=5, per_node=2).begin


WISHES = st.lists(st.tuples(NODES, st.sampled_from("123"), APPS), max_size=12)
BEGUN = st.lists(st.tuples(NODES, APPS), max_size=6)


@given(WISHES, BEGUN, st.integers(1, 8), st.integers(1, 3), st.integers(0, 6))
def test_no_limit_is_passed_and_nobody_waits_without_reason(
    asked: list[tuple[str, str, str]],
    begun: list[tuple[str, str]],
    at_once: int,
    per_node: int,
    allowed: int,
) -> None:
    wishes = [wish(f"w{n}", node, at, app) for n, (node, at, app) in enumerate(asked)]
    under_way = [Begun(("s", f"b{n}"), node, {"app": app}) for n, (node, app) in enumerate(begun)]
    admitted = admit(
        wishes, under_way, [budget("web", allowed)], at_once=at_once, per_node=per_node
    )
    assert {each.key for each in admitted.begin} | set(admitted.reasons) == {w.key for w in wishes}
    all_now = [*under_way, *admitted.begin]
    leaving = Counter(each.node for each in all_now)
    web = [each for each in all_now if each.labels["app"] == "web"]
    if admitted.begin:
        assert len(all_now) <= at_once
    assert all(leaving[each.node] <= per_node for each in admitted.begin)
    if any(each.labels["app"] == "web" for each in admitted.begin):
        # Each that was under way before the last one may have a second pod among the allowed.
        assert allowed >= 2 * (len(web) - 1) + 1
    for waiting in wishes:
        if waiting.key in admitted.reasons:
            assert (
                len(all_now) >= at_once
                or leaving[waiting.node] >= per_node
                or (waiting.labels["app"] == "web" and allowed < 2 * len(web) + 1)
            )


NUMBERS, SHARES = st.integers(0, 7), st.integers(0, 100).map(lambda share: f"{share}%")
WORDS = st.tuples(st.sampled_from(["minAvailable", "maxUnavailable"]), NUMBERS | SHARES)


def stay(words: tuple[str, int | str], vms: int) -> int:
    """Return how many of some VMs have to stay undisturbed; shares are rounded up."""
    kind, amount = words
    if isinstance(amount, str):
        amount = math.ceil(vms * int(amount.rstrip("%")) / 100)
    return amount if kind == "minAvailable" else max(vms - amount, 0)


@given(WORDS, st.integers(1, 7), st.integers(0, 7), st.data())
def test_in_whatever_words_a_budget_is_written_enough_vms_stay_undisturbed(
    words: tuple[str, int | str], vms: int, down: int, data: st.DataObject
) -> None:
    wanted, healthy = stay(words, vms), max(vms - down, 0)
    begun: list[Begun] = []

    def turn(targets: int) -> None:
        # As Kubernetes has counted: VMs, and every pod that was ready when it did.
        allowed = max(healthy + targets - wanted, 0)
        waiting = [wish(f"v{n}") for n in range(healthy) if ("s", f"v{n}") not in moving()]
        admitted = admit(waiting, begun, [budget("web", allowed)], at_once=99, per_node=99)
        begun.extend(Begun(each.key, each.node, each.labels) for each in admitted.begin)
        assert not begun or healthy - len(begun) >= wanted

    def moving() -> set[Any]:
        return {each.key for each in begun}

    for _ in range(vms):
        turn(data.draw(st.integers(0, len(begun)), "targets it has counted"))
    for _ in range(vms):
        turn(len(begun))
    # When all is counted nobody waits for nothing.
    assert len(begun) == max(healthy - wanted, 0)
