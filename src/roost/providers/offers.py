"""Machine types as an operator writes them: NAME=CPU/MEMORY/PRICE[/SPOT PRICE], commas between."""

from decimal import Decimal, InvalidOperation

from roost.base.errors import InvalidRequest
from roost.base.units import parse_bytes, parse_cpu
from roost.model.job import MachineType

_MICRO = 1_000_000


def read_types(text: str, disk_bytes: int, regions: tuple[str, ...] = ()) -> list[MachineType]:
    """Return the machine types of a text; prices are for an hour."""
    words = [word for each in text.split(",") if (word := each.strip())]
    return [_type(word, disk_bytes, regions) for word in words]


def _type(word: str, disk_bytes: int, regions: tuple[str, ...]) -> MachineType:
    name, _, rest = word.partition("=")
    parts = rest.split("/")
    if not name or len(parts) not in (3, 4):
        raise InvalidRequest(
            f"types: {word!r} is not NAME=CPU/MEMORY/PRICE[/SPOT PRICE]",
            hint="Maybe medium=2/8GiB/0.096/0.02",
        )
    prices = [_money(each, word) for each in parts[2:]]
    return MachineType(
        name,
        parse_cpu(parts[0], "types"),
        parse_bytes(parts[1], "types"),
        disk_bytes,
        prices[0],
        prices[1] if len(prices) > 1 else None,
        regions=regions,
    )


def _money(text: str, word: str) -> int:
    try:
        amount = Decimal(text)
        if not 0 <= amount < 1_000_000:
            raise InvalidOperation
    except InvalidOperation as error:
        raise InvalidRequest(f"types: {text!r} of {word!r} is not a price") from error
    return int(amount * _MICRO)
