"""What an account with Azure says: options that are no secret, and credentials that are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.base.errors import InvalidRequest
from roost.base.units import GIB
from roost.model.job import MachineType
from roost.providers.offers import read_types

_NEEDED = ("subscription", "resource_group", "location", "subnet", "image", "ssh_key")
_KNOWN = (*_NEEDED, "types", "zone", "endpoint")
_ROOT_BYTES = 30 * GIB


@dataclass(frozen=True, slots=True)
class AzureAccount:
    """How machines are rented with one account."""

    subscription: str
    resource_group: str
    location: str
    subnet: str  # the resource id of a subnet
    image: str  # the resource id of an image that has roost
    ssh_key: str  # a public key; Azure wants one
    types: tuple[MachineType, ...]
    zone: str = ""
    endpoint: str = ""  # another place that speaks Azure's language


@dataclass(frozen=True, slots=True)
class AzureCredentials:
    """A service principal; without it the way that the SDK's users know (environment, identity)."""

    tenant: str = ""
    client: str = ""
    secret: str = field(default="", repr=False)


def read_account(options: Mapping[str, str]) -> AzureAccount:
    """Return an account from its options.

    `types` are NAME=CPU/MEMORY/PRICE[/SPOT PRICE] with commas between them, prices for an hour.
    """
    if unknown := sorted(set(options) - set(_KNOWN)):
        raise InvalidRequest(
            f"an azure account has no option {', '.join(unknown)}; it has {', '.join(_KNOWN)}"
        )
    if missing := [name for name in _NEEDED if not options.get(name)]:
        raise InvalidRequest(f"an azure account needs the options {', '.join(missing)}")
    types = read_types(options.get("types", ""), _ROOT_BYTES, (options["location"],))
    if not types:
        raise InvalidRequest("an azure account needs the option types")
    return AzureAccount(
        **{name: options[name] for name in _NEEDED},
        types=tuple(types),
        zone=options.get("zone", ""),
        endpoint=options.get("endpoint", ""),
    )
