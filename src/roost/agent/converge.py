"""The heart of the agent, pure: one VM's order, record and local copy -> the next step.

`next_step` never looks anywhere and never remembers: each lane calls it with fresh facts after
every step, until it says that nothing is left to do. So whatever was lost, repeated or late, the
same facts give the same step.

| order | local copy | step |
|---|---|---|
| none | any | none: it is held |
| older than what was carried out | any | none |
| tombstone | nothing / any | settle / destroy |
| run | nothing, stopped, starting | start, or settle if it shall be stopped |
| run | running, paused | protect, stop, pause, resume, restart, resize, or settle |
| run | ready, or arrived | land |
| run | sending | recall |
| run, newer than the move | moved, switching | start: the move was taken back |
| incoming | nothing, moved | prepare; refuse when all was sent |
| incoming | lost | refuse; prepare when it is of an earlier move |
| incoming | ready | settle; land when all was sent |
| incoming, withdrawn | arrived | settle: it is here |
| withdrawn | ready, lost, moved | withdraw |
| outgoing | running, paused, stopped, sending, switching | send |
| outgoing | nothing, and it never was here | settle |
| returning | sending | recall |
| returning | any other | settle |
| incoming while a copy is here, outgoing when it is lost | | refuse |
| any but tombstone | unknown | refuse, until the driver can tell |

A VM with `restart: elsewhere` stops when the lease is over. To start it needs more: a list that
came after the lease was renewed, for meanwhile it may have been started elsewhere. So does one that
the newest list wants to stay here, if this host was told before that it may run elsewhere: the list
may come from an old copy of the ledger. Any other VM is started from the list that is here, but not
at once after a boot of the machine (`after_boot`): an operator may have had a host that was dead
recovered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from roost.agent.capacity import amounts_of
from roost.agent.desired import DesiredList, Order
from roost.agent.drivers.base import EXECUTING, FENCED, LocalVM
from roost.agent.store import Record
from roost.model.states import FailureClass
from roost.wire.agentlink import DesiredVM, Tombstone

Kind = Literal[
    "start",
    "stop",
    "pause",
    "resume",
    "restart",
    "resize",
    "protect",
    "destroy",
    "prepare",
    "withdraw",
    "send",
    "recall",
    "land",
    "settle",  # it is as ordered: write that down
    "refuse",  # it cannot be done as things are
    "wait",  # not before the lease is renewed
]

#: Steps after which a VM executes.
EXECUTING_STEPS: frozenset[Kind] = frozenset({"start", "resume", "restart", "land"})
#: An incoming copy executes by itself once it has arrived, so it takes a lease to prepare one.
LEASED_STEPS: frozenset[Kind] = EXECUTING_STEPS | {"prepare"}
#: Of a VM that may run elsewhere and shall stay here from now on: an old ledger may say so, while
#: a newer one has had it started elsewhere.
LOOSENING_STEPS: frozenset[Kind] = LEASED_STEPS | {"protect", "settle"}
#: Steps after which other VMs may find room.
FREEING: frozenset[Kind] = frozenset({"destroy", "withdraw", "send", "resize", "stop"})
#: Steps that may take room, which the books must grant: a restart may bring a new size.
TAKING: frozenset[Kind] = frozenset({"start", "restart", "resize", "prepare", "land"})


class Leased(IntEnum):
    """How sure the agent is that VMs which may run elsewhere are its own."""

    OVER = 0  # they may run elsewhere
    HELD = 1  # what runs may go on
    CONFIRMED = 2  # and what the list says may start


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next for one VM. A refusal says why and of which class it is."""

    kind: Kind
    code: str = ""
    message: str = ""
    failure: FailureClass = "permanent"


SETTLE = Step("settle")
#: States that end when the lease is over: an incoming copy would take over by itself.
FENCEABLE = EXECUTING - {"unknown"}
WAIT = Step("wait", "no_lease", "waits until the host's lease is renewed", "transient")
#: Uses the code no_lease, which planes of every release treat as waiting.
WAIT_FOR_LIST = Step(
    "wait",
    "no_lease",
    "waits for the first word of a control plane since the machine booted: it may run elsewhere",
    "transient",
)
WAIT_FOR_CONFIRMING = Step(
    "wait",
    "no_lease",
    "waits, since the machine booted, until the control plane is sure that its ledger is the newest"
    ": it may run elsewhere",
    "transient",
)


def carried_out(record: Record | None, local: LocalVM | None) -> int:
    """Return the newest generation that was acted upon; it never goes back."""
    return max(record.generation if record else 0, local.generation if local else 0)


def next_step(
    order: Order | None, record: Record | None, local: LocalVM | None, leased: Leased
) -> Step | None:
    """Return the next step for one VM, None when nothing is left to do."""
    if order is None or order.generation < carried_out(record, local):
        return _unleased(local, leased)
    if isinstance(order, Tombstone):
        if local is not None:
            return Step("destroy")
        return None if record and record.gone and record.generation == order.generation else SETTLE
    if record is not None and record.gone and order.generation <= record.generation:
        return None
    if local is not None and local.state == "unknown":
        return Step("refuse", "vm_unreadable", "the driver cannot tell its state", "transient")
    step = _PARTS[order.part](order, record, local)
    if step is None and (record is None or _outdated(record, order)):
        step = SETTLE
    if leased < Leased.CONFIRMED:
        waits: frozenset[Kind] = frozenset()
        if order.restart == "elsewhere":
            waits = LEASED_STEPS
        elif _told_elsewhere(record, local):
            waits = LOOSENING_STEPS
        return _unleased(local, leased, order) or (WAIT if step and step.kind in waits else step)
    return step


