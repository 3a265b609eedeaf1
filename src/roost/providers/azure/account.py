"""What an account with Azure says: options that are no secret, and credentials that are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roost.base.errors import InvalidRequest
from roost.base.units import GIB, parse_bytes, parse_cpu
from roost.model.job import MachineType

_NEEDED = ("subscription", "resource_group", "location", "subnet", "image", "ssh_key")
_KNOWN = (*_NEEDED, "types", "zone", "endpoint")
_MICRO = 1_000_000
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
    words = [word.strip() for word in options.get("types", "").split(",") if word.strip()]
    if not words:
        raise InvalidRequest("an azure account needs the option types")
    return AzureAccount(
        **{name: options[name] for name in _NEEDED},
        types=tuple(_type(word, options["location"]) for word in words),
        zone=options.get("zone", ""),
        endpoint=options.get("endpoint", ""),
    )


def _type(word: str, location: str) -> MachineType:
    name, _, rest = word.partition("=")
    parts = rest.split("/")
    if not name or len(parts) not in (3, 4):
        raise InvalidRequest(
            f"types: {word!r} is not NAME=CPU/MEMORY/PRICE[/SPOT PRICE]",
            hint="Maybe Standard_D2s_v5=2/8GiB/0.096/0.02",
        )
    try:
        prices = [int(float(text) * _MICRO) for text in parts[2:]]
    except ValueError as error:
        raise InvalidRequest(f"types: a price of {word!r} is no number") from error
    return MachineType(
        name,
        parse_cpu(parts[0], "types"),
        parse_bytes(parts[1], "types"),
        _ROOT_BYTES,
        prices[0],
        prices[1] if len(prices) > 1 else None,
        regions=(location,),
    )
