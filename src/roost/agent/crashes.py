"""A VM that crashes again and again is started again less and less often.

The first crash is answered at once. Each further one within ten minutes doubles the wait, up to
five minutes; a VM that has run for ten minutes starts with a clean slate.
"""

from roost.agent.drivers.base import CRASHED, LocalVM
from roost.base.backoff import BackOff

WAITS = BackOff(10.0, 300.0)
FORGET_S = 600.0


class Crashes:
    """The crashes of the VMs of one host, as this life of the agent has seen them."""

    def __init__(self) -> None:
        self._at: dict[str, list[float]] = {}

    def see(self, vm_id: str, before: LocalVM | None, after: LocalVM | None, now: float) -> None:
        """Record a change of a VM's state."""
        if after is None:
            self._at.pop(vm_id, None)
            return
        was_stopped = before is not None and before.state == "stopped"
        if after.state == "stopped" and after.reason == CRASHED and not was_stopped:
            recent = [at for at in self._at.get(vm_id, ()) if now - at < FORGET_S]
            self._at[vm_id] = [*recent, now]

    def wait(self, vm_id: str, now: float) -> str:
        """Return why a crashed VM is not restarted yet; empty when it may start."""
        times = self._at.get(vm_id, ())
        if len(times) < 2 or now - times[-1] >= FORGET_S:
            return ""
        pause = WAITS.wait_s(len(times) - 2)
        left = times[-1] + pause - now
        if left <= 0:
            return ""
        return f"it crashed {len(times)} times; it is started again in {left:.0f} s"
