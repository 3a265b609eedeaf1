"""The port of `roost.providers.fleet`, filled with the client: VMs of a roost as machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roost.base.timestamps import read_timestamp
from roost.client.asynchronous import AsyncClient
from roost.model.resources import Demand
from roost.providers.fleet import FleetVM
from roost.wire.bodies import BootBody, CreateVM, DemandBody, ImageBody, NicBody, VMBody


@dataclass(frozen=True, slots=True)
class FleetBoot:
    """How every VM that is rented boots, besides its image; images are DIGEST or DIGEST=URL."""

    kernel: str = ""
    initrd: str = ""
    cmdline: str = ""
    bridge: str = ""  # of the host, for its network card; empty: the driver's own network


class ClientFleet:
    """A control plane that is asked over its public API."""

    def __init__(
        self, client: AsyncClient, *, project: str = "default", boots: FleetBoot | None = None
    ) -> None:
        self._client, self._project = client, project
        self._boots = boots or FleetBoot()

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
            boot=self._boot(image, user_data) if image else None,
            nics=_cards(self._boots.bridge),
        )
        made = await self._client.create_vm(asked, key=name)
        # An answer to an old key may be of a VM that was deleted since.
        return _shown(await self._client.get_vm(made.id, project=self._project))

    def _boot(self, image: str, user_data: str) -> BootBody:
        kernel, initrd = (
            _image(each) if each else None for each in (self._boots.kernel, self._boots.initrd)
        )
        return BootBody(
            image=_image(image),
            kernel=kernel,
            initrd=initrd,
            cmdline=self._boots.cmdline,
            user_data=user_data,
        )

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


def _cards(bridge: str) -> list[NicBody]:
    """Return the network card of a VM; where no bridge is named its host gives it one."""
    return [NicBody(mode="tap", bridge=bridge)] if bridge else []


def _shown(vm: VMBody) -> FleetVM:
    created = read_timestamp(vm.created_at, "created_at")
    return FleetVM(vm.id, vm.state, dict(vm.labels), created)
