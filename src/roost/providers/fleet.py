"""Machines that are VMs of a roost: this one's private fleet, or another control plane's.

The port `FleetPort` is what is asked of a control plane; `app` fills it with the client, which lies
above. A VM carries the machine's tags as labels. A create goes with the token as its idempotency
key, so asked again it is the same VM; one that was deleted is known by its name as long as the
control plane keeps it, and a name is used once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from roost.base.errors import (
    Conflict,
    Forbidden,
    NoFit,
    NotFound,
    QuotaExceeded,
    RoostError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from roost.model.job import CloudMachine, CloudState, Launch, MachineType
from roost.model.resources import Demand
from roost.providers.base import MACHINE_TAG, OWNER_TAG
from roost.providers.bootstrap import start_script
from roost.providers.errors import (
    BadCredentials,
    MachineGone,
    NoCapacity,
    ProviderError,
    QuotaReached,
    Refused,
    Throttled,
    Unreachable,
)


@dataclass(frozen=True, slots=True)
class FleetVM:
    """A VM as its control plane shows it."""

    id: str
    state: str
    labels: Mapping[str, str]
    created_ms: int = 0


class FleetPort(Protocol):
    """What is asked of the control plane whose VMs are rented; raises errors of `base`."""

    async def create(
        self, name: str, demand: Demand, *, image: str, user_data: str, labels: Mapping[str, str]
    ) -> FleetVM:
        """Create a VM and start it; the name is its idempotency key too."""

    async def get(self, vm_id: str) -> FleetVM:
        """Return a VM; raises NotFound."""

    async def labelled(self, label: str, value: str) -> Sequence[FleetVM]:
        """Return the VMs that carry a label."""

    async def delete(self, vm_id: str) -> None:
        """Delete a VM; raises NotFound when it is not there."""

    async def close(self) -> None:
        """Close connections to the control plane."""


class FleetProvider:
    """VMs of a roost as machines."""

    name = "roost"

    def __init__(
        self, port: FleetPort, types: Sequence[MachineType], *, image: str = "", cloud: str = "none"
    ) -> None:
        self._port, self._types, self._image, self._cloud = port, tuple(types), image, cloud

    async def machine_types(self) -> Sequence[MachineType]:
        """Return the sizes of VMs that are offered."""
        return self._types

    async def launch(self, launch: Launch) -> CloudMachine:
        """Create a VM, or return the one that this token created."""
        try:
            known = await self._port.labelled(MACHINE_TAG, launch.token)
            if known:
                return self._living(known[0], launch.token)
            made = await self._port.create(
                launch.token,
                Demand(launch.type.cpu_milli, launch.type.memory_bytes, launch.type.disk_bytes),
                image=launch.image or self._image,
                user_data=start_script(launch.bootstrap, cloud=self._cloud),
                labels={
                    **dict(launch.tags),
                    MACHINE_TAG: launch.token,
                    "roost-type": launch.type.name,
                },
            )
        except RoostError as error:
            raise _judged(error) from error
        return self._living(made, launch.token)

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one VM as it is now."""
        try:
            return self._shown(await self._port.get(cloud_id))
        except RoostError as error:
            raise _judged(error) from error

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return the VMs with the owner's label."""
        try:
            found = await self._port.labelled(OWNER_TAG, owner)
        except RoostError as error:
            raise _judged(error) from error
        return [shown for each in found if (shown := self._shown(each)).state != "gone"]

    async def terminate(self, cloud_id: str) -> None:
        """Delete a VM."""
        try:
            await self._port.delete(cloud_id)
        except NotFound:
            return
        except RoostError as error:
            raise _judged(error) from error

    async def close(self) -> None:
        """Close connections to the control plane."""
        await self._port.close()

    def _living(self, vm: FleetVM, token: str) -> CloudMachine:
        shown = self._shown(vm)
        if shown.state in ("gone", "stopping"):
            raise MachineGone("roost", f"the VM of {token} was deleted")
        return shown

    def _shown(self, vm: FleetVM) -> CloudMachine:
        return CloudMachine(
            cloud_id=vm.id,
            machine=vm.labels.get(MACHINE_TAG, ""),
            state=_state(vm.state),
            type=vm.labels.get("roost-type", ""),
            created_ms=vm.created_ms,
        )


def _state(state: str) -> CloudState:
    match state:
        case "running" | "migrating" | "unknown":
            return "running"
        case "deleting" | "stopping" | "stopped" | "failed":
            return "stopping"
        case "deleted":
            return "gone"
    return "starting"


def _judged(error: RoostError) -> ProviderError:
    """Return what an error of the API means to whoever rents."""
    match error:
        case ProviderError():
            return error
        case NoFit():
            return NoCapacity("roost", error.message, code=error.code)
        case QuotaExceeded():
            return QuotaReached("roost", error.message, code=error.code)
        case TooManyRequests():
            return Throttled("roost", error.message, code=error.code)
        case Unauthorized() | Forbidden():
            return BadCredentials("roost", error.message, code=error.code)
        case NotFound():
            return MachineGone("roost", error.message, code=error.code)
        case Conflict():
            return MachineGone("roost", f"the name was used before: {error.message}")
        case Unavailable():
            return Unreachable("roost", error.message, code=error.code)
    return Refused("roost", error.message, code=error.code)
