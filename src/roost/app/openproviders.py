"""How providers that need an account are opened: options and credentials in, the port out.

SDKs are imported when a provider is first opened, not before.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module

from roost.base.errors import InvalidRequest
from roost.base.units import GIB
from roost.model.job import Account
from roost.providers.base import Provider
from roost.providers.offers import read_types

_ROOST = (
    "server", "project", "image", "kernel", "initrd", "cmdline", "bridge", "types", "ca_file"
)  # fmt: skip
#: Disk of a VM that is rented from a roost.
_DISK_BYTES = 10 * GIB


async def open_roost(account: Account | None, credentials: Mapping[str, str]) -> Provider:
    """Return VMs of a control plane as machines; the credential is `token`."""
    from roost.app.fleetport import ClientFleet, FleetBoot
    from roost.client.asynchronous import AsyncClient
    from roost.providers.fleet import FleetProvider

    options = _options(account, "roost")
    if unknown := sorted(set(options) - set(_ROOST)):
        raise InvalidRequest(
            f"a roost account has no option {', '.join(unknown)}; it has {', '.join(_ROOST)}"
        )
    if not options.get("server") or not options.get("types"):
        raise InvalidRequest("a roost account needs the options server and types")
    client = AsyncClient(
        options["server"], credentials.get("token"), ca_file=options.get("ca_file") or None
    )
    boots = FleetBoot(
        options.get("kernel", ""),
        options.get("initrd", ""),
        options.get("cmdline", ""),
        options.get("bridge", ""),
    )
    port = ClientFleet(client, project=options.get("project", "default"), boots=boots)
    types = read_types(options["types"], _DISK_BYTES)
    return FleetProvider(port, types, image=options.get("image", ""))


async def open_azure(account: Account | None, credentials: Mapping[str, str]) -> Provider:
    """Return machines of Azure; the credentials are `tenant`, `client` and `secret`."""
    # In a thread: the SDK takes long to import, and everybody would wait for it.
    await asyncio.to_thread(import_module, "roost.providers.azure.provider")
    from roost.providers.azure.account import AzureCredentials, read_account
    from roost.providers.azure.provider import AzureProvider

    opened = AzureCredentials(
        credentials.get("tenant", ""), credentials.get("client", ""), credentials.get("secret", "")
    )
    return AzureProvider(read_account(_options(account, "azure")), opened)


def _options(account: Account | None, provider: str) -> dict[str, str]:
    if account is None:
        raise InvalidRequest(f"a pool of {provider} needs an account: roost account create")
    return dict(account.options)
