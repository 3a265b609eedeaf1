"""VMs as last known, and writes to their status that lose nothing.

A mirror tells of our own write some time after it was made. Who decided on the mirror alone would
meanwhile decide on a state that is over; so the answer to the last write counts until the mirror
has caught up with it.
"""

from roost.kube.base.client import VMS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Key, Object, version_of


class KnownVMs:
    """What is heard of VMs, or written to them, whichever is later."""

    def __init__(self, kube: Kube, heard: Mirror) -> None:
        self._kube, self._heard = kube, heard
        self._answers: dict[Key, Object] = {}  # of our writes, until the mirror knows them

    def get(self, key: Key) -> Object | None:
        """Return a VM as last known."""
        heard = self._heard.get(key[1], key[0])
        answer = self._answers.get(key)
        if heard is None or answer is None:
            return heard
        if version_of(heard) >= version_of(answer):
            del self._answers[key]
            return heard
        return answer

    async def write(self, vm: Object, status: Object) -> None:
        """Change a VM's status if the VM is still as it was; Conflict when it is not.

        So nothing is written over what another wrote meanwhile, nor to another VM of that name.
        """
        metadata = vm["metadata"]
        key = metadata["namespace"], metadata["name"]
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        answer = await self._kube.patch(VMS, key[1], change, key[0], part="status")
        known = self._answers.get(key)
        if known is None or version_of(known) < version_of(answer):
            self._answers[key] = answer

    def gone(self, key: Key) -> None:
        """Forget a VM that is no more."""
        self._answers.pop(key, None)