def needs_confirming(order: DesiredVM, record: Record | None, local: LocalVM | None) -> bool:
    """Say whether a VM is started only by a list that came since the lease was renewed."""
    return order.restart == "elsewhere" or _told_elsewhere(record, local)


def _told_elsewhere(record: Record | None, local: LocalVM | None) -> bool:
    """Say whether this host was told last that a VM may be started elsewhere."""
    if local is not None:
        return local.restart == "elsewhere"
    return record is not None and record.told_restart() == "elsewhere"


def after_boot(step: Step | None, local: LocalVM | None, *, heard: bool) -> Step | None:
    """Return the step of a VM on a machine that has booted and has no confirmed list yet.

    `heard`: a control plane has sent one, but does not know whether its ledger is the newest.
    """
    executes = local is not None and local.state in EXECUTING
    if step is None or step.kind != "start" or executes:
        return step
    return WAIT_FOR_CONFIRMING if heard else WAIT_FOR_LIST


def _unleased(local: LocalVM | None, leased: Leased, order: DesiredVM | None = None) -> Step | None:
    """Return the stop of a VM that may run elsewhere, once the lease is over."""
    if local is None or leased > Leased.OVER or local.state not in FENCEABLE:
        return None
    policies = local.restart, order.restart if order is not None else "here"
    return Step("stop", FENCED) if "elsewhere" in policies else None


def _run(order: DesiredVM, record: Record | None, local: LocalVM | None) -> Step | None:
    wanted = order.power != "stopped"
    if local is None:
        return Step("start") if wanted else None
    match local.state:
        case "ready":
            return Step("land")
        case "sending":
            return Step("recall")
        case "moved" | "switching" | "lost":
            if order.generation <= carried_out(record, local):
                return None
            if wanted:
                return Step("start")
            return None if local.state == "lost" else Step("stop")
        case "starting":
            return Step("start" if wanted else "stop")
    if local.arrived:
        return Step("land")
    if local.restart != order.restart:
        # First of all: later steps note that they have carried out this order.
        return Step("protect")
    match local.state:
        case "stopped" if wanted:
            return Step("start")
        case "running" | "paused" if not wanted:
            return Step("stop")
        case "running" | "paused" if _restart_asked(order, record, local):
            return Step("restart")
        case "running" if order.power == "paused":
            return Step("pause")
        case "paused" if order.power == "running":
            return Step("resume")
    return Step("resize") if amounts_of(local) != amounts_of(order) else None


#: What is told of an incoming copy whose process is dead.
COPY_LOST = "copy_lost"
COPY_LOST_WORDS = "the copy that waited here is dead: its process ended before it took over"


def _incoming(order: DesiredVM, record: Record | None, local: LocalVM | None) -> Step | None:
    if local is not None and local.arrived:
        return None
    if local is None or local.state in ("moved", "lost"):
        if order.sent:
            return Step("refuse", "incoming_lost", "what was sent is lost, and never ran here")
        if local is not None and local.state == "lost" and _is_of_this_move(order, local):
            # The source ended it, or will hear that nobody listens: no second copy for a move
            # that is over, though its end is not told here yet.
            return Step("refuse", COPY_LOST, COPY_LOST_WORDS)
        return Step("prepare")
    if local.state == "ready":
        return Step("land") if order.sent else None
    return Step("refuse", "copy_here", f"a copy of it is here and {local.state}")


def _is_of_this_move(order: DesiredVM, local: LocalVM) -> bool:
    return order.move is not None and 0 < order.move.begun <= local.generation


def _withdrawn(order: DesiredVM, record: Record | None, local: LocalVM | None) -> Step | None:
    if local is None or local.arrived:
        return None
    if local.state in ("ready", "lost", "moved"):
        return Step("withdraw")
    return Step("refuse", "copy_here", f"a copy of it is here and {local.state}")


def _outgoing(order: DesiredVM, record: Record | None, local: LocalVM | None) -> Step | None:
    if local is None and not (record and record.amounts):
        return None  # it never was here: nothing to send, and nothing that could execute
    if local is None or local.state in ("ready", "lost"):
        return Step("refuse", "not_here", "there is no copy of it here to send")
    if local.state == "starting":
        return Step("start")
    return None if local.state == "moved" else Step("send")


def _returning(order: DesiredVM, record: Record | None, local: LocalVM | None) -> Step | None:
    return Step("recall") if local is not None and local.state == "sending" else None


_PARTS = {
    "run": _run,
    "incoming": _incoming,
    "withdrawn": _withdrawn,
    "outgoing": _outgoing,
    "returning": _returning,
}


def _restart_asked(order: DesiredVM, record: Record | None, local: LocalVM) -> bool:
    """Return whether more restarts are asked for than were carried out.

    Nobody knows of earlier ones: then the number is adopted, and nothing is restarted.
    """
    known = [record.restarts] if record else []
    if local.restarts is not None:
        known.append(local.restarts)
    return bool(known) and order.restarts > max(known)


def _outdated(record: Record, order: DesiredVM) -> bool:
    return record.generation < order.generation or record.restarts < order.restarts


def held_ids(desired: DesiredList, local: Mapping[str, LocalVM]) -> set[str]:
    """Return the VMs that are here and on no list: kept, and reported."""
    return local.keys() - desired.ids()


def condemned(
    desired: DesiredList, records: Mapping[str, Record], local: Mapping[str, LocalVM]
) -> set[str]:
    """Return the VMs that valid tombstones would destroy here."""
    return {
        vm_id
        for vm_id in desired.tombstones.keys() & local.keys()
        if isinstance(order := desired.order(vm_id), Tombstone)
        and order.generation >= carried_out(records.get(vm_id), local[vm_id])
    }
