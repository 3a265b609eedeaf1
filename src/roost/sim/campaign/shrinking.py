"""Make a failing history short: leave out actions as long as it fails the same way.

Halves first, then quarters, down to single actions; then fewer VMs in one request, an earlier end,
fewer hosts and planes. What is left is what the failure needs. Every try is a whole run, so tries
are counted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from roost.sim.histories.history import Action, History

Fails = Callable[[History], bool]


def shrink(history: History, fails: Fails, *, most_tries: int = 200) -> History:
    """Return a short history that still fails."""
    tries = [most_tries]

    def still(tried: History) -> bool:
        if tries[0] <= 0:
            return False
        tries[0] -= 1
        return fails(tried)

    history = _fewer_actions(history, still)
    history = _fewer_vms(history, still)
    if history.length_s and still(shorter := replace(history, length_s=0.0)):
        history = shorter
    for field, least in (("planes", 1), ("hosts", 2)):
        while getattr(history, field) > least:
            smaller = replace(history, **{field: getattr(history, field) - 1})
            if not still(smaller):
                break
            history = smaller
    return history


def _fewer_actions(history: History, still: Fails) -> History:
    def fails(actions: list[Action]) -> bool:
        return still(replace(history, actions=actions))

    return replace(history, actions=_fewer(list(history.actions), fails))


def _fewer_vms(history: History, still: Fails) -> History:
    """Leave VMs out of requests for many."""
    for at, action in enumerate(history.actions):
        if names := action.with_.get("vms"):
            kept = _fewer(list(names), partial(_fails_with, history, at, still))
            history = _with_vms(history, at, kept)
    return history


def _fails_with(history: History, at: int, still: Fails, names: list[str]) -> bool:
    return bool(names) and still(_with_vms(history, at, names))


def _with_vms(history: History, at: int, names: list[str]) -> History:
    action = history.actions[at]
    fewer = replace(action, with_={**action.with_, "vms": names})
    return replace(history, actions=[*history.actions[:at], fewer, *history.actions[at + 1 :]])


def _fewer(items: list[Any], fails: Callable[[list[Any]], bool]) -> list[Any]:
    """Leave out as many items as possible so that it still fails."""
    size = max(1, len(items) // 2)
    while items:
        start, shorter = 0, False
        while start < len(items):
            without = items[:start] + items[start + size :]
            if fails(without):
                items, shorter = without, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        if not shorter or size > 1:
            size = max(1, size // 2)
    return items
