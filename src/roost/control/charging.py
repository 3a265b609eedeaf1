"""Charge and release hosts within an ordinary transaction: the statements of the slow path.

Same conditions as the claim path: amounts and counters by value, the host's shape by generation.
"""

from typing import Any

import msgspec
from sqlalchemy import delete, select, update

from roost.ledger.rows import Changes, ClaimRow
from roost.ledger.tables import claims, groups, host_amounts, host_counters, members
from roost.ledger.transaction import Tx


def charge(tx: Tx, claim: ClaimRow, generation: int | None) -> bool:
    """Take what a new claim asks and insert it; False when the host has moved on or is full.

    Without a generation the host's shape does not matter (its own VM grows in place).
    """
    if not charge_amounts(
        tx, claim.host, claim.cpu_milli, claim.memory_bytes, claim.disk_bytes, 1, generation
    ):
        return False
    for counter, amount in counters_in(claim).items():
        where = (host_counters.c.host == claim.host, host_counters.c.counter == counter)
        room = host_counters.c.committed + amount <= host_counters.c.capacity
        if not tx.update(host_counters, *where, room, committed=host_counters.c.committed + amount):
            return False
    tx.insert(claims, msgspec.structs.asdict(claim))
    return True


def charge_amounts(
    tx: Tx, host: int, cpu: int, memory: int, disk: int, count: int, generation: int | None
) -> bool:
    """Change a host's sums; what grows must fit."""
    h = host_amounts.c
    where = [h.host == host]
    if generation is not None:
        where.append(h.generation == generation)
    for amount, committed, capacity in (
        (cpu, h.cpu_milli_committed, h.cpu_milli_capacity),
        (memory, h.memory_bytes_committed, h.memory_bytes_capacity),
        (disk, h.disk_bytes_committed, h.disk_bytes_capacity),
        (count, h.vms_committed, h.vms_capacity),
    ):
        if amount > 0:
            where.append(committed + amount <= capacity)
    changed = tx.connection.execute(
        update(host_amounts)
        .where(*where)
        .values(
            cpu_milli_committed=h.cpu_milli_committed + cpu,
            memory_bytes_committed=h.memory_bytes_committed + memory,
            disk_bytes_committed=h.disk_bytes_committed + disk,
            vms_committed=h.vms_committed + count,
        )
    )
    return changed.rowcount == 1


def release(tx: Tx, claim: ClaimRow) -> None:
    """Give back what a claim took and delete it."""
    charge_amounts(
        tx, claim.host, -claim.cpu_milli, -claim.memory_bytes, -claim.disk_bytes, -1, None
    )
    for counter, amount in counters_in(claim).items():
        where = (host_counters.c.host == claim.host, host_counters.c.counter == counter)
        tx.update(host_counters, *where, committed=host_counters.c.committed - amount)
    tx.delete(claims, claims.c.id == claim.id)


def hold_instead(tx: Tx, claim: ClaimRow) -> dict[str, dict[str, Any]]:
    """Turn a claim into a hold: the same amounts, until the host says that its copy is gone."""
    hold_id = f"{claim.vm}:hold"
    row = {
        **msgspec.structs.asdict(claim),
        "id": hold_id,
        "kind": "hold",
    }
    tx.delete(claims, claims.c.id == claim.id)
    tx.insert(claims, row)
    return {hold_id: row}


def counters_in(claim: ClaimRow) -> dict[str, int]:
    """Return the counters that a claim holds."""
    found: dict[str, int] = msgspec.json.decode(claim.counters) if claim.counters else {}
    return dict(sorted(found.items()))


def claims_of(tx: Tx, vm: str) -> dict[str, ClaimRow]:
    """Return a VM's claims by kind."""
    rows = tx.rows(select(claims).where(claims.c.vm == vm).order_by(claims.c.id))
    return {row["kind"]: ClaimRow(**row) for row in rows}


def advance_groups(tx: Tx, vm: str, changes: Changes) -> None:
    """Say that a member of a VM's groups is somewhere else now."""
    query = select(members.c.group_id).where(members.c.vm == vm).order_by(members.c.group_id)
    for row in tx.rows(query):
        found = tx.update(
            groups, groups.c.id == row["group_id"], generation=groups.c.generation + 1
        )
        if found is not None:
            generations = changes.setdefault("group_generations", {})
            generations[row["group_id"]] = found["generation"]


def group_checks_hold(tx: Tx, vm: str, expected: tuple[tuple[str, int], ...]) -> bool:
    """Lock the groups and say whether they, and who belongs to them, are as was seen."""
    query = select(members.c.group_id).where(members.c.vm == vm).order_by(members.c.group_id)
    ids = [row["group_id"] for row in tx.rows(query)]
    if ids != sorted(group for group, _ in expected):
        return False
    if not ids:
        return True
    current = select(groups.c.id, groups.c.generation).where(groups.c.id.in_(ids))
    rows = tx.rows(current.order_by(groups.c.id).with_for_update())
    return {row["id"]: row["generation"] for row in rows} == dict(expected)


def forget_members(tx: Tx, vm: str, changes: Changes) -> None:
    """Take a VM out of all its groups."""
    advance_groups(tx, vm, changes)
    rows = tx.rows(select(members.c.group_id).where(members.c.vm == vm))
    if rows:
        tx.connection.execute(delete(members).where(members.c.vm == vm))
        changes["members"] = {f"{row['group_id']}|{vm}": None for row in rows}
