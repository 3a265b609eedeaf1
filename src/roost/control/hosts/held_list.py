"""What a host says it holds, as answers show it: VMs that are on no list."""

from typing import Any

import msgspec

from roost.ledger.schema.rows import HostRow


def shown_held(host: HostRow) -> list[dict[str, Any]]:
    """Return what a host holds as answers show it: not the orders, but which there are."""
    found: list[dict[str, Any]] = msgspec.json.decode(host.held) if host.held else []
    return [
        {key: value for key, value in each.items() if key != "order"}
        | {"adoptable": bool(each.get("order"))}
        for each in found
    ]
