"""Begin and end preemptions: the row that outlives any process, and the room that is held with it.

Victims and the VM for which they leave are locked in one order and looked at again; what was
decided on a fleet that has moved on is a `Conflict`, and is decided anew. From the begin on,
whatever of the host's room is free, and all that becomes free there, is held for the VM.
"""

from collections import Counter
from typing import Any

import msgspec

from roost.base.errors import Conflict, LedgerUnsettled, NotFound
from roost.control.groups.budgets import keep_budgets
from roost.control.preempt.choosing import Plan
from roost.control.preempt.record import MOVING, STOPPING, VictimRecord, victims_of, victims_text
from roost.control.vms.lookup import relock
from roost.control.vms.refusing import refused_by
from roost.ledger.claims.capacity import CLEANUP, RUN, claims_of, counters_in
from roost.ledger.claims.holding import lock_hosts
from roost.ledger.claims.makingroom import QUEUE, begin_hold, drop_hold, hold_id
from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.rows import Changes, PreemptionRow, VMRow
from roost.ledger.schema.tables import (
    displaced,
    holds,
    host_amounts,
    host_counters,
    preemptions,
    vms,
)
from roost.ledger.upgrade.older import counters_held_may_be_unknown
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import RejectionCode
from roost.wire.bodies import RejectionBody


def begin(tx: Tx, vm: VMRow, plan: Plan) -> PreemptionRow:
    """Write down that VMs make room for another one; hold what is free on the host already."""
    locked = {each: _relock(tx, each, vm.id) for each in sorted({vm.id, *_ids(plan)})}
    now = locked[vm.id]
    if now.host is not None or now.pending is None or now.generation != vm.generation:
        raise Conflict(f"VM {vm.name!r} waits no more as it did", vm=vm.id)
    if refused_by(now) or CLEANUP in claims_of(tx, vm.id):
        # By the books there was room: what others give up would not help it either.
        raise Conflict(f"VM {vm.name!r} was refused by a host and has not run since", vm=vm.id)
    if tx.find(displaced, vm=vm.id) is not None:
        raise Conflict(f"VM {vm.name!r} was displaced itself and has not run since", vm=vm.id)
    taken = {each.vm for row in tx.find_all(preemptions) for each in _victims(row)}
    if tx.find(preemptions, vm=vm.id) is not None:
        raise Conflict(f"room is being made for VM {vm.name!r} already", vm=vm.id)
    for each in plan.leaving:
        _check(locked[each.vm.id], each.vm, now, taken)
        found = claims_of(tx, each.vm.id)
        if CLEANUP in found:
            raise Conflict(
                f"an earlier host of VM {each.vm.name!r} has not cleaned up yet", vm=each.vm.id
            )
        if found[RUN].is_special:
            raise Conflict(
                f"the room of VM {each.vm.name!r} would go back to a reservation", vm=each.vm.id
            )
    elsewhere = tx.find(holds, id=hold_id(vm.id, QUEUE))
    lock_hosts(tx, {plan.entry.number, *([elsewhere["host"]] if elsewhere else [])})
    amounts = tx.find(host_amounts, host=plan.entry.number)
    if amounts is None or amounts["generation"] != plan.generation:
        raise Conflict(f"host {plan.entry.name!r} was changed meanwhile", host=plan.entry.name)
    keep_budgets(tx, {each.vm.id: each.vm.name for each in plan.leaving})
    queued = drop_hold(tx, vm.id, QUEUE)  # it waits for room elsewhere no more
    _require_enough(tx, now, plan)
    moves = any(each.how == "move" for each in plan.leaving)
    row = PreemptionRow(
        vm=vm.id,
        project=vm.project,
        host=plan.entry.number,
        victims=victims_text(plan.records()),
        phase=MOVING if moves else STOPPING,
        begun_ms=tx.at_ms,
        priority=now.priority,
    )
    tx.insert(preemptions, msgspec.structs.asdict(row))
    waits = _say_why(tx, now, plan)
    changes: Changes = {"preemptions": {vm.id: row}, "vms": {vm.id: waits}}
    changes["holds"] = queued
    note = f"on {plan.entry.name}: {len(plan.leaving)} VMs make room"
    tx.event("vm.preempting", f"vm/{vm.id}", changes, project=vm.project, note=note)
    # Older processes do not compare what is held of counters.
    counters = () if counters_held_may_be_unknown(tx.connection) else plan.counters
    begin_hold(tx, vm.id, plan.entry.number, counters=counters)
    return row


def end(tx: Tx, row: PreemptionRow, why: str) -> None:
    """End a preemption: what was held is free again, and victims that are still there stay."""
    if not tx.remove(preemptions, vm=row.vm):
        return
    changes: Changes = {"preemptions": {row.vm: None}, "holds": drop_hold(tx, row.vm)}
    tx.event("vm.preemption_ended", f"vm/{row.vm}", changes, project=row.project, note=why)


