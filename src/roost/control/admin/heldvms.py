"""VMs that a host holds and no list names: created after a backup that was restored, or by hand.

Such a VM is held, never destroyed by itself. Somebody who knows says what shall become of it:
destroyed like any deleted VM, with a tombstone, and the agent's guard has its say as always; or
adopted, and then it is the ledger's VM like any other: claimed where it is, by the statement that
every create is claimed by, within its project's quota. What it is to be stands in the order that
its host has carried out last. Its labels make it a member of the groups of label rules, whether or
not those hold where it is: it is there. Groups by name, constraints and priority are not told to
hosts, so an adopted VM has none.

A copy of a VM that the ledger has on another host is destroyed only when that host has said that
it has the VM as ordered, and the copy is no newer: whichever is the only one is never destroyed.
"""

from typing import Any

import msgspec
from sqlalchemy import select

from roost.base.errors import Conflict, LedgerUnsettled, NotFound
from roost.control.groups.defining import lock_rules
from roost.control.hosts.registering import locked_host
from roost.control.memory.held_copies import StoredHeld, read_held
from roost.control.vms.deletion import has_it_at_home, order_destruction
from roost.control.vms.restart_policy import ASKED
from roost.ledger.claims.capacity import RUN, charge, charge_project, counters_in, room_of
from roost.ledger.schema.rows import Changes, ClaimRow, HostRow, SpecRow, VMRow, labels_text
from roost.ledger.schema.tables import (
    doubts,
    groups,
    host_counters,
    hosts,
    members,
    projects,
    roll_call,
    tombstones,
    vm_specs,
    vms,
)
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.transaction import Tx
from roost.model.flow import Claim, Fix, FixKind, NearestMiss, Rejection, RejectionCode, Shortage
from roost.model.resources import BASE_RESOURCES
from roost.model.states import Desired, Seen
from roost.parts.quotas import quota_exceeded
from roost.wire.agentlimits import MOST_GENERATION
from roost.wire.agentlink import DesiredVM
from roost.wire.answers import no_fit
from roost.wire.bodies import CreateVM
from roost.wire.specs import spec_of

#: Silent hosts that a refusal names.
_MOST_TOLD = 20
#: What is wanted of a VM that is found so. Others are halves of a move, or nobody can tell.
_WANTED: dict[Seen, Desired] = {
    "starting": "running",
    "running": "running",
    "paused": "paused",
    "stopping": "stopped",
    "stopped": "stopped",
}


def destroy_held(tx: Tx, name: str, vm_id: str) -> None:
    """Order a host to destroy a VM that it holds and the ledger does not have there."""
    host, held = _held(tx, name, vm_id)
    known = tx.row(select(vms).where(vms.c.id == vm_id).with_for_update())
    if known is not None:
        _destroy_copy(tx, host, held, VMRow(**known))
        return
    generation = min(held.generation + 1, MOST_GENERATION)
    row = tx.change(tombstones, {"vm": vm_id, "host": host.number}, generation=generation)
    if row is None:
        row = tx.insert(
            tombstones,
            {
                "vm": vm_id,
                "host": host.number,
                "generation": generation,
                "project": "default",
                "created_ms": tx.at_ms,
            },
        )
    changes = {"tombstones": {f"{vm_id}|{host.number}": row}}
    tx.event("vm.destroy_asked", f"vm/{vm_id}", changes, note=f"held by host {name}")


def _destroy_copy(tx: Tx, host: HostRow, held: StoredHeld, vm: VMRow) -> None:
    """Order a host to destroy its copy of a VM that the ledger has elsewhere, as after a move."""
    _require_answers(tx, vm.id)
    if host.number in (vm.host, vm.target) or not has_it_at_home(vm):
        raise Conflict(
            f"VM {vm.id!r} is in the ledger, and its own host has not said that it has it as "
            f"ordered: the copy on host {host.name!r} may be the only one",
            vm=vm.id,
            hint=f"Maybe wait until it has; roost vm show {vm.id} tells.",
        )
    if held.generation > vm.generation:
        raise Conflict(
            f"host {host.name!r} has VM {vm.id!r} of generation {held.generation}, newer than the "
            f"ledger's {vm.generation}",
            vm=vm.id,
        )
    changes: Changes = {}
    order_destruction(tx, vm, host.number, changes)
    tx.event(
        "vm.destroy_asked", f"vm/{vm.id}", changes, project=vm.project,
        note=f"a copy held by host {host.name}",
    )  # fmt: skip


