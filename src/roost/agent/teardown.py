"""The guard against mass destruction: a wrong list must not empty a host.

More than three VMs *and* more than a quarter of those here, in one list or within a minute, are
not destroyed; the rest of the list still converges. Held-back tombstones are judged again later,
so an honest series of deletes goes through at the permitted pace, and a setting raises the limit.
What leaves no data behind that matters (an incoming copy, the remains of a VM that moved or was
fenced) is not counted.
"""

from collections import deque
from collections.abc import Collection

WINDOW_S = 60.0
ALWAYS_ALLOWED = 3
SHARE_PERCENT = 25


class TeardownGuard:
    """Grants the destruction of VMs, and remembers what it granted in the last minute."""

    def __init__(self, max_destroy: int | None = None) -> None:
        self._max_destroy = max_destroy
        self._granted: deque[tuple[float, str]] = deque()

    def judge(self, wanted: Collection[str], known: Collection[str], now: float) -> set[str]:
        """Return which of the wanted VMs may go: those granted before, and all others or none.

        `known` are the VMs that are here now.
        """
        while self._granted and self._granted[0][0] <= now - WINDOW_S:
            self._granted.popleft()
        granted = {vm_id for _, vm_id in self._granted}
        asked = set(wanted) - granted
        total = len(granted | asked)
        if total > self._limit(len(granted | set(known))):
            return granted & set(wanted)
        self._granted.extend((now, vm_id) for vm_id in sorted(asked))
        return set(wanted)

    def _limit(self, known: int) -> int:
        limit = max(ALWAYS_ALLOWED, known * SHARE_PERCENT // 100)
        return limit if self._max_destroy is None else max(limit, self._max_destroy)
