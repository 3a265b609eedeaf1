"""Room that becomes free on a host while somebody waits for it there is held at once.

A hold of the kind `preempt`, `plan` or `queue` names a host and the VM that waits for room there:
because others make room for it, because a plan is to move it there, or because it is the first in
line and room adds up. Whenever a claim on that host is given back, what the VM still lacks of it
becomes part of its hold in the same transaction, so nobody else ever sees it as free.

Amounts that a VM takes are in its row. Which devices, NUMA cells and extended resources it is to
have, where others make room for it, is a row of holds beside: of the kind `wanted`, in no window of
time, so that nothing is kept by it.
"""

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import bindparam, select

from roost.ledger.claims.holding import changed_holds, drop_holds, lock_hosts, settle
from roost.ledger.claims.holdsums import read_counters
from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.rows import HoldRow
from roost.ledger.schema.tables import holds, host_amounts, host_counters, vms
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.kept import Counters, counters_in_order

PREEMPT = "preempt"
#: From now on and for ever.
ALWAYS = "[[0,null]]"

QUEUE = "queue"
PLAN = "plan"
#: What is to be held of counters, beside a hold that has not all of it yet.
WANTED = "wanted"
NEVER = "[]"

#: Who is given what becomes free, in this order: room that is made comes before room that adds up.
_ORDER = (PREEMPT, PLAN, QUEUE)

_HERE = (
    select(holds.c.id, holds.c.kind)
    .where(holds.c.host == bindparam("on_host"), holds.c.kind.in_(_ORDER))
    .order_by(holds.c.id)
)
_PRIORITY = select(vms.c.id, vms.c.priority).where(vms.c.id.in_(bindparam("ids", expanding=True)))


def hold_id(vm: str, kind: str = PREEMPT) -> str:
    """Return the id, and the owner, of what is held for a VM that waits."""
    return f"{kind}:{vm}"


def _wanted_id(hold: str) -> str:
    return f"{hold}/{WANTED}"


def planned_id(plan: str, number: int, vm: str) -> str:
    """Return the id of what is held for one move of a plan; a VM may have several moves in one."""
    return f"{PLAN}:{vm}/{plan}/{number:05d}"


def planned_owner(plan: str) -> str:
    """Return the owner of all that is held for a plan's moves."""
    return f"{PLAN}:{plan}"


def waiting_vm(hold: str) -> str:
    """Return the VM that a hold of a VM that waits is for, by the hold's id."""
    return hold.partition(":")[2].partition("/")[0]


def hold_freed(tx: Tx, host: int) -> None:
    """Hold what is free on a host for those who wait for it there, in the order of `_ORDER`.

    Of one kind the most important VM comes first, and of plans the earlier move: later ones count
    on room that those before them leave.
    """
    waiting = [(row["kind"], row["id"]) for row in tx.rows(_HERE, on_host=host)]
    if len(waiting) > 1:
        ids = [waiting_vm(hold) for _, hold in waiting]
        known = {row["id"]: row["priority"] for row in tx.rows(_PRIORITY, ids=ids)}
        waiting.sort(key=lambda each: _turn(each[0], each[1], known))
    for _, hold in waiting:
        _hold_more(tx, hold, host)


def _turn(kind: str, hold: str, priorities: Mapping[str, int]) -> tuple[int, int, str]:
    vm = waiting_vm(hold)
    if kind == PLAN:
        return _ORDER.index(kind), 0, hold.partition("/")[2]
    return _ORDER.index(kind), -priorities.get(vm, 0), vm


def begin_hold(tx: Tx, vm: str, host: int, kind: str = PREEMPT, counters: Counters = ()) -> None:
    """Begin to hold room on a host for a VM: what is free now, and what becomes free.

    `counters` are the devices, NUMA cells and extended resources that it is to have there.
    """
    owner = hold_id(vm, kind)
    rows = [HoldRow(id=owner, host=host, kind=kind, owner=owner, windows=ALWAYS)]
    if counters:
        wanted = HoldRow(id=_wanted_id(owner), host=host, kind=WANTED, owner=owner, windows=NEVER)
        wanted.counters = row_json(dict(counters))
        rows.append(wanted)
    tx.insert_all(holds, [msgspec.structs.asdict(row) for row in rows])
    _say(tx, vm, *rows)
    hold_more(tx, vm, host, kind)


