"""The fence guard of a simulated host: the same promise as the guard process, on a virtual clock.

It shares the lease, the recipes and the VMs with the agent through memory, and is run beside the
agent, not by it, so that it goes on when the agent is killed.
"""

from collections.abc import Iterable
from typing import NoReturn

from msgspec.structs import replace

from roost.agent.drivers.base import FENCED, LocalVM
from roost.agent.drivers.vmfiles import VMFiles
from roost.agent.store import MemoryStore
from roost.base.clock import Clock, first_of


class MemoryFences:
    """Stop recipes in memory. Implements `Fences`."""

    def __init__(self) -> None:
        self._recipes: dict[str, dict[str, object]] = {}

    def put(self, vm_id: str, recipe: dict[str, object]) -> None:
        """Store a VM's stop recipe."""
        self._recipes[vm_id] = recipe

    def drop(self, vm_id: str) -> None:
        """Remove a VM's stop recipe."""
        self._recipes.pop(vm_id, None)

    def ids(self) -> Iterable[str]:
        """Return the VMs with a recipe."""
        return list(self._recipes)


class MemoryGuard:
    """Stops VMs when the lease is over. Implements `GuardHandle`."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: MemoryStore,
        vms: VMFiles,
        fences: MemoryFences,
        stop_s: float = 1.0,
        poll_s: float = 0.2,
    ) -> None:
        self._clock = clock
        self._store = store
        self._vms = vms
        self._fences = fences
        self._stop_s = stop_s
        self._poll_s = poll_s
        self._alive = False

    def ensure(self) -> bool:
        """Start no process: the simulated host runs this guard."""
        return False

    def stop_s(self) -> float | None:
        """Return how long it needs at most to stop VMs, None while it does not run."""
        return self._stop_s if self._alive else None

    async def run(self) -> NoReturn:
        """Stop VMs when the lease ends, until cancelled."""
        self._alive = True
        try:
            while True:
                self._store.shortened.clear()
                deadline, now = self._store.lease(), self._clock.monotonic()
                if deadline is None or now >= deadline:
                    for vm_id in self._fences.ids():
                        await self._vms.change(vm_id, _stopped)
                    await self._clock.sleep(self._poll_s)
                else:
                    await first_of(self._clock, deadline - now, self._store.shortened)
        finally:
            self._alive = False


def _stopped(vm: LocalVM | None) -> LocalVM | None:
    if vm is None:
        return None
    if vm.state == "ready":
        return replace(vm, state="lost", endpoint={})
    if vm.state not in ("starting", "running", "paused"):
        return vm
    return replace(vm, state="stopped", reason=FENCED)