def update(tx: Tx, row: PreemptionRow, **values: str) -> PreemptionRow | None:
    """Change a preemption's row; None when it has ended meanwhile."""
    found = tx.change(preemptions, {"vm": row.vm}, **values)
    if found is None:
        return None
    now = PreemptionRow(**found)
    tx.event("vm.preempting", f"vm/{row.vm}", {"preemptions": {row.vm: now}}, project=row.project)
    return now


def _ids(plan: Plan) -> list[str]:
    return [each.vm.id for each in plan.leaving]


def _relock(tx: Tx, vm_id: str, waits: str) -> VMRow:
    """Lock a VM of a plan; a victim that is gone, or in doubt, makes the plan an old one."""
    try:
        return relock(tx, vm_id)
    except (NotFound, LedgerUnsettled) as error:
        if vm_id == waits:
            raise
        state = "gone" if isinstance(error, NotFound) else "in doubt after a restore"
        raise Conflict(f"a VM that was to make room is {state}", vm=waits) from error


def _victims(row: dict[str, Any]) -> list[VictimRecord]:
    return victims_of(PreemptionRow(**row))


def _check(now: VMRow, seen: VMRow, waits: VMRow, taken: set[str]) -> None:
    """Refuse a victim that is not what it was when it was chosen."""
    if now.id in taken:
        raise Conflict(f"VM {now.name!r} makes room for another one already", vm=now.id)
    if now.generation != seen.generation or now.host != seen.host or now.phase:
        raise Conflict(f"VM {now.name!r} was changed meanwhile", vm=now.id)
    if now.priority >= waits.priority:
        raise Conflict(f"VM {now.name!r} is as important as {waits.name!r}", vm=now.id)


def _require_enough(tx: Tx, vm: VMRow, plan: Plan) -> None:
    """Refuse a plan whose victims would leave in vain: others took the room it counted on.

    The host's amounts are locked. Who makes room for somebody else there gives back to them.
    """
    amounts = tx.find(host_amounts, host=plan.entry.number)
    assert amounts is not None
    wanted = (*vm.amounts, 1)
    back = zip(
        *((*claims_of(tx, each.vm.id)[RUN].amounts, 1) for each in plan.leaving), strict=True
    )
    enough = all(
        not want
        or amounts[f"{n}_committed"] + amounts[f"{n}_held"] + want
        <= amounts[f"{n}_capacity"] + given
        for n, want, given in zip(LIMITS, wanted, map(sum, back), strict=True)
    )
    if not enough or not _has_counters(tx, plan):
        raise Conflict(
            f"the room on {plan.entry.name!r} that VM {vm.name!r} was to have is not there any "
            "more",
            vm=vm.id,
            host=plan.entry.name,
        )


def _has_counters(tx: Tx, plan: Plan) -> bool:
    """Say whether a host will have the devices, cells and extended resources of a plan."""
    if not plan.counters:
        return True
    back: Counter[str] = Counter()
    for each in plan.leaving:
        back.update(counters_in(claims_of(tx, each.vm.id)[RUN]))
    there = {row["counter"]: row for row in tx.find_all(host_counters, host=plan.entry.number)}
    return all(
        (row := there.get(name)) is not None
        and row["committed"] + row["held"] + want <= row["capacity"] + back[name]
        for name, want in plan.counters
    )


def require_size(tx: Tx, vm: VMRow, host: int) -> None:
    """Refuse to go on on a host that was made too small, or whose amounts are not known any more.

    Victims would be stopped in vain.
    """
    amounts = tx.find(host_amounts, host=host)
    wanted = dict(zip(LIMITS, (*vm.amounts, 1), strict=True))
    if amounts is None or any(want > amounts[f"{n}_capacity"] for n, want in wanted.items()):
        raise Conflict(f"the host has become too small for VM {vm.name!r}", vm=vm.id)


def _say_why(tx: Tx, vm: VMRow, plan: Plan) -> VMRow:
    """Let a VM that waits say that room is being made for it, by whom and where.

    Its project reads this: VMs of other projects are counted, not named.
    """
    own = [each for each in plan.leaving if each.vm.project == vm.project]
    told = [f"{each.vm.name} ({each.how})" for each in own[:5]]
    if len(own) > 5:
        told.append(f"{len(own) - 5} more")
    if others := len(plan.leaving) - len(own):
        told.append("a VM of another project" if others == 1 else f"{others} VMs of other projects")
    who = " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
    body = RejectionBody(
        vm=vm.name,
        code=RejectionCode.INSUFFICIENT_RESOURCES,
        message=f"room is being made for {vm.name!r} on {plan.entry.name}: {who}",
        strategy=vm.strategy,
        hosts=1,
    )
    row = tx.change(vms, {"id": vm.id}, pending=row_json(body))
    assert row is not None
    return VMRow(**row)
