"""The lease: until when VMs that may run elsewhere are surely this host's own.

Counted from the moment at which the heartbeat was *sent*: the control plane cannot have processed
it earlier, so it never thinks the lease over before the agent does. Pure arithmetic; the clock's
readings are handed in.
"""

_MOST_NUMBERS = 1000


class Lease:
    """One host's lease, from the heartbeats sent and the renewals received."""

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._sent: dict[int, float] = {}

    def sent(self, number: int, now: float) -> None:
        """Record the time at which a heartbeat is sent."""
        self._sent[number] = now
        if len(self._sent) > _MOST_NUMBERS:
            del self._sent[next(iter(self._sent))]

    def renewed(self, number: int, lease_s: float) -> bool:
        """Extend the lease by a renewal; return whether the deadline moved. It never moves back."""
        sent = self._sent.get(number)
        if sent is None:
            return False
        for older in [each for each in self._sent if each <= number]:
            del self._sent[older]
        deadline = sent + lease_s
        if self.deadline is not None and deadline <= self.deadline:
            return False
        self.deadline = deadline
        return True

    def void(self) -> None:
        """End the lease now: the control plane says that VMs of this host may run elsewhere."""
        self.deadline = None
        self._sent.clear()

    def is_valid(self, now: float) -> bool:
        """Return whether the lease holds at a moment."""
        return self.deadline is not None and now < self.deadline
