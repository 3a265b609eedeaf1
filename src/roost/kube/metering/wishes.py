"""Feedback: somebody would like VMs on other nodes. What is written is a wish on each VM.

The wish says which node the VM shall leave and which one is wanted; the controller migrates and the
scheduler chooses where to. Each VM is answered for itself: one that cannot be asked does not keep
the others from it.
"""

import contextlib
from collections.abc import Sequence

from roost.base.clock import Clock
from roost.base.errors import RoostError, Unavailable
from roost.kube.base.client import Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.mirror import Mirror
from roost.kube.metering.sources import Asked, Moved
from roost.kube.moving.marking import ask_to_move
from roost.kube.moving.migrationrecord import migration_of


class Wishes:
    """Notes wishes and reads back what became of them."""

    def __init__(self, kube: Kube, vms: Mirror, home: str, clock: Clock) -> None:
        self._kube, self._vms, self._home, self._clock = kube, vms, home, clock

    async def ask(self, asked: Sequence[Asked], wait_s: float) -> list[Moved]:
        """Note all wishes; return when the scheduler has chosen for each, or after this time."""
        began: dict[int, int] = {}

        async def note(at: int) -> Moved:
            each = asked[at]
            try:
                began[at] = await self._mark(each)
            except RoostError as error:
                return Moved.refused(each, error)
            return Moved(
                vm_id=each.vm_id, from_node=each.from_node, wanted=each.to_node or None,
                accepted=True, phase="Requested",
            )  # fmt: skip

        moved = await each_of(range(len(asked)), note)

        def known() -> bool:
            for at, number in began.items():
                self._read_back(moved[at], number)
            return all(moved[at].chosen or moved[at].phase == "Failed" for at in began)

        with contextlib.suppress(Unavailable):  # the answer says how far each one is
            await self._vms.until(lambda: known() or None, wait_s)
        return moved

    def _named(self, vm_id: str) -> tuple[str, str]:
        """Return namespace and name of a VM that is given as NAME or NAMESPACE/NAME."""
        namespace, _, name = vm_id.rpartition("/")
        return namespace or self._home, name

    async def _mark(self, asked: Asked) -> int:
        """Set the mark; return the number of the VM's last migration before that."""
        namespace, name = self._named(asked.vm_id)
        vm = await ask_to_move(
            self._kube, name, namespace, self._clock,
            leaving=asked.from_node, wanted=asked.to_node,
        )  # fmt: skip
        return int(migration_of(vm).get("number") or 0)

    def _read_back(self, moved: Moved, number_before: int) -> None:
        namespace, name = self._named(moved.vm_id)
        status = (self._vms.get(name, namespace) or {}).get("status") or {}
        migration = status.get("migration") or {}
        if int(migration.get("number") or 0) > number_before:
            moved.phase = migration.get("phase") or moved.phase
            moved.chosen = migration.get("targetNode") or None
            if moved.phase == "Failed":
                moved.error = Moved.told(
                    Unavailable(migration.get("reason") or "the migration failed")
                )
