"""Lowered limits as changes of rows: machines beyond them leave, and nothing that runs is ended.

It is decided and written in one transaction, from the rows as they are then, and looked at with
every plan: a limit that was lowered while nobody planned is found by the next planner.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from roost.jobs.deciding.shedding import Passed, Rented, passed, to_leave, words
from roost.jobs.rented import live_machines, move_machine
from roost.jobs.rows import type_of
from roost.ledger.schema.jobtables import RENTED, accounts, machines, pools
from roost.ledger.writes.statements import find_rows
from roost.ledger.writes.transaction import Tx

Rows = Iterable[Mapping[str, Any]]


def passed_limits(pool_rows: Rows, account_rows: Rows) -> list[Passed]:
    """Return the limits of pools and accounts that have more than they may have."""
    found = [passed("pool", row, RENTED) for row in pool_rows]
    found += [passed("account", row, RENTED) for row in account_rows]
    return [each for each in found if each is not None]


def passed_words(pool: Mapping[str, Any], account: Mapping[str, Any] | None) -> list[str]:
    """Return what is said of a pool while it or its account has more than it may have."""
    found = []
    if (limit := passed("pool", pool, RENTED)) is not None:
        found.append(words(limit, pool))
    if account is not None and (limit := passed("account", account, RENTED)) is not None:
        found.append(words(limit, account))
    return found


def machines_to_leave(
    pool_rows: Rows, account_rows: Rows, machine_rows: Rows
) -> list[tuple[Rented, Passed]]:
    """Return the machines that must leave for lowered limits, and for whose; none leaves yet."""
    limits = passed_limits(pool_rows, account_rows)
    return to_leave(limits, [_rented(row) for row in machine_rows]) if limits else []


def shed_machines(tx: Tx) -> list[str]:
    """Let machines beyond lowered limits leave; return those of which a worker must hear."""
    pool_rows, payers = (find_rows(tx.connection, each, {}) for each in (pools, accounts))
    found = tx.connection.execute(live_machines()).mappings()
    rows = {row["id"]: dict(row) for row in found}
    told = []
    for machine, limit in machines_to_leave(pool_rows, payers, rows.values()):
        said = f"the limits of {limit.whose} {limit.name!r} were lowered"
        row = rows[machine.id]
        if row["state"] == "ready" and machine.jobs:
            move_machine(tx, machine.id, "ready", "draining", reason=said)
        else:
            idle = machines.c.attempts_committed == 0
            move_machine(tx, machine.id, row["state"], "returning", idle, reason=said)
        told.append(machine.id)
    return told


def _rented(row: Mapping[str, Any]) -> Rented:
    return Rented(
        id=row["id"], pool=row["pool"], account=row["account"], state=row["state"],
        jobs=row["attempts_committed"], wanted_ms=row["created_ms"],
        amounts={
            "machines": 1, "micro": row["price_micro"],
            "cpu_milli": type_of(row["type"]).cpu_milli,
        },
    )  # fmt: skip
