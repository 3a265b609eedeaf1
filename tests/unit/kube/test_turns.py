"""Who waits and who moves: no limit is ever passed, and no slot is left empty that one may have."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from roost.kube.base.objects import Key
from roost.kube.moving.slots import Begun, Wish
from roost.kube.moving.turns import SETTLES_S, Turns
from roost.testing.clock import HandClock

KEYS = st.sampled_from([("s", f"v{number}") for number in range(8)])
NODES = st.sampled_from(["a", "b", "c"])
APPS = st.sampled_from(["web", "db"])


def budget(allowed: int, app: str = "web") -> Any:
    return {
        "metadata": {"name": f"keep-{app}", "namespace": "s"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def wish(name: str, node: str = "a", app: str = "db") -> Wish:
    return Wish(("s", name), node, {"app": app}, "1")


class Seen:
    """Turns of a test, and who was to be looked at since it last asked."""

    def __init__(self, *budgets: Any, at_once: int = 2, per_node: int = 2) -> None:
        self.clock, self.budgets, self.looks = HandClock(), list(budgets), list[Key]()
        self.turns = Turns(
            self.budgets, self.clock, self.looks.append, at_once=at_once, per_node=per_node
        )


def test_a_slot_that_is_given_back_lets_the_next_begin() -> None:
    seen = Seen(at_once=1)
    assert seen.turns.wish(wish("first"))
    assert not seen.turns.wish(wish("second"))
    assert "at most 1 migrations are under way" in seen.turns.why_waiting(("s", "second"))
    seen.looks.clear()
    seen.turns.end(("s", "first"))
    assert (seen.turns.begun, seen.turns.waiting) == ([("s", "second")], [])
    assert seen.turns.why_waiting(("s", "second")) == ""
    assert seen.looks == [("s", "second")]


def test_one_that_is_under_way_already_takes_a_slot_beyond_every_limit() -> None:
    seen = Seen(at_once=1, per_node=1)
    seen.turns.hold(Begun(("s", "one"), "a", {}))
    seen.turns.wish(wish("two"))
    seen.turns.hold(Begun(("s", "two"), "a", {}))
    assert (len(seen.turns.begun), seen.turns.waiting) == (2, [])
    # Those that come now wait until both are done.
    seen.turns.wish(wish("three", "b"))
    seen.turns.end(("s", "one"))
    assert seen.turns.waiting == [("s", "three")]
    seen.turns.end(("s", "two"))
    assert seen.turns.begun == [("s", "three")]


def test_a_budget_that_is_not_settled_holds_its_vms_and_nobody_else() -> None:
    seen = Seen(budget(5), at_once=9, per_node=9)
    seen.turns.unsettle("s", "gone", {"app": "web"})
    assert not seen.turns.wish(wish("web", app="web"))
    said = seen.turns.why_waiting(("s", "web"))
    assert said == "disruption budget keep-web is being computed"
    assert seen.turns.settle_in_s() == SETTLES_S
    assert seen.turns.wish(wish("db", app="db"))
    seen.turns.settle(("s", "keep-web"))  # it was written again
    assert seen.turns.begun == [("s", "db"), ("s", "web")]
    assert seen.turns.settle_in_s() is None


def test_a_budget_that_nobody_writes_again_is_trusted_after_a_while() -> None:
    seen = Seen(budget(5))
    seen.turns.unsettle("s", "gone", {"app": "web"})
    seen.clock.now += SETTLES_S / 2
    seen.turns.unsettle(
        "s", "gone", {"app": "web"}
    )  # a second look at the same pod makes it no longer
    assert not seen.turns.wish(wish("web", app="web"))
    seen.clock.now += SETTLES_S / 2
    assert seen.turns.wish(wish("web", app="web"))


def test_every_pod_that_goes_has_its_own_time_to_be_counted() -> None:
    seen = Seen(budget(5))
    seen.turns.unsettle("s", "one", {"app": "web"})
    seen.clock.now += SETTLES_S - 0.1
    seen.turns.unsettle("s", "two", {"app": "web"})
    seen.clock.now += 0.2
    assert not seen.turns.wish(wish("web", app="web"))
    seen.clock.now += SETTLES_S
    assert seen.turns.wish(wish("web", app="web"))


def test_a_wish_that_waits_is_looked_at_only_when_its_reason_changes() -> None:
    seen = Seen(at_once=1)
    seen.turns.wish(wish("first"))
    seen.turns.wish(wish("second"))
    seen.looks.clear()
    seen.turns.offer()
    assert seen.looks == []
    seen.budgets.append(budget(0, "db"))
    seen.turns.offer()
    assert seen.looks == [("s", "second")]
    assert "disruption budget keep-db" in seen.turns.why_waiting(("s", "second"))


class Machine(RuleBasedStateMachine):
    """VMs come and go in any order; what holds at every moment is an invariant."""

    @initialize(at_once=st.integers(1, 4), per_node=st.integers(1, 3), allowed=st.integers(0, 9))
    def begin(self, at_once: int, per_node: int, allowed: int) -> None:
        self.at_once, self.per_node = at_once, per_node
        self.seen = Seen(budget(allowed), at_once=at_once, per_node=per_node)
        self.turns = self.seen.turns
        self.where: dict[Key, tuple[str, str]] = {}  # node and app of whoever waits or moves
        self.before: set[Key] = set()
        self.trusted_at = 0.0
        self.asked = True  # whether the last step let those begin that may

    def step(self, *, asked: bool = True) -> None:
        self.before, self.asked = set(self.turns.begun), asked
        self.seen.looks.clear()

    @rule(key=KEYS, node=NODES, app=APPS)
    def wish(self, key: Key, node: str, app: str) -> None:
        self.step(asked=not self.turns.has_begun(key))
        if self.asked:
            self.where[key] = node, app
        self.turns.wish(Wish(key, node, {"app": app}, "1"))

    @rule(key=KEYS, node=NODES, app=APPS)
    def find_under_way(self, key: Key, node: str, app: str) -> None:
        self.turns.hold(Begun(key, node, {"app": app}))
        self.where[key] = node, app
        self.step(asked=False)

    @rule(key=KEYS)
    def end(self, key: Key) -> None:
        self.step(asked=self.turns.has_begun(key))
        self.turns.end(key)

    @rule()
    def a_pod_goes(self) -> None:
        self.step(asked=False)
        if self.trusted_at <= self.seen.clock.now:
            self.trusted_at = self.seen.clock.now + SETTLES_S
        self.turns.unsettle("s", "gone", {"app": "web"})

    @rule(allowed=st.integers(0, 9))
    def the_budget_is_written(self, allowed: int) -> None:
        self.step()
        self.seen.budgets[:] = [budget(allowed)]
        self.trusted_at = 0.0
        self.turns.settle(("s", "keep-web"))

    @rule(seconds=st.sampled_from([0.5, 1.0, SETTLES_S]))
    def time_passes(self, seconds: float) -> None:
        self.step()
        self.seen.clock.now += seconds
        self.turns.offer()

    @invariant()
    @precondition(lambda self: hasattr(self, "turns"))
    def nobody_waits_and_moves(self) -> None:
        assert not set(self.turns.waiting) & set(self.turns.begun)

    @invariant()
    @precondition(lambda self: hasattr(self, "turns"))
    def no_limit_is_passed_by_those_that_begin(self) -> None:
        began = set(self.turns.begun) - self.before
        leaving = Counter(self.where[key][0] for key in self.turns.begun)
        for key in began:
            node, app = self.where[key]
            assert len(self.turns.begun) <= self.at_once
            assert leaving[node] <= self.per_node
            assert app != "web" or self.trusted_at <= self.seen.clock.now
            assert key in self.seen.looks

    @invariant()
    @precondition(lambda self: hasattr(self, "turns"))
    def nobody_waits_without_reason(self) -> None:
        leaving = Counter(self.where[key][0] for key in self.turns.begun)
        for key in self.turns.waiting:
            node, app = self.where[key]
            assert self.turns.why_waiting(key)
            if self.asked and app == "db":
                assert len(self.turns.begun) >= self.at_once or leaving[node] >= self.per_node
        for key in self.turns.begun:
            assert not self.turns.why_waiting(key)


TestTurns = Machine.TestCase
TestTurns.settings = settings(max_examples=60, stateful_step_count=30)
