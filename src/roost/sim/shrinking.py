"""Makes a failing history short: actions are left out as long as a law of the same kind breaks.

First large pieces, then smaller ones, down to single actions; then what surrounds them (planes,
hosts) is made smaller. Each try is a whole run, so tries are counted.
"""

from collections.abc import Callable

from msgspec.structs import replace

from roost.sim.history import Action, History

Fails = Callable[[History], bool]


def shrink(history: History, fails: Fails, *, most_tries: int = 200) -> History:
    """Return a short history that still fails."""
    tries = [most_tries]

    def still(actions: list[Action]) -> bool:
        if tries[0] <= 0:
            return False
        tries[0] -= 1
        return fails(replace(history, actions=actions))

    actions = list(history.actions)
    size = max(1, len(actions) // 2)
    while True:
        start, shorter = 0, False
        while start < len(actions):
            without = actions[:start] + actions[start + size :]
            if still(without):
                actions, shorter = without, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        if not shorter or size > 1:
            size = max(1, size // 2)
        if tries[0] <= 0:
            break
    history = replace(history, actions=actions)
    for field, least in (("planes", 1), ("hosts", 2)):
        while getattr(history, field) > least and tries[0] > 0:
            tries[0] -= 1
            smaller = replace(history, **{field: getattr(history, field) - 1})
            if not fails(smaller):
                break
            history = smaller
    return history