def adopt_held(tx: Tx, name: str, vm_id: str, strategy: str) -> VMRow:
    """Make a VM that a host holds the ledger's, on that host; once more changes nothing."""
    known = tx.find(vms, id=vm_id)
    if known is not None and known["host"] == locked_host(tx, name).number:
        return VMRow(**known)
    host, held = _held(tx, name, vm_id)
    if known is not None:
        raise Conflict(f"VM {vm_id!r} is in the ledger, on another host or none", vm=vm_id)
    _require_answers(tx, vm_id)
    if tx.find(tombstones, vm=vm_id, host=host.number) is not None:
        raise Conflict(f"VM {vm_id!r} is being destroyed on host {name!r}", vm=vm_id)
    if (other := _other_holder(tx, host, vm_id)) is not None:
        raise Conflict(
            f"host {other!r} holds VM {vm_id!r}, too",
            vm=vm_id,
            hint=f"Maybe roost host destroy-held {other} {vm_id}, or the one on {name}.",
        )
    order = _last_order(name, held)
    desired = _WANTED.get(held.seen)
    if desired is None:
        raise Conflict(f"VM {vm_id!r} is {held.seen} on host {name!r}", vm=vm_id)
    if order.devices or order.cells:
        raise Conflict(
            f"VM {vm_id!r} has devices or NUMA cells, which cannot be claimed afterwards", vm=vm_id
        )
    body = _body(vm_id, order)
    if body.restart == "elsewhere" and release_before_may_be_here(tx.connection):
        raise Conflict(
            "a VM that restarts elsewhere cannot be adopted while older processes may run beside",
            vm=vm_id,
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )
    new = spec_of(body)
    demand = new.spec.demand
    vm = VMRow(
        id=vm_id, project=body.project, name=body.name,
        labels=labels_text(body.labels) if body.labels else "",
        cpu_milli=demand.cpu_milli, memory_bytes=demand.memory_bytes, disk_bytes=demand.disk_bytes,
        strategy=strategy, priority=0, on_no_fit="fail",
        restart="here" if body.restart == "here" else ASKED,
        desired=desired, generation=min(held.generation + 1, MOST_GENERATION),
        restarts=order.restarts, host=host.number, created_ms=tx.at_ms,
    )  # fmt: skip
    counters = tuple((f"x:{resource}", amount) for resource, amount in demand.extended if amount)
    claim = ClaimRow.of(
        Claim(vm=vm_id, host=host.number, kind=RUN, **vm.amounts._asdict(), counters=counters)
    )
    free = _free(tx, claim)  # before a part of it is taken
    if not charge(tx, claim, None):
        raise no_fit(_no_room(vm, claim, name, free))
    _charge_project(tx, vm)
    tx.insert(vms, msgspec.structs.asdict(vm))
    tx.insert(vm_specs, {"vm": vm_id, "version": 1, "spec": new.text})
    changes: dict[str, Any] = {
        "vms": {vm_id: vm},
        "vm_specs": {f"{vm_id}|1": SpecRow(new.text)},
        "claims": {claim.id: claim},
    }
    _join_label_groups(tx, vm, body.labels, changes)
    tx.event(
        "vm.adopted", f"vm/{vm_id}", changes, project=vm.project, note=f"it was held by host {name}"
    )
    return vm


def _held(tx: Tx, name: str, vm_id: str) -> tuple[HostRow, StoredHeld]:
    """Return a host and a VM that it holds beside its list, of which nothing is in doubt."""
    host = locked_host(tx, name)
    held = next((each for each in read_held(host) if each.id == vm_id), None)
    if held is None:
        raise NotFound(
            f"host {name!r} holds no VM {vm_id!r}",
            host=name,
            hint=f"Maybe roost host show {name} lists what it holds.",
        )
    if tx.find(doubts, vm=vm_id) is not None:
        raise Conflict(f"it is not known yet where VM {vm_id!r} should be", vm=vm_id)
    return host, held


def _require_answers(tx: Tx, vm_id: str) -> None:
    """Refuse while hosts have not answered what they have: one may run a newer copy of the VM."""
    silent = (
        select(hosts.c.name)
        .join(roll_call, roll_call.c.host == hosts.c.number)
        .where(~roll_call.c.answered)
        .order_by(hosts.c.name)
    )
    if names := [row["name"] for row in tx.rows(silent)]:
        raise LedgerUnsettled(
            "an old database was restored, and hosts have not answered which VMs they have: "
            + ", ".join(names[:_MOST_TOLD]),
            vm=vm_id,
            hint="Maybe wait until they are back; roost doctor says which.",
        )


