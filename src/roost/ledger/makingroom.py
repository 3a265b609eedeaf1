"""Room that becomes free on a host while somebody waits for it there is held at once.

A hold of the kind `preempt` or `queue` names a host and the VM that waits for room there: because
others make room for it, or because it is the first in line and room adds up. Whenever a claim on
that host is given back, what the VM still lacks of it becomes part of its hold in the same
transaction, so nobody else ever sees it as free.
"""

import msgspec
from sqlalchemy import bindparam, select

from roost.ledger.amounts import LIMITS
from roost.ledger.holding import settle
from roost.ledger.rows import HoldRow
from roost.ledger.tables import holds, host_amounts, vms
from roost.ledger.transaction import Tx

PREEMPT = "preempt"
#: From now on and for ever.
ALWAYS = "[[0,null]]"

QUEUE = "queue"

_HERE = (
    select(holds.c.kind, holds.c.owner)
    .where(holds.c.host == bindparam("on_host"), holds.c.kind.in_((PREEMPT, QUEUE)))
    .order_by(holds.c.id)
)
_PRIORITY = select(vms.c.id, vms.c.priority).where(vms.c.id.in_(bindparam("ids", expanding=True)))


def hold_id(vm: str, kind: str = PREEMPT) -> str:
    """Return the id, and the owner, of what is held for a VM that waits."""
    return f"{kind}:{vm}"


def hold_freed(tx: Tx, host: int) -> None:
    """Hold what is free on a host for those who wait for it there, the most important first.

    Room that is made comes before room that adds up.
    """
    waiting = [
        (row["kind"], row["owner"].partition(":")[2]) for row in tx.rows(_HERE, on_host=host)
    ]
    if len(waiting) > 1:
        known = {
            row["id"]: row["priority"] for row in tx.rows(_PRIORITY, ids=[v for _, v in waiting])
        }
        waiting.sort(key=lambda each: (each[0] != PREEMPT, -known.get(each[1], 0), each[1]))
    for kind, vm in waiting:
        hold_more(tx, vm, host, kind)


def begin_hold(tx: Tx, vm: str, host: int, kind: str = PREEMPT) -> None:
    """Begin to hold room on a host for a VM: what is free now, and what becomes free."""
    row = HoldRow(
        id=hold_id(vm, kind), host=host, kind=kind, owner=hold_id(vm, kind), windows=ALWAYS
    )
    tx.insert(holds, msgspec.structs.asdict(row))
    _say(tx, vm, row)
    hold_more(tx, vm, host, kind)


def hold_more(tx: Tx, vm: str, host: int, kind: str = PREEMPT) -> bool:
    """Hold for a VM what a host has free of what it lacks; say whether it lacks nothing more.

    The host's amounts are locked. A VM that is gone lacks nothing.
    """
    amounts = tx.find(host_amounts, lock=True, host=host)
    asked, found = tx.find(vms, id=vm), tx.find(holds, id=hold_id(vm, kind))
    if asked is None or amounts is None or found is None:
        return False
    wanted = (*(asked[name] for name in LIMITS[:-1]), 1)
    have = HoldRow(**found)
    free = (
        amounts[f"{n}_capacity"] - amounts[f"{n}_committed"] - amounts[f"{n}_held"] for n in LIMITS
    )
    limits = tuple(
        had + max(0, min(want - had, left))
        for want, had, left in zip(wanted, have.limits, free, strict=True)
    )
    if limits != have.limits:
        row = tx.change(holds, {"id": have.id}, **dict(zip(LIMITS, limits, strict=True)))
        assert row is not None
        settle(tx, host)
        _say(tx, vm, HoldRow(**row))
    return limits == wanted


def _say(tx: Tx, vm: str, row: HoldRow) -> None:
    found = tx.find(vms, id=vm)
    project = None if found is None else found["project"]
    note = "room on a host is kept for it"
    tx.event("vm.room_held", f"vm/{vm}", {"holds": {row.id: row}}, project=project, note=note)


def drop_hold(tx: Tx, vm: str, kind: str = PREEMPT) -> dict[str, HoldRow | None]:
    """Give back what is held for a VM; return what an event says of it."""
    found = tx.find(holds, id=hold_id(vm, kind))
    if found is None:
        return {}
    tx.find(host_amounts, lock=True, host=found["host"])
    tx.remove(holds, id=found["id"])
    settle(tx, found["host"])
    return {found["id"]: None}
