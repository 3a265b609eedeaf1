"""Which of the migrations that wait may begin: first come, first served, within all limits. Pure.

Those that were asked for first are looked at first; one that has no room does not hold up others
that have. The reasons name limits, not how full they are, so that they do not change all the time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from roost.kube.base.objects import Key, Object
from roost.kube.moving.budgets import Moving, room


class Wish(NamedTuple):
    """A VM that is to leave its node."""

    key: Key  # namespace and name
    node: str
    labels: Mapping[str, str]  # of its pod
    requested_at: str


class Begun(NamedTuple):
    """A migration under way."""

    key: Key
    node: str  # that it leaves
    labels: Mapping[str, str]


class Admitted(NamedTuple):
    """Who begins, in order, and why the others do not."""

    begin: list[Wish]
    reasons: dict[Key, str]


def admit(
    wishes: Iterable[Wish],
    under_way: Sequence[Begun],
    budgets: Sequence[Object],
    *,
    at_once: int,
    per_node: int,
) -> Admitted:
    """Say who may begin now besides those that are under way."""
    admitted = Admitted([], {})
    leaving = Counter(each.node for each in under_way)
    moving = [Moving(each.key[0], each.labels) for each in under_way]
    for wish in sorted(wishes, key=lambda each: (each.requested_at, each.key)):
        allowed = room(budgets, wish.key[0], wish.labels, moving)
        if not allowed.free:
            admitted.reasons[wish.key] = allowed.reason
        elif leaving[wish.node] >= per_node:
            admitted.reasons[wish.key] = (
                f"at most {per_node} migrations leave node {wish.node} at once"
            )
        elif len(moving) >= at_once:
            admitted.reasons[wish.key] = f"at most {at_once} migrations are under way at once"
        else:
            admitted.begin.append(wish)
            leaving[wish.node] += 1
            moving.append(Moving(wish.key[0], wish.labels))
    return admitted
