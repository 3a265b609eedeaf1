"""The ledger's events as they come, each with the time at which it was here."""

import threading
import time

from benchmarks.agent.agents import wait_for
from benchmarks.api.serving import Serving
from benchmarks.api.verifying import Wrong
from roost.base.errors import RoostError
from roost.client.synchronous import Client
from roost.wire.bodies import EventBody

_GIVE_UP_S = 1.0
#: After these nobody needs to wait any longer for a VM.
_BAD = ("vm.failed", "vm.crashed", "vm.move_abandoned", "vm.refused", "vm.guest_shutdown")


class Events:
    """Follows the events of a server for as long as it runs."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._came: list[tuple[float, EventBody]] = []
        threading.Thread(target=self._follow, daemon=True).start()

    def mark(self) -> int:
        """Return a place to wait from."""
        return len(self._came)

    def wait_for(self, kind: str, vm_id: str, since: int, within_s: float = 60.0) -> float:
        """Return when an event of a VM came, waiting for it; raises when the VM fails."""
        found: list[float] = []

        def is_there() -> bool:
            for when, event in self._came[since:]:
                if event.subject != f"vm/{vm_id}":
                    continue
                if event.kind == kind:
                    found.append(when)
                    return True
                if event.kind in _BAD:
                    raise Wrong(f"waited for {kind} of a VM, {event.kind} came: {event.note}")
            return False

        wait_for(f"{kind} of {vm_id}", is_there, within_s, every_s=0.002)
        return found[0]

    def _follow(self) -> None:
        with Client(self._serving.url, self._serving.token) as client:
            try:
                for event in client.events(0, patience_s=_GIVE_UP_S):
                    self._came.append((time.perf_counter(), event))
            except RoostError:
                return  # the server has stopped