def hold_for_moves(
    tx: Tx, plan: str, wanted: Sequence[HoldRow], unwanted: Sequence[HoldRow]
) -> None:
    """Hold room for moves of a plan, and give back what is for moves of it no more.

    What a target has not free yet is held when it becomes so. Hosts that are gone are left out.
    """
    lock_hosts(tx, [row.host for row in (*wanted, *unwanted)])
    drop_holds(tx, unwanted)
    put = [row for row in wanted if tx.find(host_amounts, host=row.host) is not None]
    tx.insert_all(holds, [msgspec.structs.asdict(row) for row in put])
    tx.event("plan.room_held", f"plan/{plan}", {"holds": changed_holds(put, unwanted)})
    # What was given back goes to those who wait for it, these moves among them.
    for host in sorted({row.host for row in (*put, *unwanted)}):
        hold_freed(tx, host)


def hold_more(tx: Tx, vm: str, host: int, kind: str = PREEMPT) -> bool:
    """Hold for a VM what a host has free of what it lacks; say whether it lacks nothing more.

    The host's amounts are locked. A VM that is gone lacks nothing.
    """
    return _hold_more(tx, hold_id(vm, kind), host)


def _hold_more(tx: Tx, hold: str, host: int) -> bool:
    vm = waiting_vm(hold)
    amounts = tx.find(host_amounts, lock=True, host=host)
    asked, found = tx.find(vms, id=vm), tx.find(holds, id=hold)
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
    before = read_counters(have.counters)
    counters, lacks_none = _more_counters(tx, hold, host, before)
    if limits != have.limits or counters != before:
        row = tx.change(
            holds,
            {"id": have.id},
            **dict(zip(LIMITS, limits, strict=True)),
            counters=row_json(dict(counters)) if counters else None,
        )
        assert row is not None
        settle(tx, host)
        _say(tx, vm, HoldRow(**row))
    return limits == wanted and lacks_none


def _more_counters(tx: Tx, hold: str, host: int, had: Counters) -> tuple[Counters, bool]:
    """Return what a hold may have of counters by now, and whether that is all that is wanted."""
    asked = tx.find(holds, id=_wanted_id(hold))
    if asked is None:
        return had, True
    wanted, have = dict(read_counters(asked["counters"])), dict(had)
    for row in tx.find_all(host_counters, host=host):
        name = row["counter"]
        if name in wanted:
            free = row["capacity"] - row["committed"] - row["held"]
            lacks = wanted[name] - have.get(name, 0)
            have[name] = have.get(name, 0) + max(0, min(lacks, free))
    return counters_in_order(have), counters_in_order(have) == counters_in_order(wanted)


def _say(tx: Tx, vm: str, *rows: HoldRow) -> None:
    found = tx.find(vms, id=vm)
    project = None if found is None else found["project"]
    note = "room on a host is kept for it"
    held = changed_holds(rows)
    tx.event("vm.room_held", f"vm/{vm}", {"holds": held}, project=project, note=note)


def drop_hold(tx: Tx, vm: str, kind: str = PREEMPT) -> dict[str, HoldRow | None]:
    """Give back what is held for a VM; return what an event says of it."""
    return drop_hold_of(tx, hold_id(vm, kind))


def drop_hold_of(tx: Tx, hold: str) -> dict[str, HoldRow | None]:
    """Give back one hold by its id; return what an event says of it."""
    found = tx.find(holds, id=hold)
    if found is None:
        return {}
    tx.find(host_amounts, lock=True, host=found["host"])
    gone = [found["id"]]
    tx.remove(holds, id=found["id"])
    if tx.remove(holds, id=_wanted_id(hold)):
        gone.append(_wanted_id(hold))
    settle(tx, found["host"])
    return dict.fromkeys(gone)
