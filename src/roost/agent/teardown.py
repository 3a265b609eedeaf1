"""The guard against mass destruction: a wrong list must not empty a host.

No more than three VMs, or a quarter of those here if that is more, are destroyed within ten
seconds; the rest of the list still converges. What is held back is reported at once and judged
again later, so deletes that were meant all come to pass, at the permitted pace, and a mistake
leaves time to stop it. A setting raises the limit. What leaves no data behind that matters (an
incoming copy, the remains of a VM that moved or was fenced) is not counted.
"""

from collections import deque
from collections.abc import Collection

WINDOW_S = 10.0
ALWAYS_ALLOWED = 3
SHARE_PERCENT = 25


class TeardownGuard:
    """Grants the destruction of VMs, and remembers what it granted lately."""

    def __init__(self, max_destroy: int | None = None) -> None:
        self._max_destroy = max_destroy
        self._granted: deque[tuple[float, str]] = deque()

    def judge(self, wanted: Collection[str], known: Collection[str], now: float) -> set[str]:
        """Return which of the wanted VMs may go: those granted before, and as many as may follow.

        `known` are the VMs that are here now.
        """
        while self._granted and self._granted[0][0] <= now - WINDOW_S:
            self._granted.popleft()
        granted = {vm_id for _, vm_id in self._granted}
        asked = sorted(set(wanted) - granted)
        room = max(0, self._limit(len(granted | set(known))) - len(granted))
        self._granted.extend((now, vm_id) for vm_id in asked[:room])
        return (granted & set(wanted)) | set(asked[:room])

    def _limit(self, known: int) -> int:
        limit = max(ALWAYS_ALLOWED, known * SHARE_PERCENT // 100)
        return limit if self._max_destroy is None else max(limit, self._max_destroy)