def _other_holder(tx: Tx, host: HostRow, vm_id: str) -> str | None:
    query = select(hosts).where(hosts.c.held.contains(vm_id, autoescape=True))
    for row in tx.rows(query.where(hosts.c.number != host.number)):
        other = HostRow(**row)
        if any(each.id == vm_id for each in read_held(other)):
            return other.name
    return None


def _last_order(name: str, held: StoredHeld) -> DesiredVM:
    """Return the order that a host has carried out for a VM that it holds."""
    try:
        order = msgspec.json.decode(held.order, type=DesiredVM) if held.order else None
    except msgspec.MsgspecError:
        order = None
    if order is None or order.id != held.id:
        raise Conflict(
            f"host {name!r} does not say what VM {held.id!r} was ordered to be",
            vm=held.id,
            hint="Maybe its agent is of an earlier release, or it holds too many VMs.",
        )
    return order


def _body(vm_id: str, order: DesiredVM) -> CreateVM:
    """Return the create that an order would have come from; what a user may not ask for is refused.

    An agent may say anything: names, amounts and images are taken as from a user.
    """
    boot = order.boot
    body: dict[str, Any] = {
        "name": order.name,
        "project": order.project,
        "demand": {
            "cpu": f"{order.cpu_milli}m",
            "memory": order.memory_bytes,
            "disk": order.disk_bytes,
            "extended": order.extended,
        },
        "labels": order.labels,
        "restart": order.restart,
        "boot": None if boot is None else msgspec.to_builtins(boot),
        "nics": [msgspec.to_builtins(nic) for nic in order.nics],
    }
    try:
        return msgspec.convert(body, CreateVM)
    except msgspec.ValidationError as error:
        raise Conflict(f"the last order of VM {vm_id!r} is unusable: {error}", vm=vm_id) from error


def _charge_project(tx: Tx, vm: VMRow) -> None:
    """Charge a VM to its project; whoever does so next waits, so that its name stays free."""
    if tx.find(projects, name=vm.project) is None:
        raise NotFound(
            f"no project {vm.project!r}",
            project=vm.project,
            hint=f"Maybe roost project create {vm.project}.",
        )
    if limits := charge_project(tx, vm.project, vm.amounts, 1):
        raise quota_exceeded(vm.project, f"to adopt {vm.name!r}", limits)
    if tx.find(vms, project=vm.project, name=vm.name) is not None:
        raise Conflict(
            f"project {vm.project!r} has another VM {vm.name!r}",
            vm=vm.id,
            hint="Maybe delete one of them.",
        )


def _join_label_groups(tx: Tx, vm: VMRow, labels: dict[str, str], changes: dict[str, Any]) -> None:
    """Make a VM a member of the groups whose label rules select it; none is made meanwhile."""
    if not labels:
        return
    lock_rules(tx)
    implicit = select(groups).where(groups.c.project == vm.project, groups.c.selector != "")
    for row in tx.rows(implicit.order_by(groups.c.id).with_for_update()):
        selector: dict[str, str] = msgspec.json.decode(row["selector"])
        if selector.items() <= labels.items():
            tx.insert(members, {"group_id": row["id"], "vm": vm.id})
            changes.setdefault("members", {})[f"{row['id']}|{vm.id}"] = {}
    advance_groups(tx, vm.id, changes)


def _free(tx: Tx, claim: ClaimRow) -> dict[str, int]:
    """Return what a host has free of each resource that a claim needs, by its counter's name."""
    room = room_of(tx, claim).minus(claim.amounts)
    free = dict(zip(BASE_RESOURCES, room, strict=True))
    for counter in counters_in(claim):
        row = tx.find(host_counters, host=claim.host, counter=counter)
        free[counter] = 0 if row is None else row["capacity"] - row["committed"]
    return free


def _no_room(vm: VMRow, claim: ClaimRow, name: str, free: dict[str, int]) -> Rejection:
    """Return why a host has no room for a VM that it holds: what it has promised to others."""
    needs = dict(zip(BASE_RESOURCES, claim.amounts, strict=True)) | counters_in(claim)
    lacking = tuple(
        Shortage(resource.removeprefix("x:"), need, max(0, free[resource]))
        for resource, need in needs.items()
        if need > free[resource]
    )
    return Rejection(
        vm.name,
        RejectionCode.INSUFFICIENT_RESOURCES,
        f"host {name!r} holds {vm.name!r}, and has promised its room to others",
        vm.strategy,
        hosts=1,
        nearest_miss=NearestMiss(name, lacking, hosts=1),
        fixes=(Fix(FixKind.FREE, name, shortages=lacking),),
    )
