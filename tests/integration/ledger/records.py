"""Rows for tests of the ledger, and the changes that control makes of them, in their plainest form.

Every change here says in its event what it does to folded tables, as all changes must.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import select, update

from roost.ledger.claims.proposals import Proposal
from roost.ledger.schema.amounts import AMOUNTS, LIMITS
from roost.ledger.schema.rows import ClaimRow, HostRow, VMRow
from roost.ledger.schema.tables import (
    UNLIMITED,
    claims,
    groups,
    host_amounts,
    host_counters,
    host_liveness,
    hosts,
    members,
    projects,
    tombstones,
    vm_specs,
    vms,
)
from roost.ledger.writes.transaction import Tx
from roost.model.resources import Demand
from roost.model.vm import NewSpec, VMSpec

GIB = 2**30
#: What every VM here asks for.
SPEC = NewSpec(VMSpec(Demand(1000, GIB)), f'{{"demand":{{"cpu_milli":1000,"memory_bytes":{GIB}}}}}')


def vm_row(vm_id: str, **given: Any) -> VMRow:
    """Return a VM of one core; what a test cares about is given."""
    row = {
        "id": vm_id, "project": "default", "name": vm_id, "labels": "",
        "cpu_milli": 1000, "memory_bytes": GIB, "disk_bytes": 0, "strategy": "least_loaded",
        "priority": 0, "on_no_fit": "fail", "restart": "here", "desired": "running",
        "generation": 1, "created_ms": 0,
    }  # fmt: skip
    return VMRow(**(row | given))


def proposal(
    vm_id: str,
    host: int | None = 1,
    *,
    generation: int = 1,
    counters: Sequence[tuple[str, int]] = (),
    groups: Sequence[tuple[str, int]] = (),
    rules: int | None = None,
    key: tuple[str, str, str] | None = None,
    answer: str = "{}",
    user_data: str = "",
    **given: Any,
) -> Proposal:
    """Return a VM that was placed on a host, or waits when there is none."""
    pending = "{}" if host is None else None
    vm = vm_row(vm_id, host=host, pending=pending, **given)
    claim = None if host is None else claim_of(vm, host, "run", dict(counters))
    return Proposal(
        vm=vm,
        spec=SPEC._replace(user_data=user_data),
        claim=claim,
        host_generation=generation,
        counters=tuple(counters),
        groups=tuple(groups),
        rules=rules,
        answer=answer,
        key=key,
    )


def claim_of(vm: VMRow, host: int, kind: str, counters: dict[str, int] | None = None) -> ClaimRow:
    """Return a claim for all that a VM asks for."""
    text = msgspec.json.encode(counters).decode() if counters else ""
    return ClaimRow(
        id=f"{vm.id}:{kind}", vm=vm.id, host=host, kind=kind, cpu_milli=vm.cpu_milli,
        memory_bytes=vm.memory_bytes, disk_bytes=vm.disk_bytes, counters=text,
    )  # fmt: skip


def add_host(
    tx: Tx,
    number: int,
    *,
    cpu_milli: int = 8000,
    memory_bytes: int = 64 * GIB,
    disk_bytes: int = 500 * GIB,
    max_vms: int = UNLIMITED,
    counters: dict[str, int] | None = None,
    zone: str = "",
    rack: str = "",
) -> None:
    """Register a host."""
    inventory = {
        "cpu_milli": {"total": cpu_milli}, "memory_bytes": {"total": memory_bytes},
        "disk_bytes": {"total": disk_bytes}, "zone": zone, "rack": rack,
    }  # fmt: skip
    host = HostRow(
        number=number, name=f"h{number}", inventory=msgspec.json.encode(inventory).decode(),
        labels=None, health="online", admin="open", instance="", version="", guard_stop_s=1.5,
        fenced=None, held="[]", registered_ms=tx.at_ms,
    )  # fmt: skip
    capacity = {
        "cpu_milli_capacity": cpu_milli, "memory_bytes_capacity": memory_bytes,
        "disk_bytes_capacity": disk_bytes, "vms_capacity": max_vms,
    }  # fmt: skip
    tx.insert(hosts, msgspec.structs.asdict(host))
    amounts = {"generation": 1, **capacity}
    nothing = {f"{name}_committed": 0 for name in LIMITS}
    tx.insert(host_amounts, {"host": number, **amounts, **nothing})
    tx.insert(host_liveness, {"host": number, "evidence": 0, "epoch": 0})
    for counter, amount in (counters or {}).items():
        tx.insert(
            host_counters,
            {"host": number, "counter": counter, "capacity": amount, "committed": 0},
        )
    tx.event(
        "host.registered",
        f"host/h{number}",
        {"hosts": {str(number): host}, "host_amounts": {str(number): amounts}},
    )


def add_group(tx: Tx, group: str, rule: str = "anti-affinity", **given: Any) -> None:
    """Make a group of the default project."""
    row = {
        "id": f"default/{group}", "project": "default", "name": group, "rule": rule,
        "scope": "host", "hard": True, "max_skew": 1, "weight": 50, "selector": "",
        "generation": 0,
    } | given  # fmt: skip
    tx.insert(groups, row)
    tx.event("group.created", f"group/{row['id']}", {"groups": {row["id"]: row}})


def add_project(tx: Tx, name: str, **quotas: int | None) -> None:
    """Make a project with a quota."""
    row = {"name": name, **{f"{each}_quota": None for each in LIMITS}, **quotas}
    tx.insert(projects, {**row, **{f"{each}_used": 0 for each in LIMITS}})
    tx.event("project.created", f"project/{name}", {"projects": {name: row}}, project=name)


def delete_vm(tx: Tx, vm_id: str) -> bool:
    """Remove a VM with all that it holds."""
    vm = tx.row(select(vms).where(vms.c.id == vm_id).with_for_update())
    if vm is None:
        return False
    held = tx.rows(select(claims).where(claims.c.vm == vm_id).order_by(claims.c.host))
    for claim in held:
        release(tx, claim)
    used = {f"{name}_used": projects.c[f"{name}_used"] - vm[name] for name in AMOUNTS}
    tx.connection.execute(
        update(projects)
        .where(projects.c.name == vm["project"])
        .values(vms_used=projects.c.vms_used - 1, **used)
    )
    of = [row["group_id"] for row in tx.rows(select(members).where(members.c.vm == vm_id))]
    generations = {}
    for group in sorted(of):
        row = tx.update(groups, groups.c.id == group, generation=groups.c.generation + 1)
        assert row is not None
        generations[group] = row["generation"]
    tx.delete(members, members.c.vm == vm_id)
    tx.delete(vms, vms.c.id == vm_id)
    tx.delete(vm_specs, vm_specs.c.vm == vm_id)
    tx.event(
        "vm.deleted",
        f"vm/{vm_id}",
        {
            "vms": {vm_id: None},
            "claims": {claim["id"]: None for claim in held},
            "members": {f"{group}|{vm_id}": None for group in of},
            "group_generations": generations,
        },
        project=vm["project"],
    )
    return True


def release(tx: Tx, claim: dict[str, Any]) -> None:
    """Give back what a claim has taken, without saying so in an event."""
    taken = {
        f"{name}_committed": host_amounts.c[f"{name}_committed"] - claim[name] for name in AMOUNTS
    }
    tx.connection.execute(
        update(host_amounts)
        .where(host_amounts.c.host == claim["host"])
        .values(vms_committed=host_amounts.c.vms_committed - 1, **taken)
    )
    amounts = msgspec.json.decode(claim["counters"]) if claim["counters"] else {}
    for counter, amount in sorted(amounts.items()):
        tx.connection.execute(
            update(host_counters)
            .where(host_counters.c.host == claim["host"], host_counters.c.counter == counter)
            .values(committed=host_counters.c.committed - amount)
        )
    tx.delete(claims, claims.c.id == claim["id"])


def bury(tx: Tx, vm_id: str, host: int) -> None:
    """Order the destruction of a VM on a host."""
    row = {"vm": vm_id, "host": host, "generation": 2, "project": "default", "created_ms": 0}
    tx.insert(tombstones, row)
    tx.event("vm.buried", f"vm/{vm_id}", {"tombstones": {f"{vm_id}|{host}": row}})
