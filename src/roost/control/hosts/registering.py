"""Hosts enter the ledger: their shape, their amounts, and every later change of either.

A host's generation grows whenever something that a filter looks at has changed; claims that were
placed on the host as it was before then lose and are placed again.
"""

from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.ledger.claims.capacity import CLEANUP, claim_id, enter_host, set_capacity
from roost.ledger.schema.amounts import Amounts
from roost.ledger.schema.rows import Changes, HostRow
from roost.ledger.schema.tables import (
    UNLIMITED,
    claims,
    conversations,
    counters,
    doubts,
    host_amounts,
    host_liveness,
    hosts,
    vms,
)
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.hosts import HostSpec
from roost.model.resources import WHOLE_DEVICE
from roost.wire.agentlink import Hello, Inventory
from roost.wire.hostsettings import adjusted
from roost.wire.translate import host_spec

#: What executes. An incoming copy that waits does not: its host must be let in to hear of its end.
_GOING = frozenset({"starting", "running", "paused", "stopping", "arrived", "switching"})
#: Codes of a VM that does not execute, whatever else is said of it.
_LIES = frozenset({"stopped", "fenced", "crashed", "guest_shutdown"})


class StillRuns(Conflict):
    """A fenced host runs VMs that may run elsewhere by now."""

    code = "fenced"


class Registered(NamedTuple):
    """A host, and the epoch that renewals of its lease must quote."""

    row: HostRow
    epoch: int


def register(tx: Tx, hello: Hello) -> Registered:
    """Enter a host, or what is different about it since it registered last."""
    found = tx.find(hosts, name=hello.host, lock=True)
    counted = adjusted(hello.inventory, None if found is None else found["settings"])
    spec = host_spec(hello.host, counted)  # refuses what makes no sense
    inventory = inventory_text(hello.inventory)
    if found is None:
        return Registered(_enter(tx, hello, spec, inventory), 0)
    number = found["number"]
    if found["fenced"] is not None and (astray := _astray(tx, hello, number)):
        listed = ", ".join(astray[:5])
        raise StillRuns(f"fenced; {len(astray)} VMs may run elsewhere: {listed}", host=hello.host)
    # A hello is evidence: without it the watcher would go on counting the silence from before.
    heard = tx.change(host_liveness, {"host": number}, evidence=Plus(1))
    assert heard is not None
    changed: dict[str, Any] = {
        "inventory": inventory,
        "health": "online",
        "instance": hello.instance,
        "version": hello.version,
        "guard_stop_s": hello.guard_stop_s,
        "fenced": None,
        "held": row_json(hello.held),
    }
    if all(found[name] == value for name, value in changed.items()):
        return Registered(HostRow(**found), heard["epoch"])
    if found["inventory"] != inventory:
        set_capacity(tx, number, *capacity_of(spec))
    return Registered(change_host(tx, number, "host.registered", **changed), heard["epoch"])


def _astray(tx: Tx, hello: Hello, number: int) -> list[str]:
    """Return the VMs that run on a returning host and belong to another by now, or will.

    One that is in the ledger no more runs nowhere else; it is held, or its tombstone waits. Nor
    does one that waits for this host to let go of it: the host must be let in to hear so. And of
    one in doubt nobody knows where it is; this host is the one to tell.
    """
    # What has arrived and lies is still told as arrived, for that it came is news.
    going = {vm.id for vm in hello.vms if vm.seen in _GOING and vm.code not in _LIES}
    going |= {vm.id for vm in hello.held if vm.seen in _GOING}
    in_doubt = select(doubts.c.vm).where(doubts.c.vm.in_(going))
    going -= {row["vm"] for row in tx.rows(in_doubt)}
    query = select(vms.c.id, vms.c.host, vms.c.target).where(vms.c.id.in_(going))
    elsewhere = [row for row in tx.rows(query) if number not in (row["host"], row["target"])]
    waiting = {
        row["id"]
        for row in elsewhere
        if row["host"] is None and tx.find(claims, id=claim_id(row["id"], CLEANUP), host=number)
    }
    return sorted(row["id"] for row in elsewhere if row["id"] not in waiting)


def _enter(tx: Tx, hello: Hello, spec: HostSpec, inventory: str) -> HostRow:
    counted = tx.change(counters, {"name": "hosts"}, value=Plus(1))
    assert counted is not None
    number = int(counted["value"])
    row = HostRow(
        number=number,
        name=hello.host,
        inventory=inventory,
        labels=None,
        health="online",
        admin="open",
        instance=hello.instance,
        version=hello.version,
        guard_stop_s=hello.guard_stop_s,
        fenced=None,
        held=row_json(hello.held),
        registered_ms=tx.at_ms,
    )
    tx.insert(hosts, msgspec.structs.asdict(row))
    amounts = enter_host(tx, number, *capacity_of(spec))
    tx.insert(host_liveness, {"host": number, "evidence": 1, "epoch": 0})
    tx.insert(conversations, {"host": number, "instance": hello.instance, "number": 0})
    tx.event(
        "host.registered",
        f"host/{row.name}",
        {"hosts": {str(number): row}, "host_amounts": {str(number): _public(amounts)}},
    )
    return row


def change_host(
    tx: Tx, number: int, kind: str, *, note: str = "", extra: Changes | None = None,
    **values: Any,
) -> HostRow:  # fmt: skip
    """Change a host's row; its generation moves with it."""
    found = tx.change(hosts, {"number": number}, **values)
    if found is None:
        raise NotFound(f"no host number {number}", host=number)
    amounts = tx.change(host_amounts, {"host": number}, generation=Plus(1))
    assert amounts is not None
    row = HostRow(**found)
    changes: Changes = {"hosts": {str(number): row}, **(extra or {})}
    changes["host_amounts"] = {str(number): _public(amounts)}
    tx.event(kind, f"host/{row.name}", changes, note=note)
    return row


def locked_host(tx: Tx, name: str) -> HostRow:
    """Return a host by name, locked until the transaction ends."""
    found = tx.find(hosts, name=name, lock=True)
    if found is None:
        raise NotFound(f"no host {name!r}", host=name)
    return HostRow(**found)


def _public(amounts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in amounts.items()
        if name == "generation" or name.endswith("_capacity")
    }


def inventory_text(inventory: Inventory) -> str:
    """Write an inventory the same way each time, so that equal ones compare equal."""
    return msgspec.json.encode(inventory, order="deterministic").decode()


def capacity_of(spec: HostSpec) -> tuple[Amounts, int, dict[str, int]]:
    """Return what a host can promise: amounts, VMs, and counters.

    One of which something is unknown can promise nothing of that.
    """
    amounts = Amounts(spec.cpu.capacity, spec.memory.capacity, spec.disk.capacity)
    limit = UNLIMITED if spec.max_vms is None else spec.max_vms
    return amounts, limit, counter_capacities(spec)


def counter_capacities(spec: HostSpec) -> dict[str, int]:
    """Return the capacity of everything that not every host has."""
    found = {f"x:{name}": resource.capacity for name, resource in spec.extended}
    for at in range(len(spec.devices)):
        found[f"device:{at:02d}"] = WHOLE_DEVICE
    for at, cell in enumerate(spec.cells):
        found[f"cell:{at:02d}:cpu"] = cell.cpu_milli
        found[f"cell:{at:02d}:memory"] = cell.memory_bytes
    if any(name.count(":") > 2 for name in found):
        raise InvalidRequest(f"an extended resource of {spec.name!r} has a colon in its name")
    return found
