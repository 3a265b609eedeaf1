"""Resize: new amounts are claimed before the agent hears of them, old ones given back after.

A VM that grows takes the difference at once, on its own host, by value. One that shrinks keeps its
claim until the agent has reported the new generation: what a guest still has is not free.
"""

from typing import NamedTuple

from msgspec import UnsetType
from sqlalchemy import select

from roost.base.errors import Conflict, InvalidRequest
from roost.control.vms.lookup import locked_vm
from roost.ledger.claims.capacity import (
    RUN,
    ProjectUse,
    Promised,
    charge_project,
    claims_of,
    generation_of,
    project_use,
    promised_on,
    resize_claim,
    room_of,
)
from roost.ledger.schema.amounts import Amounts
from roost.ledger.schema.rows import ClaimRow, VMRow
from roost.ledger.schema.tables import host_amounts, hosts, vms
from roost.ledger.writes.transaction import Tx
from roost.model.flow import (
    Fix,
    FixKind,
    NearestMiss,
    ReasonCount,
    Rejection,
    RejectionCode,
    Shortage,
)
from roost.model.reasons import Reason
from roost.model.resources import BASE_RESOURCES, Demand
from roost.parts.access import Principal
from roost.parts.quotas import quota_exceeded
from roost.placement.rejecting import amount_text
from roost.wire.answers import no_fit
from roost.wire.bodies import ResizeVM
from roost.wire.translate import cores, size


class ChangedSince(Exception):
    """A VM, or its host, is not as it was when rules were asked about the VM's growth."""


class Judged(NamedTuple):
    """What rules were asked about before a VM is resized, and what their answer rests on."""

    vm: VMRow
    constraints: int | None = None  # their generation; None: it does not grow
    host_generation: int | None = None  # of the VM's host; None: no hard rule was asked about it
    host_after: Promised | None = None  # what the host has promised then, if a rule read it
    project_after: ProjectUse | None = None  # the same of its project


def wanted_amounts(vm: VMRow, body: ResizeVM) -> Amounts:
    """Return the amounts that a VM would have; refuse those that no VM can have.

    They are of a demand's own kind, so what holds at create holds here: the scheduler could not
    take the row of a VM without cpu or memory.
    """
    wanted = Demand(
        _given(body.cpu, vm.cpu_milli, "cpu"),
        _given(body.memory, vm.memory_bytes, "memory"),
        _given(body.disk, vm.disk_bytes, "disk"),
    )
    return Amounts(wanted.cpu_milli, wanted.memory_bytes, wanted.disk_bytes)


def resize(
    tx: Tx,
    ref: str,
    project: str | None,
    body: ResizeVM,
    who: Principal,
    judged: Judged | None = None,
) -> VMRow:
    """Resize a VM: claim its new amounts and order them.

    Raises ChangedSince if it is another VM, or its host is another or not as it was, than when
    rules were asked.
    """
    vm = locked_vm(tx, ref, project, who)
    seen = (vm.id, vm.generation, vm.host)
    if judged is not None and (judged.vm.id, judged.vm.generation, judged.vm.host) != seen:
        raise ChangedSince
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    if vm.phase:
        raise Conflict(f"VM {vm.name!r} is moving; wait until it has arrived", vm=vm.id)
    new = wanted_amounts(vm, body)
    if new == vm.amounts:
        return vm
    changes: dict[str, object] = {}
    run = claims_of(tx, vm.id).get(RUN)
    if run is not None:
        if run.cells:
            raise InvalidRequest(
                f"VM {vm.name!r} is bound to NUMA cells and cannot be resized in place", vm=vm.id
            )
        row = resize_claim(tx, run, new.greatest(run.amounts))
        if row is None:
            raise no_fit(_no_room(tx, vm, run, new))
        if judged is not None:
            _compare_host(tx, run, judged)
        changes["claims"] = {run.id: row}
    _charge_project(tx, vm, new)
    if judged is not None and judged.project_after not in (None, project_use(tx, vm.project)):
        raise ChangedSince
    row = tx.update(vms, vms.c.id == vm.id, generation=vms.c.generation + 1, **new._asdict())
    changes["vms"] = {vm.id: row}
    tx.event("vm.resized", f"vm/{vm.id}", changes, project=vm.project)  # type: ignore[arg-type]
    assert row is not None
    return VMRow(**row)


def _compare_host(tx: Tx, run: ClaimRow, judged: Judged) -> None:
    """Raise ChangedSince unless a claim's host, whose row is locked, is what rules have read."""
    if judged.host_generation not in (None, generation_of(tx, run.host)):
        raise ChangedSince
    if judged.host_after is not None and not judged.host_after.is_as_read(
        promised_on(tx, run.host), special=run.is_special
    ):
        raise ChangedSince


def _given(value: int | float | str | UnsetType, current: int, what: str) -> int:
    if isinstance(value, UnsetType):
        return current
    if what == "cpu":
        return cores(value)
    if isinstance(value, float):
        raise InvalidRequest(f"{what} {value} is not a whole number of bytes")
    return size(value, what)


def _charge_project(tx: Tx, vm: VMRow, new: Amounts) -> None:
    limits = charge_project(tx, vm.project, new.minus(vm.amounts), 0)
    if limits:
        raise quota_exceeded(vm.project, f"to resize {vm.name!r}", limits)


def _no_room(tx: Tx, vm: VMRow, run: ClaimRow, new: Amounts) -> Rejection:
    """Return why a VM cannot grow where it is: what its host lacks, in numbers."""
    query = select(hosts.c.name).where(hosts.c.number == run.host)
    name = tx.connection.execute(query).scalar_one()
    lacking = tuple(
        Shortage(resource, need, max(has, room))
        for resource, need, has, room in zip(
            BASE_RESOURCES, new, run.amounts, room_of(tx, run), strict=True
        )
        if need > max(has, room)
    )
    where = f"host {name!r}, where {vm.name!r} is,"
    said = f"{where} has no room for its new size"
    fixes: tuple[Fix, ...] = (Fix(FixKind.FREE, name, shortages=lacking),)
    row = tx.find(host_amounts, host=run.host)
    assert row is not None
    whole = dict(zip(BASE_RESOURCES, Amounts.in_columns(row, "capacity"), strict=True))
    if small := [each for each in lacking if each.need > whole[each.resource]]:
        # Emptying it would not be enough.
        has = " and ".join(amount_text(each.resource, whole[each.resource]) for each in small)
        said, fixes = f"{where} is too small for its new size: it has {has} in all", ()
    return Rejection(
        vm.name,
        RejectionCode.INSUFFICIENT_RESOURCES,
        said,
        vm.strategy,
        hosts=1,
        reasons=tuple(
            ReasonCount(Reason(each.resource), first=int(at == 0), total=1)
            for at, each in enumerate(lacking)
        ),
        nearest_miss=NearestMiss(name, lacking, hosts=1),
        fixes=fixes,
    )


def settle_resize(tx: Tx, vm: VMRow) -> None:
    """Shrink a VM's claim to the size that its agent has reported."""
    run = claims_of(tx, vm.id).get(RUN)
    if run is None or run.host != vm.host:
        return
    if run.amounts == vm.amounts:
        return
    row = resize_claim(tx, run, vm.amounts)
    tx.event("vm.settled", f"vm/{vm.id}", {"claims": {run.id: row}}, project=vm.project)
