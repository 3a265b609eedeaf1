"""What an account with EC2 says: options that are no secret, and credentials that are.

Options are text, as an operator types them; what is wrong is said with the option's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from roost.base.errors import InvalidRequest

_MICRO = 1_000_000
_KNOWN = (
    "region", "zones", "image", "subnets", "security_groups", "instance_profile", "key_name",
    "types", "prices", "endpoint",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """How machines are rented with one account."""

    region: str
    zones: tuple[str, ...] = ()  # tried in this order; empty: EC2 chooses
    image: str = ""
    subnets: Mapping[str, str] = field(default_factory=dict)  # by zone
    security_groups: tuple[str, ...] = ()
    instance_profile: str = ""
    key_name: str = ""
    types: tuple[str, ...] = ()  # names, or prefixes that end with a dot
    prices_micro: Mapping[str, int] = field(default_factory=dict)  # an hour on demand, by type
    endpoint: str = ""  # another place that speaks EC2's language


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """What opens an account; None: the way that boto3's users know (environment, role)."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def read_account(options: Mapping[str, str]) -> AwsAccount:
    """Return an account from its options; lists are words with commas between them.

    `prices` are TYPE=AMOUNT and `subnets` ZONE=SUBNET.
    """
    if unknown := sorted(set(options) - set(_KNOWN)):
        raise InvalidRequest(
            f"an aws account has no option {', '.join(unknown)}; it has {', '.join(_KNOWN)}"
        )
    if not options.get("region"):
        raise InvalidRequest("an aws account needs the option region")
    return AwsAccount(
        region=options["region"],
        zones=_words(options.get("zones", "")),
        image=options.get("image", ""),
        subnets=_pairs(options.get("subnets", ""), "subnets"),
        security_groups=_words(options.get("security_groups", "")),
        instance_profile=options.get("instance_profile", ""),
        key_name=options.get("key_name", ""),
        types=_words(options.get("types", "")),
        prices_micro={
            name: _money(text, name)
            for name, text in _pairs(options.get("prices", ""), "prices").items()
        },
        endpoint=options.get("endpoint", ""),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))


def _pairs(text: str, what: str) -> dict[str, str]:
    found = {}
    for word in _words(text):
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidRequest(f"{what}: {word!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _money(text: str, name: str) -> int:
    try:
        amount = Decimal(text)
        if not 0 <= amount < 1_000_000:
            raise InvalidOperation
    except InvalidOperation as error:
        raise InvalidRequest(f"prices: {text!r} of {name} is not an amount for an hour") from error
    return int(amount * _MICRO)
