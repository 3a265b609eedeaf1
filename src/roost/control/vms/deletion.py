"""The end of a VM: tombstones, and what is removed once an agent has said that it is gone."""

from roost.ledger.claims.capacity import CLEANUP, claim_id, claims_of, release, uncharge_project
from roost.ledger.schema.rows import Changes, ClaimRow, VMRow
from roost.ledger.schema.tables import claims, tombstones, vm_ends, vm_specs, vm_user_data, vms
from roost.ledger.writes.membership import forget_members
from roost.ledger.writes.transaction import Tx
from roost.model.states import Seen
from roost.model.vm import image_of
from roost.wire.spectext import SpecUnreadable, read_spec

#: What a host says of a VM that it has as ordered.
_HAS_IT: tuple[Seen, ...] = ("running", "paused", "stopped")


def order_destruction(tx: Tx, vm: VMRow, host: int, changes: Changes) -> None:
    """Write the tombstone that orders a host to destroy its copy of a VM."""
    row = {
        "vm": vm.id,
        "host": host,
        "generation": vm.generation,
        "project": vm.project,
        "created_ms": tx.at_ms,
    }
    where = {"vm": vm.id, "host": host}
    known = tx.change(tombstones, where, generation=vm.generation)
    changes.setdefault("tombstones", {})[f"{vm.id}|{host}"] = known or tx.insert(tombstones, row)


def destroyed_since(tx: Tx, vm: VMRow, generation: int) -> bool:
    """Say whether a VM's host has destroyed it since it was told to, and not some time before."""
    found = tx.find(tombstones, vm=vm.id, host=vm.host)
    return found is None or generation >= found["generation"]


def remove_deleted(tx: Tx, vm: VMRow, note: str = "", *, unseen: bool = False) -> None:
    """Remove a deleted VM: claims, membership, quota, tombstone of its host, row.

    When its host has not said so itself (`unseen`), the tombstone stays for the host's return.
    """
    changes: Changes = {"vms": {vm.id: None}, "claims": {}}
    held = claims_of(tx, vm.id)
    if vm.host is not None and all(claim.until_ms is None for claim in held.values()):
        _note_end(tx, vm)
    for claim in held.values():
        if claim.kind == CLEANUP:
            continue  # an earlier host still has to clean up
        release(tx, claim)
        changes["claims"][claim.id] = None
    uncharge_project(tx, vm)
    forget_members(tx, vm.id, changes)
    for grave in tx.find_all(tombstones, vm=vm.id):
        if grave["host"] == vm.host and not unseen:
            tx.remove(tombstones, vm=vm.id, host=grave["host"])
            changes.setdefault("tombstones", {})[f"{vm.id}|{grave['host']}"] = None
    tx.remove(vms, id=vm.id)
    tx.remove(vm_specs, vm=vm.id)
    tx.remove(vm_user_data, vm=vm.id)
    tx.event("vm.deleted", f"vm/{vm.id}", changes, project=vm.project, note=note)


def _note_end(tx: Tx, vm: VMRow) -> None:
    """Note how long a VM lived, for `control.learning` to count.

    One that had no host has not lived, and one whose owner had said when it ends says nothing of
    those that end unforeseen. A row of its own, and no count: those who delete never wait here. An
    id that ended before and was adopted again is counted once.
    """
    if tx.find(vm_ends, vm=vm.id) is not None:
        return
    tx.insert(
        vm_ends,
        {
            "vm": vm.id,
            "project": vm.project,
            "cpu_milli": vm.cpu_milli,
            "memory_bytes": vm.memory_bytes,
            "image": _image(tx, vm.id),
            "lived_s": max(0, tx.at_ms - vm.created_ms) // 1000,
            "at_ms": tx.at_ms,
        },
    )


def _image(tx: Tx, vm_id: str) -> str:
    """Return the digest of the image that a VM boots; empty if it has none, or is unreadable."""
    versions = tx.find_all(vm_specs, vm=vm_id)
    try:
        return image_of(read_spec(versions[-1]["spec"])) if versions else ""
    except SpecUnreadable:
        return ""


def clear_tombstone(tx: Tx, vm_id: str, host: int, generation: int) -> None:
    """Remove the tombstone and the cleanup claim of a host that has destroyed its copy."""
    found = tx.find(tombstones, vm=vm_id, host=host)
    if found is None or generation < found["generation"]:
        return  # a word about an earlier copy, late
    changes: Changes = {"tombstones": {f"{vm_id}|{host}": None}}
    row = tx.find(claims, id=claim_id(vm_id, CLEANUP), host=host)
    if row is not None:
        release(tx, ClaimRow(**row))
        changes["claims"] = {row["id"]: None}
    tx.remove(tombstones, vm=vm_id, host=host)
    tx.event("vm.cleaned", f"vm/{vm_id}", changes, project=found["project"])


def renew_cleanup(tx: Tx, vm: VMRow, host: int, generation: int) -> None:
    """Order a host again to destroy a copy that waited and never ran, newer than it was told of.

    A restored ledger knows the tombstone of an earlier copy there, and not of the move that made
    this one. As after any move it goes once the VM's own host has the VM as ordered.
    """
    found = tx.find(tombstones, vm=vm.id, host=host)
    if found is None or not found["generation"] < generation <= vm.generation:
        return
    if not has_it_at_home(vm):
        return
    changes: Changes = {}
    order_destruction(tx, vm, host, changes)
    tx.event("vm.destroy_asked", f"vm/{vm.id}", changes, project=vm.project)


def has_it_at_home(vm: VMRow) -> bool:
    """Say whether a VM's own host has said that it has the VM as it was last ordered."""
    at_rest = vm.host is not None and not vm.phase
    return at_rest and vm.observed in _HAS_IT and vm.observed_generation == vm.generation


def renew_tombstone(tx: Tx, vm_id: str, host: int, generation: int) -> None:
    """Order a host again to destroy a deleted VM, of which it has a newer copy than it was told.

    So it is after an old ledger was restored that knew the VM without a host: it was deleted there,
    and the tombstone of an earlier copy would never be carried out.
    """
    found = tx.find(tombstones, vm=vm_id, host=host)
    if found is None or generation <= found["generation"]:
        return
    row = tx.change(tombstones, {"vm": vm_id, "host": host}, generation=generation)
    changes: Changes = {"tombstones": {f"{vm_id}|{host}": row}}
    tx.event("vm.destroy_asked", f"vm/{vm_id}", changes, project=found["project"])
