"""Charge and release hosts within an ordinary transaction: the statements of the slow path.

Same conditions as the claim path: amounts and counters by value, the host's shape by generation.
"""

from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Update, bindparam, select, update

from roost.ledger.rows import Changes, ClaimRow
from roost.ledger.statements import Plus
from roost.ledger.tables import AMOUNTS, claims, groups, host_amounts, host_counters, members
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
        values = {"of_host": claim.host, "of_counter": counter, "amount": amount}
        if tx.connection.execute(_CHARGE_COUNTER, values).rowcount != 1:
            return False
    tx.insert(claims, msgspec.structs.asdict(claim))
    return True


def charge_amounts(
    tx: Tx, host: int, cpu: int, memory: int, disk: int, count: int, generation: int | None
) -> bool:
    """Change a host's sums; what grows must fit."""
    amounts = {"cpu_milli": cpu, "memory_bytes": memory, "disk_bytes": disk, "vms": count}
    grow = tuple(name for name, amount in amounts.items() if amount > 0)
    values = {"of_host": host, **amounts}
    if generation is not None:
        values["seen"] = generation
    statement = _charge_amounts(grow, generation is not None)
    return tx.connection.execute(statement, values).rowcount == 1


@cache
def _charge_amounts(grow: tuple[str, ...], of_generation: bool) -> Update:
    h = host_amounts.c
    where = [h.host == bindparam("of_host")]
    if of_generation:
        where.append(h.generation == bindparam("seen"))
    more = {
        name: h[f"{name}_committed"] + bindparam(name, type_=h[f"{name}_committed"].type)
        for name in (*AMOUNTS, "vms")
    }
    where += [more[name] <= h[f"{name}_capacity"] for name in grow]
    values = {f"{name}_committed": value for name, value in more.items()}
    return update(host_amounts).where(*where).values(values)


_CHARGE_COUNTER = (
    update(host_counters)
    .where(
        host_counters.c.host == bindparam("of_host"),
        host_counters.c.counter == bindparam("of_counter"),
        host_counters.c.committed + bindparam("amount") <= host_counters.c.capacity,
    )
    .values(committed=host_counters.c.committed + bindparam("amount"))
)


def release(tx: Tx, claim: ClaimRow) -> None:
    """Give back what a claim took and delete it."""
    charge_amounts(
        tx, claim.host, -claim.cpu_milli, -claim.memory_bytes, -claim.disk_bytes, -1, None
    )
    for counter, amount in counters_in(claim).items():
        tx.change(host_counters, {"host": claim.host, "counter": counter}, committed=Plus(-amount))
    tx.remove(claims, id=claim.id)


def hold_instead(tx: Tx, claim: ClaimRow) -> dict[str, dict[str, Any]]:
    """Turn a claim into a hold: the same amounts, until the host says that its copy is gone."""
    hold_id = f"{claim.vm}:hold"
    row = {
        **msgspec.structs.asdict(claim),
        "id": hold_id,
        "kind": "hold",
    }
    tx.remove(claims, id=claim.id)
    tx.insert(claims, row)
    return {hold_id: row}


def counters_in(claim: ClaimRow) -> dict[str, int]:
    """Return the counters that a claim holds."""
    found: dict[str, int] = msgspec.json.decode(claim.counters) if claim.counters else {}
    return dict(sorted(found.items()))


def claims_of(tx: Tx, vm: str) -> dict[str, ClaimRow]:
    """Return a VM's claims by kind."""
    return {row["kind"]: ClaimRow(**row) for row in tx.find_all(claims, vm=vm)}


def advance_groups(tx: Tx, vm: str, changes: Changes) -> None:
    """Say that a member of a VM's groups is somewhere else now."""
    for row in tx.find_all(members, vm=vm):
        found = tx.change(groups, {"id": row["group_id"]}, generation=Plus(1))
        if found is not None:
            generations = changes.setdefault("group_generations", {})
            generations[row["group_id"]] = found["generation"]


def group_checks_hold(tx: Tx, vm: str, expected: tuple[tuple[str, int], ...]) -> bool:
    """Lock the groups and say whether they, and who belongs to them, are as was seen."""
    ids = [row["group_id"] for row in tx.find_all(members, vm=vm)]
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
    rows = tx.find_all(members, vm=vm)
    if rows:
        tx.remove(members, vm=vm)
        changes["members"] = {f"{row['group_id']}|{vm}": None for row in rows}
