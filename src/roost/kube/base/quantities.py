"""Amounts as Kubernetes writes them: 4Gi, 500m, 1e3."""

import re
from decimal import ROUND_CEILING, Decimal

from roost.base.errors import InvalidRequest
from roost.base.units import exact_bytes, parse_bytes

_UNITS = {
    "": Decimal(1),
    **{unit: Decimal(2) ** (10 * power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    "m": Decimal("0.001"),
    "u": Decimal("0.000001"),
    "n": Decimal("0.000000001"),
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([KMGT]i|[kMGTPmun]?)"
)


def parse_quantity(text: str, *, milli: bool = False) -> int:
    """Return a quantity as a whole number, or in thousandths; rounded up, as Kubernetes rounds.

    Bytes may also be written as elsewhere in roost (4GiB).
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        try:
            return parse_bytes(text)
        except InvalidRequest:
            raise InvalidRequest(f"{text!r} is no quantity; write it as 4Gi or 500m") from None
    amount = Decimal(match[1]) * _UNITS[match[2]] * (1000 if milli else 1)
    return int(amount.to_integral_value(ROUND_CEILING))


def bytes_quantity(amount: int) -> str:
    """Return an amount of bytes as Kubernetes writes it, exactly."""
    return exact_bytes(amount).removesuffix("B")
