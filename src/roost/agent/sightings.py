"""What an agent says of one VM: pure, from the order, the record, the copy and the lane's state.

`generation` is the newest that was carried out. While a step is under way, or after a VM failed, it
is the order's, so that an old error never speaks about a new order. A VM that still runs although
something else failed is `running` at what was carried out, with the failure beside it. So is one
that has arrived by a move and is landed: it never stopped. `restart` is what is in force here, not
what is ordered: the ledger takes it for a promise that the VM stops when the lease ends.
"""

import msgspec

from roost.agent.converge import COPY_LOST, COPY_LOST_WORDS, Step, carried_out
from roost.agent.desired import Order
from roost.agent.drivers.base import CRASHED, LocalState, LocalVM
from roost.agent.store import Record
from roost.hostkit.lanes import Failure
from roost.model.states import Seen
from roost.wire.agentlimits import MOST_ORDER, clipped
from roost.wire.agentlink import (
    CopyInfo,
    CopyState,
    DesiredVM,
    HeldVM,
    ProgressInfo,
    SeenVM,
    Tombstone,
)

_SEEN: dict[LocalState, Seen] = {
    "starting": "starting",
    "running": "running",
    "paused": "paused",
    "stopped": "stopped",
    "ready": "ready",
    "lost": "failed",
    "sending": "running",
    "switching": "switching",
    "moved": "moved",
    "unknown": "failed",
}

_UNDER_WAY: dict[str, Seen] = {
    "start": "starting",
    "restart": "starting",
    "land": "starting",
    "stop": "stopping",
    "destroy": "stopping",
}


def sighting(
    vm_id: str,
    order: Order | None,
    record: Record | None,
    local: LocalVM | None,
    doing: Step | None,
    failure: Failure | None,
    progress: ProgressInfo | None = None,
) -> SeenVM | None:
    """Return what is seen of one VM, None when there is nothing to say of it yet."""
    done = carried_out(record, local)
    restarts = max(record.restarts if record else 0, (local.restarts if local else 0) or 0)
    lands = doing is not None and doing.kind == "land" and local is not None and local.arrived
    if order is not None and doing is not None and doing.kind in _UNDER_WAY and not lands:
        under_way = _UNDER_WAY[doing.kind]
        if doing.kind == "start" and local is not None and local.reason == CRASHED:
            # It is started again at once: who would only see that never learns why.
            why = clipped(local.note) or "its process has ended, and nobody asked for that"
            return SeenVM(vm_id, order.generation, under_way, CRASHED, why, restarts=restarts)
        return SeenVM(vm_id, order.generation, under_way, restarts=restarts)
    seen = _state(order, record, local)
    if failure is not None and order is not None and failure.generation == order.generation:
        if failure.code == "no_lease":
            return SeenVM(vm_id, done, seen or "stopped", failure.code, clipped(failure.message))
        told = failure.code, clipped(failure.message), failure.failure, restarts
        if isinstance(order, DesiredVM) and order.part == "outgoing" and seen is not None:
            # It was tried, and what is here is the answer: the VM stays, or nobody can tell.
            return SeenVM(vm_id, order.generation, seen, *told)
        if seen in ("running", "paused", "arrived"):
            return SeenVM(vm_id, done, seen, *told, restart=local.restart if local else None)
        return SeenVM(vm_id, order.generation, "failed", *told)
    if seen is None:
        return None
    if local is not None and local.state == "unknown":
        message = "the driver cannot tell its state"
        return SeenVM(vm_id, done, "failed", "vm_unreadable", message, "transient", restarts)
    if local is None:
        return SeenVM(vm_id, done, seen, restarts=restarts)
    if local.state == "lost":
        return SeenVM(vm_id, done, seen, COPY_LOST, COPY_LOST_WORDS, restarts=restarts)
    code = "next_boot" if local.note else ""
    if local.state == "stopped":  # which is not always what is told: it may have arrived, and lie
        code = local.reason or ("stopped" if seen == "arrived" else "")
    endpoint = local.endpoint if seen == "ready" else {}
    if local.state not in ("sending", "moved", "running", "paused"):
        progress = None
    return SeenVM(
        vm_id, done, seen, code, clipped(local.note),
        restarts=restarts, endpoint=endpoint, progress=progress, restart=local.restart,
    )  # fmt: skip


def held(vm: LocalVM, record: Record | None) -> HeldVM:
    """Return what is said of a VM that is here and on no list."""
    order = record.order if record is not None else ""
    return HeldVM(
        vm.id,
        vm.name,
        _SEEN[vm.state],
        generation=carried_out(record, vm),
        order=order,
        lost=vm.state == "lost",
    )


def order_text(order: DesiredVM) -> str:
    """Write an order that was carried out, as a held VM is told of; empty when it is too long.

    Without cloud-init user data, which may hold secrets and acts at a first boot only, and without
    what belonged to a move.
    """
    boot = order.boot and msgspec.structs.replace(order.boot, user_data="")
    kept = msgspec.structs.replace(
        order, boot=boot, part="run", peer="", move=None, endpoint={}, sent=False
    )
    text = msgspec.json.encode(kept).decode()
    return text if len(text) <= MOST_ORDER else ""


_IS: dict[LocalState, CopyState] = {
    "starting": "running",
    "running": "running",
    "paused": "running",
    "stopped": "stopped",
    "ready": "ready",
    "lost": "lost",
    "sending": "leaving",
    "switching": "leaving",
    "moved": "moved",
    "unknown": "unclear",
}


def copy_info(
    vm_id: str, record: Record | None, local: LocalVM | None, doing: Step | None
) -> CopyInfo:
    """Return what a roll call is told of one VM; what a step is changing is unclear."""
    generation = carried_out(record, local)
    if doing is not None:
        return CopyInfo(vm_id, generation, "unclear")
    if local is not None:
        return CopyInfo(vm_id, generation, _IS[local.state], local.restart)
    if record is None or record.gone:
        return CopyInfo(vm_id, generation, "gone" if record else "stopped")
    return CopyInfo(vm_id, generation, "stopped", record.told_restart())


def _state(order: Order | None, record: Record | None, local: LocalVM | None) -> Seen | None:
    if local is not None:
        moving = isinstance(order, DesiredVM) and order.part in ("incoming", "withdrawn")
        return "arrived" if local.arrived and moving else _SEEN[local.state]
    if record is None:
        return None
    if isinstance(order, DesiredVM) and order.part == "withdrawn":
        return "absent" if record.generation >= order.generation else None
    if record.gone:
        return "absent" if isinstance(order, Tombstone) else None
    if isinstance(order, DesiredVM) and order.part == "outgoing":
        return "moved" if record.generation >= order.generation else None
    return "stopped"
