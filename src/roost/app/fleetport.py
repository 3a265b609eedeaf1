"""The port of `roost.providers.fleet`, filled with the client: VMs of a roost as machines."""

from collections.abc import Mapping, Sequence

from roost.base.timestamps import read_timestamp
from roost.client.asynchronous import AsyncClient
from roost.model.resources import Demand
from roost.providers.fleet import FleetVM
from roost.wire.bodies import BootBody, CreateVM, DemandBody, ImageBody, VMBody


class ClientFleet:
    """A control plane that is asked over its public API."""

    def __init__(self, client: AsyncClient, *, project: str = "default") -> None:
        self._client, self._project = client, project

    async def create(
        self, name: str, demand: Demand, *, image: str, user_data: str, labels: Mapping[str, str]
    ) -> FleetVM:
        """Create a VM; the same name again is the same VM, as long as it is there."""
        asked = CreateVM(
            name=name,
            project=self._project,
            demand=DemandBody(
                cpu=f"{demand.cpu_milli}m", memory=demand.memory_bytes, disk=demand.disk_bytes
            ),
            labels=dict(labels),
            boot=BootBody(image=_image(image), user_data=user_data) if image else None,
        )
        made = await self._client.create_vm(asked, key=name)
        # An answer to an old key may be of a VM that was deleted since.
        return _shown(await self._client.get_vm(made.id, project=self._project))

    async def get(self, vm_id: str) -> FleetVM:
        """Return a VM."""
        return _shown(await self._client.get_vm(vm_id, project=self._project))

    async def labelled(self, label: str, value: str) -> Sequence[FleetVM]:
        """Return the VMs that carry a label."""
        found = self._client.all_vms(project=self._project, labels={label: value})
        return [_shown(each) async for each in found]

    async def delete(self, vm_id: str) -> None:
        """Delete a VM."""
        await self._client.delete_vm(vm_id, project=self._project)

    async def close(self) -> None:
        """Close connections to the control plane."""
        await self._client.aclose()


def _image(text: str) -> ImageBody:
    """Return an image from DIGEST or DIGEST=URL."""
    digest, _, url = text.partition("=")
    return ImageBody(digest=digest, url=url)


def _shown(vm: VMBody) -> FleetVM:
    created = read_timestamp(vm.created_at, "created_at")
    return FleetVM(vm.id, vm.state, dict(vm.labels), created)
