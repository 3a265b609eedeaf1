"""Change a VM that exists: its name, labels, priority, and what it asks of its host.

The VM stays where it is; another constraint counts from its next placement on. Labels that a label
rule of the project goes by cannot be changed: members of such a rule would have to be judged again,
and one that breaks it moved. The generation of constraints moves on with all but a name: whoever is
about to place the VM as it was decides again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from roost.base.errors import Conflict, Forbidden, InvalidRequest
from roost.control.memory.roster import Roster
from roost.control.memory.specs import stored_spec
from roost.control.vms.lookup import locked_vm
from roost.control.vms.restart_policy import set_vm
from roost.ledger.schema.rows import Changes, SpecRow, VMRow, labels_of, labels_text
from roost.ledger.schema.tables import counters, groups, vm_specs, vms
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, advance_constraints
from roost.model.constraints import NO_CONSTRAINTS, Constraints, Toleration
from roost.model.vm import VMSpec
from roost.parts.access import Principal
from roost.wire.bodies import SetVM
from roost.wire.spectext import spec_text
from roost.wire.translate import label_term_of

_RULES = select(counters.c.value).where(counters.c.name == "rules").with_for_update()


def change_vm(
    tx: Tx, ref: str, project: str | None, body: SetVM, who: Principal, roster: Roster
) -> VMRow:
    """Change what is given of a VM; as often as it is asked for."""
    if body == SetVM():
        raise InvalidRequest("nothing to set", hint='Maybe {"labels": {"tier": "gold"}}.')
    only_restart = SetVM(restart=body.restart) == body
    if only_restart:
        return set_vm(tx, ref, project, body, who)
    if body.labels is not UNSET:
        tx.connection.execute(_RULES)  # first, as whoever defines a rule locks it before VMs
    vm = locked_vm(tx, ref, project, who)
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    values = _values(tx, vm, body, who)
    changes: Changes = {}
    said = sorted(values)
    spec = stored_spec(tx.connection, vm)
    new = _constrained(spec, body, roster)
    if "priority" in values:
        new = replace(new, priority=int(values["priority"]), priority_class="")
    if new != spec:
        said += _constraints_said(spec.constraints, new.constraints)
        _write_spec(tx, vm, spec, new, changes)
    if said:
        if vm.phase:
            raise Conflict(f"VM {vm.name!r} is moving; wait until it has arrived", vm=vm.id)
        _refuse_beside_older(tx)
        row = _write(tx, vm, values)
        changes["vms"] = {vm.id: row}
        if said != ["name"]:  # no rule goes by a name, and every create under way goes round again
            changes["constraints_generation"] = advance_constraints(tx)  # type: ignore[assignment]
        tx.event("vm.set", f"vm/{vm.id}", changes, project=vm.project, note=", ".join(said))
        vm = VMRow(**row)
    if body.restart is not UNSET:
        vm = set_vm(tx, vm.id, None, SetVM(restart=body.restart), who)
    return vm


def _write(tx: Tx, vm: VMRow, values: Mapping[str, Any]) -> dict[str, Any]:
    """Change a VM's row; a name that another process takes at the same moment is a conflict."""
    try:
        row = tx.change(vms, {"id": vm.id}, generation=Plus(1), **values)
    except IntegrityError as error:
        if "name" not in values:
            raise
        raise _taken(vm, values["name"]) from error
    assert row is not None
    return row


def _taken(vm: VMRow, name: str) -> Conflict:
    return Conflict(f"project {vm.project!r} has a VM {name!r} already", vm=vm.id, name=name)


def _values(tx: Tx, vm: VMRow, body: SetVM, who: Principal) -> dict[str, Any]:
    """Return the columns of a VM's row that are to be others; refuses what cannot be."""
    values: dict[str, Any] = {}
    if not isinstance(body.name, UnsetType) and body.name != vm.name:
        if tx.find(vms, project=vm.project, name=body.name) is not None:
            raise _taken(vm, body.name)
        values["name"] = body.name
    if not isinstance(body.labels, UnsetType):
        text = labels_text(body.labels) if body.labels else ""
        if body.labels != labels_of(vm.labels):
            _refuse_under_rules(tx, vm, body.labels)
            values["labels"] = text
    if not isinstance(body.priority, UnsetType) and body.priority != vm.priority:
        if who.role == "member" and body.priority > vm.priority:
            raise Forbidden(
                f"a member may not raise the priority of VM {vm.name!r}", vm=vm.id,
                hint="Maybe ask an operator.",
            )  # fmt: skip
        values["priority"] = body.priority
    return values


def _refuse_under_rules(tx: Tx, vm: VMRow, labels: Mapping[str, str]) -> None:
    """Refuse labels by which the VM would join or leave a label rule of its project."""
    had = labels_of(vm.labels)
    for group in tx.find_all(groups, project=vm.project):
        if not group["selector"]:
            continue
        selector = msgspec.json.decode(group["selector"])
        matched, matches = (
            all(each.get(key) == value for key, value in selector.items()) for each in (had, labels)
        )
        if matched != matches:
            listed = ",".join(f"{key}={value}" for key, value in selector.items())
            raise Conflict(
                f"VM {vm.name!r} would {'join' if matches else 'leave'} the {group['rule']} rule "
                f"about VMs with {listed}, and members of a label rule do not change by labels",
                vm=vm.id,
                group=group["id"],
                hint="Maybe use a group with a name: roost group add.",
            )


def _constrained(spec: VMSpec, body: SetVM, roster: Roster) -> VMSpec:
    """Return a spec with other hosts, zones, racks, label terms and tolerations."""
    given: dict[str, Any] = {}
    for field, names in (("pinned", body.hosts), ("excluded", body.not_hosts)):
        if isinstance(names, UnsetType):
            continue
        for name in names:
            if roster.entry(name) is None:
                raise InvalidRequest(f"there is no host {name!r}", host=name)
        given[field] = tuple(names)
    for domain, domains in (("zones", body.zones), ("racks", body.racks)):
        if not isinstance(domains, UnsetType):
            given[domain] = tuple(domains)
    if not isinstance(body.label_terms, UnsetType):
        given["labels"] = tuple(map(label_term_of, body.label_terms))
    if not isinstance(body.tolerations, UnsetType):
        given["tolerations"] = tuple(Toleration(t.key, t.value) for t in body.tolerations)
    if not given:
        return spec
    constraints = replace(spec.constraints, **given)
    return replace(
        spec, constraints=NO_CONSTRAINTS if constraints == NO_CONSTRAINTS else constraints
    )


def _constraints_said(had: Constraints, has: Constraints) -> list[str]:
    """Return what is different about constraints, as the event of it says."""
    words = {
        "hosts": ("pinned", "excluded"), "label terms": ("labels",), "racks": ("racks",),
        "tolerations": ("tolerations",), "zones": ("zones",),
    }  # fmt: skip
    return [
        word
        for word, fields in words.items()
        if any(getattr(had, field) != getattr(has, field) for field in fields)
    ]


def _write_spec(tx: Tx, vm: VMRow, spec: VMSpec, new: VMSpec, changes: Changes) -> None:
    version = spec.version + 1
    text = spec_text(replace(new, version=version))
    tx.remove(vm_specs, vm=vm.id, version=spec.version)
    tx.insert(vm_specs, {"vm": vm.id, "version": version, "spec": text})
    changes["vm_specs"] = {f"{vm.id}|{spec.version}": None, f"{vm.id}|{version}": SpecRow(text)}


def _refuse_beside_older(tx: Tx) -> None:
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "VMs cannot be changed so while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )
