"""Machines as rows: rented within limits, moved from state to state, and ended once.

A machine counts against its pool and its account from the moment that it is wanted until its
provider says that it is gone. The limits are compared in the statement that adds to the sums, so
two writers cannot pass them together; what a machine added is taken away in the transaction that
ends it. A state changes only along `MACHINE_TRANSITIONS`, and only from the state that was seen.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from roost.base.errors import InvariantBroken
from roost.jobs.deciding.experience import (
    LAST,
    REMEMBERED_MS,
    Experience,
    Spoken,
    amounts_of,
    newest,
)
from roost.jobs.rows import stored, type_of
from roost.ledger.schema.jobtables import RENTED, accounts, machine_secrets, machines, pools
from roost.ledger.writes.transaction import Tx
from roost.model.job import MACHINE_TRANSITIONS, MachineState, MachineType, Market
from roost.parts.access import revoke_tokens

#: Attempts that one machine may have at once, assigned ones included.
MOST_AT_ONCE = 1024
_M = machines.c


@dataclass(frozen=True, slots=True)
class Wanted:
    """A machine that a pool wants."""

    pool: str
    account: str
    type: MachineType
    market: Market
    region: str = ""


def _limited(table: Table) -> ColumnElement[bool]:
    found: list[ColumnElement[bool]] = []
    for name in RENTED:
        most = table.c[f"max_{name}"]
        within = table.c[f"{name}_used"] + bindparam(f"more_{name}") <= most
        found.append(or_(most.is_(None), within))
    return found[0] & found[1] & found[2]


def _charge(table: Table) -> Any:
    values = {f"{n}_used": table.c[f"{n}_used"] + bindparam(f"more_{n}") for n in RENTED}
    return update(table).where(table.c.name == bindparam("who"), _limited(table)).values(values)


def _release(table: Table) -> Any:
    values = {f"{n}_used": table.c[f"{n}_used"] - bindparam(f"more_{n}") for n in RENTED}
    return update(table).where(table.c.name == bindparam("who")).values(values)


_CHARGE = {"pool": _charge(pools), "account": _charge(accounts)}
_RELEASE = {"pool": _release(pools), "account": _release(accounts)}


def want_machine(tx: Tx, new_id: str, wanted: Wanted) -> str | None:
    """Insert a machine that is to be rented; return whose limit forbids it, or None."""
    price = wanted.type.price(wanted.market)
    more = {
        "more_machines": 1,
        "more_cpu_milli": wanted.type.cpu_milli,
        "more_micro": price,
    }
    if tx.connection.execute(_CHARGE["pool"], {"who": wanted.pool, **more}).rowcount != 1:
        return "pool"
    if wanted.account:
        charged = tx.connection.execute(_CHARGE["account"], {"who": wanted.account, **more})
        if charged.rowcount != 1:
            tx.connection.execute(_RELEASE["pool"], {"who": wanted.pool, **more})
            return "account"
    kind = wanted.type
    tx.insert(
        machines,
        {
            "id": new_id,
            "pool": wanted.pool,
            "account": wanted.account,
            "type": stored(kind),
            "market": wanted.market,
            "region": wanted.region,
            "state": "pending",
            "cloud_id": None,
            "price_micro": price,
            "cpu_milli_capacity": kind.cpu_milli,
            "memory_bytes_capacity": kind.memory_bytes,
            "disk_bytes_capacity": kind.disk_bytes,
            "attempts_capacity": MOST_AT_ONCE,
            "cpu_milli_committed": 0,
            "memory_bytes_committed": 0,
            "disk_bytes_committed": 0,
            "attempts_committed": 0,
            "launches": 0,
            "not_before_ms": 0,
            "heard": 0,
            "instance": "",
            "sequence": 0,
            "reason": "",
            "created_ms": tx.at_ms,
            "state_ms": tx.at_ms,
            "idle_ms": None,
            "rented_ms": None,
            "ended_ms": None,
            "claimed_by": "",
            "containers": "",
        },
    )
    return None


def move_machine(
    tx: Tx,
    machine: str,
    before: MachineState,
    to: MachineState,
    *conditions: ColumnElement[bool],
    **values: Any,
) -> dict[str, Any] | None:
    """Bring a machine from a state to another; None when it was no longer there."""
    if to not in MACHINE_TRANSITIONS[before]:
        raise InvariantBroken(f"no machine goes from {before} to {to}", machine=machine)
    ends = to in ("returned", "failed")
    if ends:
        values |= {"ended_ms": tx.at_ms, "claimed_by": ""}
    row = tx.update(
        machines,
        _M.id == machine,
        _M.state == before,
        *conditions,
        state=to,
        state_ms=tx.at_ms,
        **values,
    )
    if row is not None:
        if ends:
            _ended(tx, row)
        note = f"{before} -> {to}" + (f": {row['reason']}" if row["reason"] else "")
        tx.event("machine.changed", f"machine/{machine}", {}, note=note)
    return row


def _ended(tx: Tx, row: dict[str, Any]) -> None:
    """Take an ended machine out of every sum, and its tokens with it."""
    more = {
        "more_machines": 1,
        "more_cpu_milli": type_of(row["type"]).cpu_milli,  # its worker may have found less
        "more_micro": row["price_micro"],
    }
    tx.connection.execute(_RELEASE["pool"], {"who": row["pool"], **more})
    if row["account"]:
        tx.connection.execute(_RELEASE["account"], {"who": row["account"], **more})
    if row["rented_ms"] is not None:
        lived = max(0, tx.at_ms - row["rented_ms"])
        spent = {
            "spent_micro": pools.c.spent_micro + rent_micro(row["price_micro"], lived),
            "machine_ms": pools.c.machine_ms + lived,
        }
        tx.connection.execute(update(pools).where(pools.c.name == row["pool"]).values(spent))
    tx.remove(machine_secrets, machine=row["id"])
    revoke_tokens(tx, row["id"], ("worker", "worker_join"))


def rent_micro(price_micro: int, lived_ms: int) -> int:
    """Return what a machine has cost for so long."""
    return price_micro * lived_ms // 3_600_000


def live_machines(pool: str | None = None) -> Any:
    """Return the query for machines that are rented or on their way."""
    query = select(machines).where(_M.ended_ms.is_(None)).order_by(_M.id)
    return query if pool is None else query.where(_M.pool == pool)


#: Why a machine was given back that came and was never heard of.
SILENT_FROM_THE_START = "its worker never spoke"

_BY_AGE = (
    func.row_number()
    .over(partition_by=(_M.pool, _M.type), order_by=(_M.created_ms.desc(), _M.id.desc()))
    .label("place")
)
_TOLD = (
    _M.pool, _M.type, _M.created_ms, _M.id,
    _M.cpu_milli_capacity, _M.memory_bytes_capacity, _M.disk_bytes_capacity,
)  # fmt: skip
_SPOKEN = select(*_TOLD).add_columns(_BY_AGE).where(_M.heard > 0)


def read_experience(
    connection: Connection, now_ms: int, pool: str | None = None
) -> dict[str, Experience]:
    """Return what the last machines of every pool, or of one, came with, by type.

    Those that are there count however old they are, but a type of which none was wanted lately is
    not known: what an old machine has left of its disk is no reason to rent no other.
    """
    since = now_ms - REMEMBERED_MS
    found: dict[str, dict[str, list[Spoken]]] = defaultdict(lambda: defaultdict(list))
    for which in (_M.ended_ms.is_(None), _M.ended_ms > since):
        query = _SPOKEN.where(which)
        if pool is not None:
            query = query.where(_M.pool == pool)
        spoken = query.subquery()
        last = select(spoken).where(spoken.c.place <= LAST)
        for of, kind, wanted_ms, machine, *has, _ in connection.execute(last):
            type_ = type_of(kind)
            cpu, memory, disk = map(int, has)
            told = Spoken(int(wanted_ms), str(machine), amounts_of(type_), (cpu, memory, disk))
            found[str(of)][type_.name].append(told)
    last_ones = {
        of: {name: newest(spoken) for name, spoken in types.items()} for of, types in found.items()
    }
    return {
        of: {name: spoken for name, spoken in types.items() if spoken[0].wanted_ms > since}
        for of, types in last_ones.items()
    }


def idle_since(row: dict[str, Any]) -> int | None:
    """Return since when a machine that could work has nothing to do."""
    found: int | None = row["idle_ms"] if row["attempts_committed"] == 0 else None
    return found


COUNT_LIVE = (
    select(_M.pool, _M.state, func.count()).where(_M.ended_ms.is_(None)).group_by(_M.pool, _M.state)
)
