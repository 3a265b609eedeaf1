"""Resize: new amounts are claimed before the agent hears of them, old ones given back after.

A VM that grows takes the difference at once, on its own host, by value. One that shrinks keeps its
claim until the agent has reported the new generation: what a guest still has is not free.
"""

from msgspec import UnsetType

from roost.base.errors import Conflict, InvalidRequest, NoFit, QuotaExceeded
from roost.control.vms.lookup import locked_vm
from roost.ledger.capacity import charge_amounts, claims_of
from roost.ledger.rows import VMRow
from roost.ledger.tables import claims, projects, vms
from roost.ledger.transaction import Tx
from roost.model.resources import Demand
from roost.parts.access import Principal
from roost.wire.bodies import ResizeVM
from roost.wire.translate import cores, size

_AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes")


def resize(tx: Tx, ref: str, project: str | None, body: ResizeVM, who: Principal) -> VMRow:
    """Give a VM new amounts."""
    vm = locked_vm(tx, ref, project, who)
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    if vm.phase:
        raise Conflict(f"VM {vm.name!r} is moving; wait until it has arrived", vm=vm.id)
    new = Demand(
        _given(body.cpu, vm.cpu_milli, "cpu"),
        _given(body.memory, vm.memory_bytes, "memory"),
        _given(body.disk, vm.disk_bytes, "disk"),
    )
    wanted = {
        "cpu_milli": new.cpu_milli,
        "memory_bytes": new.memory_bytes,
        "disk_bytes": new.disk_bytes,
    }
    if wanted == {name: getattr(vm, name) for name in _AMOUNTS}:
        return vm
    changes: dict[str, object] = {}
    run = claims_of(tx, vm.id).get("run")
    if run is not None:
        if run.cells:
            raise InvalidRequest(
                f"VM {vm.name!r} is bound to NUMA cells and cannot be resized in place", vm=vm.id
            )
        kept = {name: max(getattr(run, name), wanted[name]) for name in _AMOUNTS}
        cpu, memory, disk = (kept[name] - getattr(run, name) for name in _AMOUNTS)
        if not charge_amounts(tx, run.host, cpu, memory, disk, 0, None):
            raise NoFit(
                "insufficient_resources",
                f"the host of {vm.name!r} has no room for its new size",
                {"vm": vm.name, "wanted": wanted},
            )
        changes["claims"] = {run.id: tx.update(claims, claims.c.id == run.id, **kept)}
    _charge_project(tx, vm, wanted)
    row = tx.update(vms, vms.c.id == vm.id, generation=vms.c.generation + 1, **wanted)
    changes["vms"] = {vm.id: row}
    tx.event("vm.resized", f"vm/{vm.id}", changes, project=vm.project)  # type: ignore[arg-type]
    assert row is not None
    return VMRow(**row)


def _given(value: int | float | str | UnsetType, current: int, what: str) -> int:
    if isinstance(value, UnsetType):
        return current
    if what == "cpu":
        return cores(value)
    if isinstance(value, float):
        raise InvalidRequest(f"{what} {value} is not a whole number of bytes")
    return size(value, what)


def _charge_project(tx: Tx, vm: VMRow, wanted: dict[str, int]) -> None:
    p = projects.c
    where = [p.name == vm.project]
    values = {}
    growth = {name: wanted[name] - getattr(vm, name) for name in _AMOUNTS}
    for name, more in growth.items():
        used, quota = p[f"{name}_used"], p[f"{name}_quota"]
        values[f"{name}_used"] = used + more
        if more > 0:
            where.append(quota.is_(None) | (used + more <= quota))
    if tx.update(projects, *where, **values) is None:
        found = tx.row(projects.select().where(p.name == vm.project))
        assert found is not None
        limits = {
            name: {"quota": quota, "used": found[f"{name}_used"], "asked": more}
            for name, more in growth.items()
            if (quota := found[f"{name}_quota"]) is not None
            and more > 0
            and found[f"{name}_used"] + more > quota
        }
        raise QuotaExceeded(
            f"project {vm.project!r} has no quota left to resize {vm.name!r}: {', '.join(limits)}",
            project=vm.project,
            limits=limits,
        )


def settle_resize(tx: Tx, vm: VMRow) -> None:
    """The agent has the new size: give back what the claim holds beyond it."""
    run = claims_of(tx, vm.id).get("run")
    if run is None or run.host != vm.host:
        return
    wanted = {name: getattr(vm, name) for name in _AMOUNTS}
    cpu, memory, disk = (getattr(vm, name) - getattr(run, name) for name in _AMOUNTS)
    if not (cpu or memory or disk):
        return
    charge_amounts(tx, run.host, cpu, memory, disk, 0, None)
    row = tx.update(claims, claims.c.id == run.id, **wanted)
    tx.event("vm.settled", f"vm/{vm.id}", {"claims": {run.id: row}}, project=vm.project)
