"""Feedback: somebody would like VMs on other nodes. What is written is a wish on each VM.

The wish says which node the VM shall leave and which one is wanted; the controller migrates and the
scheduler chooses where to. Each VM is answered for itself: one that cannot be asked does not keep
the others from it.
"""

import contextlib
from collections.abc import Sequence

from roost.base.clock import Clock
from roost.base.errors import Conflict, InvalidRequest, NotFound, RoostError, Unavailable
from roost.kube.client import VMS, Kube
from roost.kube.many import each_of
from roost.kube.metering.sources import Asked, Moved
from roost.kube.mirror import Mirror
from roost.kube.moments import moment_text

_TRIES = 5


class Wishes:
    """Notes wishes and reads back what became of them."""

    def __init__(self, kube: Kube, vms: Mirror, nodes: Mirror, home: str, clock: Clock) -> None:
        self._kube, self._vms, self._nodes, self._clock = kube, vms, nodes, clock
        self._home = home

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
        if asked.to_node and self._nodes.get(asked.to_node) is None:
            raise NotFound(f"there is no node {asked.to_node!r}")
        for _ in range(_TRIES):
            vm = await self._kube.get(VMS, name, namespace)
            status = vm.get("status") or {}
            at = status.get("nodeName")
            if not at:
                raise Conflict(f"VM {asked.vm_id!r} is on no node yet")
            if asked.from_node and asked.from_node != at:
                raise Conflict(f"VM {asked.vm_id!r} is on {at!r}, not on {asked.from_node!r}")
            if asked.to_node == at:
                raise InvalidRequest(f"VM {asked.vm_id!r} is on {at!r} already")
            if leaving := status.get("evacuationNodeName"):
                raise Conflict(f"VM {asked.vm_id!r} is leaving {leaving!r} already")
            evacuation = {
                "cause": "request",
                "requestedAt": moment_text(self._clock.wall_ms()),
                "wantedNode": asked.to_node or None,
            }
            change = {
                # Made for this version: a mark that another has set meanwhile is not written over.
                "metadata": {"resourceVersion": vm["metadata"]["resourceVersion"]},
                "status": {"evacuationNodeName": at, "evacuation": evacuation},
            }
            try:
                await self._kube.patch(VMS, name, change, namespace, part="status")
            except Conflict:
                continue
            return int((status.get("migration") or {}).get("number") or 0)
        raise Conflict(f"VM {asked.vm_id!r} changes too often to be asked")

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
