"""A guest that stands still because its disk cannot be written is resumed less and less often.

On a full disk a resumed guest writes, fails and stands still again within milliseconds. The first
resume waits for seconds, each further one within half an hour twice as long, up to five minutes.
Room on the host's disk ends the wait at once (`Reconciler.conditions`).
"""

from roost.agent.drivers.base import IO_ERROR, LocalVM
from roost.base.backoff import BackOff

WAITS = BackOff(2.0, 300.0)
FORGET_S = 1800.0

#: Why such a guest is not resumed yet. The words do not count the seconds: each change is an event.
DISK_ERROR = "disk_error"
DISK_ERROR_WORDS = (
    "it stands still because its disk cannot be written or read; maybe the host's is full. "
    "It is resumed less and less often until that works"
)


class DiskErrors:
    """The stand-stills of one host's VMs, as this life of the agent has seen them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._resumed: dict[str, list[float]] = {}

    def see(self, vm_id: str, before: LocalVM | None, after: LocalVM | None, now: float) -> None:
        """Record a change of a VM's state."""
        if after is None:
            self._since.pop(vm_id, None)
            self._resumed.pop(vm_id, None)
        elif _stands(after) and not (before is not None and _stands(before)):
            self._since[vm_id] = now

    def must_wait(self, vm_id: str, local: LocalVM, now: float) -> bool:
        """Return whether it is too early to resume a VM; if not, count that it is resumed."""
        since = self._since.get(vm_id)
        if since is None or not _stands(local):
            return False
        # Resumes are counted, not stand-stills: a guest may stand still before anybody looks.
        recent = [at for at in self._resumed.get(vm_id, ()) if now - at < FORGET_S]
        if now - max([since, *recent[-1:]]) < WAITS.wait_s(len(recent)):
            return True
        self._resumed[vm_id] = [*recent, now]
        return False

    def clear(self) -> None:
        """Forget the disk errors of all VMs: the next resume of each is at once."""
        self._since.clear()
        self._resumed.clear()


def _stands(vm: LocalVM) -> bool:
    return vm.state == "paused" and vm.reason == IO_ERROR
