"""Azure behind the port: a machine is a virtual machine by name, made by a long-running operation.

A name is the token's, and a create says that nothing may be there yet, so asking again makes no
second one. The operation is waited for up to `wait_s`, because want of capacity shows at its end; a
machine that failed so is deleted before the error is passed on, since a failed one is paid for too.
The network interface and the disk are made with the machine and end with it. A name whose machine
was deleted is free again: Azure does not remember tokens of machines that are gone.
"""

import asyncio
import base64
import io
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar

from roost.base.errors import InvalidRequest
from roost.model.job import CloudMachine, Launch, MachineType
from roost.providers.azure.account import AzureAccount, AzureCredentials
from roost.providers.azure.answers import shown, troubles
from roost.providers.base import MACHINE_TAG, MOST_MACHINES, OWNER_TAG
from roost.providers.bootstrap import start_script
from roost.providers.errors import MachineGone, NoCapacity, QuotaReached, Refused

T = TypeVar("T")


class AzureProvider:
    """Machines of one resource group of Azure."""

    name = "azure"

    def __init__(
        self,
        account: AzureAccount,
        credentials: AzureCredentials,
        *,
        wait_s: float = 300.0,
        poll_s: float = 5.0,
    ) -> None:
        self._account, self._wait_s = account, wait_s
        self._client = _client(account, credentials, poll_s)
        self._vms = self._client.virtual_machines

    async def machine_types(self) -> Sequence[MachineType]:
        """Return the types that the account names; their prices are the account's word."""
        return self._account.types

    async def launch(self, launch: Launch) -> CloudMachine:
        """Create a virtual machine, or return the one of this token."""
        return await self._call(lambda: self._launch(launch))

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one virtual machine as it is now."""
        return await self._call(lambda: shown(self._get(cloud_id)))

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return the virtual machines with the owner's tag."""
        return await self._call(lambda: self._machines(owner))

    async def terminate(self, cloud_id: str) -> None:
        """Begin to delete a virtual machine."""
        with suppress(MachineGone):
            await self._call(lambda: self._delete(cloud_id))

    async def close(self) -> None:
        """Close connections to Azure."""
        await asyncio.to_thread(self._client.close)

    async def _call(self, what: Callable[[], T]) -> T:
        def call() -> T:
            with troubles():
                return what()

        return await asyncio.to_thread(call)

    # All of this blocks.

    def _launch(self, launch: Launch) -> CloudMachine:
        name = machine_name(launch.token)
        with suppress(MachineGone), troubles():
            return _living(shown(self._get(name)), launch.token)
        from azure.core import MatchConditions

        try:
            with troubles():
                operation = self._vms.begin_create_or_update(
                    self._account.resource_group,
                    name,
                    io.BytesIO(json.dumps(self._body(launch)).encode()),
                    etag="*",
                    match_condition=MatchConditions.IfMissing,
                )
                operation.wait(self._wait_s)
                if operation.done():
                    operation.result()
        except (NoCapacity, QuotaReached):
            with suppress(MachineGone), troubles():  # what has failed is there and costs money
                self._delete(name)
            raise
        return _living(shown(self._get(name)), launch.token)

    def _get(self, name: str) -> Any:
        return self._vms.get(self._account.resource_group, name)

    def _delete(self, name: str) -> None:
        self._vms.begin_delete(self._account.resource_group, name, polling=False)

    def _machines(self, owner: str) -> list[CloudMachine]:
        found = []
        for vm in self._vms.list(self._account.resource_group):
            if dict(vm.tags or {}).get(OWNER_TAG) == owner:
                found.append(shown(vm))
            if len(found) > MOST_MACHINES:
                raise Refused("azure", f"there are more than {MOST_MACHINES} such machines")
        return found

    def _body(self, launch: Launch) -> dict[str, Any]:
        account, name = self._account, machine_name(launch.token)
        script = start_script(launch.bootstrap, cloud="azure")
        interface = {
            "name": f"{name}-nic",
            "properties": {
                "primary": True,
                "deleteOption": "Delete",
                "ipConfigurations": [
                    {"name": "ip", "properties": {"subnet": {"id": account.subnet}}}
                ],
            },
        }
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": launch.type.name},
            "storageProfile": {
                "imageReference": {"id": launch.image or account.image},
                "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
            },
            "osProfile": {
                "computerName": name[:60],
                "adminUsername": "roost",
                "customData": base64.b64encode(script.encode()).decode(),
                "linuxConfiguration": {
                    "disablePasswordAuthentication": True,
                    "ssh": {
                        "publicKeys": [
                            {
                                "path": "/home/roost/.ssh/authorized_keys",
                                "keyData": account.ssh_key,
                            }
                        ]
                    },
                },
            },
            "networkProfile": {
                "networkApiVersion": "2020-11-01",
                "networkInterfaceConfigurations": [interface],
            },
        }
        if launch.market == "spot":
            properties |= {
                "priority": "Spot",
                "evictionPolicy": "Delete",
                "billingProfile": {"maxPrice": -1},
            }
        return {
            "location": launch.region or account.location,
            **({"zones": [account.zone]} if account.zone else {}),
            "tags": {**dict(launch.tags), MACHINE_TAG: launch.token},
            "properties": properties,
        }


def machine_name(token: str) -> str:
    """Return the name of a token's virtual machine: letters, digits and dashes, at most 60."""
    plain = "".join(each if each.isalnum() or each == "-" else "-" for each in token.lower())
    return f"roost-{plain[:36].strip('-')}-{sha256(token.encode()).hexdigest()[:12]}"


def _living(machine: CloudMachine, token: str) -> CloudMachine:
    if machine.state == "stopping":
        raise MachineGone("azure", f"the machine of {token} is being deleted, or has failed")
    return machine


def _client(account: AzureAccount, credentials: AzureCredentials, poll_s: float) -> Any:
    try:
        from azure.core.pipeline.policies import SansIOHTTPPolicy
        from azure.identity import ClientSecretCredential, DefaultAzureCredential
        from azure.mgmt.compute import ComputeManagementClient
    except ImportError as error:
        raise InvalidRequest(
            "machines of Azure need its SDK, which is not installed",
            hint="Maybe: pip install 'roost[azure]'",
        ) from error
    options: dict[str, Any] = {"polling_interval": poll_s, "retry_total": 0}
    credential: Any = DefaultAzureCredential()
    if credentials.client:
        credential = ClientSecretCredential(
            credentials.tenant, credentials.client, credentials.secret
        )
    if account.endpoint:
        options["base_url"] = account.endpoint
        if account.endpoint.startswith("http://"):  # the SDK sends no token over plain HTTP
            options["authentication_policy"] = SansIOHTTPPolicy()
    return ComputeManagementClient(credential, account.subscription, **options)
