"""Whose turn it is to move: the VMs that wait for a slot, and those that hold one.

    wish ----> waits, with a reason ----> holds a slot ----> given back: the next may begin
                     ^                        ^
             budget not settled       known from the cluster (`hold`)

`slots` decides who may begin; this remembers who waits and who has begun, and asks again whenever
something may have changed. It writes nothing: whoever may begin, or waits for another reason than
before, is to be looked at, and `migrating` does the rest.
"""

from collections.abc import Callable, Iterable

from roost.base.clock import Clock
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.moving.budgets import covering
from roost.kube.moving.slots import Begun, Wish, admit

#: A budget is not trusted to know of a pod that has just gone until it was written again.
SETTLES_S = 2.0


class Turns:
    """Wishes and slots; a VM has at most one of them."""

    def __init__(
        self,
        budgets: Iterable[Object],
        clock: Clock,
        look: Callable[[Key], None],
        *,
        at_once: int,
        per_node: int,
    ) -> None:
        """Take the budgets, which may change, and what is called with whoever is to be seen to."""
        self._budgets, self._clock, self._look = budgets, clock, look
        self._at_once, self._per_node = at_once, per_node
        self._wishes: dict[Key, Wish] = {}
        self._begun: dict[Key, Begun] = {}
        self._reasons: dict[Key, str] = {}  # why a wish waits
        # Budgets, and until when they are not trusted, for each of the pods that go.
        self._unsettled: dict[Key, dict[str, float]] = {}

    @property
    def begun(self) -> list[Key]:
        """Return those that hold a slot."""
        return sorted(self._begun)

    @property
    def waiting(self) -> list[Key]:
        """Return those that wait for one."""
        return sorted(self._wishes)

    def has_begun(self, key: Key) -> bool:
        """Say whether a VM holds a slot."""
        return key in self._begun

    def why_waiting(self, key: Key) -> str:
        """Return why a VM has no slot yet; '' when nothing is known to be in its way."""
        return self._reasons.get(key, "")

    def settle_in_s(self) -> float | None:
        """Return after how long to ask again because of a budget; None when all are trusted."""
        return SETTLES_S if self._unsettled else None

    # Coming and going

    def wish(self, wish: Wish) -> bool:
        """Ask for a slot, and say whether there is one; one that is held stays."""
        if wish.key not in self._begun:
            self._wishes[wish.key] = wish
            self.offer()
        return wish.key in self._begun

    def hold(self, begun: Begun) -> None:
        """Take a slot without asking: the migration is under way, whatever the limits are now."""
        self._drop_wish(begun.key)
        self._begun[begun.key] = begun

    def end(self, key: Key) -> None:
        """Know of a VM no more; with the slot that it gives back the next may begin."""
        self._drop_wish(key)
        if self._begun.pop(key, None) is not None:
            self.offer()

    def _drop_wish(self, key: Key) -> None:
        self._wishes.pop(key, None)
        self._reasons.pop(key, None)

    # Budgets

    def unsettle(self, namespace: str, pod: str, labels: dict[str, str]) -> None:
        """Trust no budget of a pod that goes now, until it is heard of again."""
        until = self._clock.monotonic() + SETTLES_S
        for budget in covering(self._budgets, namespace, labels):
            self._unsettled.setdefault(key_of(budget), {}).setdefault(pod, until)

    def settle(self, budget: Key) -> None:
        """Trust a budget that was written again."""
        self._unsettled.pop(budget, None)
        self.offer()

    # Whose turn it is

    def offer(self) -> None:
        """Let those begin that may, and have those looked at whose reason to wait is another."""
        held = self._held()
        admitted = admit(
            [wish for key, wish in self._wishes.items() if key not in held],
            list(self._begun.values()),
            list(self._budgets),
            at_once=self._at_once,
            per_node=self._per_node,
        )
        for wish in admitted.begin:
            self.hold(Begun(wish.key, wish.node, wish.labels))
            self._look(wish.key)
        for key, reason in (admitted.reasons | held).items():
            if self._reasons.get(key) != reason:
                self._reasons[key] = reason
                self._look(key)

    def _held(self) -> dict[Key, str]:
        """Return those that wait for a budget that is not trusted, and why."""
        now = self._clock.monotonic()
        self._unsettled = {
            key: pods for key, pods in self._unsettled.items() if max(pods.values()) > now
        }
        unsettled = [item for item in self._budgets if key_of(item) in self._unsettled]
        return {
            key: f"disruption budget {found[0]['metadata']['name']} is being computed"
            for key, wish in self._wishes.items()
            if (found := covering(unsettled, key[0], wish.labels))
        }
