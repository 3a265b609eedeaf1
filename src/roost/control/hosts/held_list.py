"""What a host says it holds: VMs that are on no list, as the ledger stores them beside the host."""

from typing import Any

import msgspec

from roost.ledger.rows import HostRow
from roost.model.states import Seen


class StoredHeld(msgspec.Struct):
    """A held VM as any release has stored it."""

    id: str
    generation: int = 0
    seen: Seen = "running"
    order: str = ""  # empty: an older agent, or one that has too much to tell


def read_held(host: HostRow) -> list[StoredHeld]:
    """Return what a host holds."""
    return msgspec.json.decode(host.held, type=list[StoredHeld]) if host.held else []


def shown_held(host: HostRow) -> list[dict[str, Any]]:
    """Return what a host holds as answers show it: not the orders, but which there are."""
    found: list[dict[str, Any]] = msgspec.json.decode(host.held) if host.held else []
    return [
        {key: value for key, value in each.items() if key != "order"}
        | {"adoptable": bool(each.get("order"))}
        for each in found
    ]
