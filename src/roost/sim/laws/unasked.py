"""The laws of continuous mode: nobody is chased, and two planners never argue.

| law | checked |
|---|---|
| a plan that nobody asked for is made only while no other is open | when it is made |
| it moves no VM within ten minutes of another plan's move of that VM | when a move begins |
| it moves no VM that other plans have moved twice within a day | when a move begins |

A VM that goes through a third host is moved twice by one plan; that is one decision, and counts
once. What the planes hold to is written down here once more, and not asked of them.
"""

from collections import defaultdict

#: Who plans without being asked.
AUTHOR = "continuous"
_OPEN = ("waiting", "running", "paused")
_REST_MS, _DAY_MS, _MOST_IN_A_DAY = 600_000, 86_400_000, 2


class Unasked:
    """Follows what plans have moved, and judges those that nobody asked for."""

    def __init__(self) -> None:
        self._moved: dict[str, dict[str, int]] = defaultdict(dict)  # by VM and plan: when last

    def made(self, author: str, state: str, others: list[str]) -> str:
        """Return what is wrong with a new plan beside others in their states, or nothing."""
        if author == AUTHOR and state in _OPEN and any(each in _OPEN for each in others):
            return "was made by nobody while another is open"
        return ""

    def ended(self, vm: str, plan: str, at_ms: int) -> None:
        """Note that a plan has moved a VM."""
        self._moved[vm][plan] = at_ms

    def begun(self, author: str, vm: str, plan: str, at_ms: int) -> str:
        """Return what is wrong with the beginning of a move, or nothing."""
        if author != AUTHOR:
            return ""
        before = [
            at for other, at in self._moved[vm].items() if other != plan and at > at_ms - _DAY_MS
        ]
        if before and at_ms - max(before) < _REST_MS:
            return f"{(at_ms - max(before)) / 1000:.0f} s after {vm} was moved, and nobody asked"
        if len(before) >= _MOST_IN_A_DAY:
            return f"though {vm} was moved {len(before)} times in a day, and nobody asked"
        return ""
