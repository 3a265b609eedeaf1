"""Destroy a VM that a host runs and no list names: one that was created after a backup, or by hand.

Such a VM is held, never destroyed by itself. Somebody who knows that it is not wanted says so; then
it gets a tombstone like any deleted VM, and the agent's guard has its say as always.
"""

import msgspec

from roost.base.errors import Conflict, NotFound
from roost.control.hosts.registering import locked_host
from roost.ledger.tables import doubts, tombstones, vms
from roost.ledger.transaction import Tx
from roost.wire.agentlimits import MOST_GENERATION


class _Held(msgspec.Struct):
    """What is needed of a held VM, as any release has stored it."""

    id: str
    generation: int = 0


def destroy_held(tx: Tx, name: str, vm_id: str) -> None:
    """Order a host to destroy a VM that it holds; one that the ledger knows is not for this."""
    host = locked_host(tx, name)
    told = msgspec.json.decode(host.held, type=list[_Held]) if host.held else []
    held = next((each for each in told if each.id == vm_id), None)
    if held is None:
        raise NotFound(
            f"host {name!r} holds no VM {vm_id!r}",
            host=name,
            hint=f"Maybe roost host show {name} lists what it holds.",
        )
    if tx.find(doubts, vm=vm_id) is not None:
        raise Conflict(f"it is not known yet where VM {vm_id!r} should be", vm=vm_id)
    if tx.find(vms, id=vm_id) is not None:
        raise Conflict(
            f"VM {vm_id!r} is in the ledger", vm=vm_id, hint=f"Maybe roost vm delete {vm_id}."
        )
    generation = min(held.generation + 1, MOST_GENERATION)
    row = tx.change(tombstones, {"vm": vm_id, "host": host.number}, generation=generation)
    if row is None:
        row = tx.insert(
            tombstones,
            {
                "vm": vm_id,
                "host": host.number,
                "generation": generation,
                "project": "default",
                "created_ms": tx.at_ms,
            },
        )
    changes = {"tombstones": {f"{vm_id}|{host.number}": row}}
    tx.event("vm.destroy_asked", f"vm/{vm_id}", changes, note=f"held by host {name}")
