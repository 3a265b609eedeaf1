"""Set labels, taints, overcommitment and reserve of a host in place of what its agent says.

A host that can promise less than it has promised keeps its VMs: nothing new goes there until it
fits again.
"""

from typing import Any

import msgspec
from msgspec import UnsetType

from roost.base.errors import Conflict, InvalidRequest
from roost.control.hosts.registering import capacity_of, change_host, locked_host
from roost.ledger.claims.capacity import set_capacity
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.transaction import Tx, row_json
from roost.wire.agentlink import Inventory
from roost.wire.bodies import SetHost
from roost.wire.hostsettings import (
    FIELDS,
    HostSettings,
    adjusted,
    changed,
    read_settings,
    settings_text,
)
from roost.wire.translate import cores, host_spec, size

_inventory = msgspec.json.Decoder(Inventory).decode


def set_host(tx: Tx, name: str, body: SetHost) -> None:
    """Set what is given of a host; equal settings again change nothing."""
    if body == SetHost():
        raise InvalidRequest("nothing to set", hint="Maybe taints, labels, overcommit or reserve.")
    host = locked_host(tx, name)
    values: dict[str, Any] = {}
    if not isinstance(body.labels, UnsetType):
        given = body.labels
        values["labels"] = None if given is None else row_json(dict(sorted(given.items())))
    text = settings_text(changed(read_settings(host.settings), body, _amounts(body)))
    if text != host.settings:
        _refuse_beside_older(tx)
        values["settings"] = text
    values = {field: value for field, value in values.items() if getattr(host, field) != value}
    if not values:
        return
    if "settings" in values:
        counted = adjusted(_inventory(host.inventory), text)
        _refuse_beyond_amounts(counted, read_settings(text))
        spec = host_spec(name, counted)
        set_capacity(tx, host.number, *capacity_of(spec))
    change_host(tx, host.number, "host.set", note=", ".join(sorted(values)), **values)


def _refuse_beyond_amounts(counted: Inventory, wanted: HostSettings) -> None:
    """Refuse an overcommitment that no amount can hold; later, a host may grow beyond it."""
    for resource, ratio in wanted.ratio_milli.items():
        if getattr(counted, FIELDS[resource]).ratio_milli < ratio:
            raise InvalidRequest(
                f"{resource} {ratio / 1000:g} times over is more than 2^48", resource=resource
            )


def _amounts(body: SetHost) -> dict[str, int]:
    if isinstance(body.reserve, UnsetType) or body.reserve is None:
        return {}
    return {
        name: cores(value) if name == "cpu" else size(value, name)
        for name, value in body.reserve.items()
    }


def _refuse_beside_older(tx: Tx) -> None:
    """Refuse while processes may be there that count hosts by their inventory alone."""
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "taints, overcommitment and reserve cannot be set while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )
