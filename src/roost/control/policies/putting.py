"""Put a VM that exists under another policy, or under none: from its next placement on.

The VM's spec gets a new version that names the policy. The VM stays where it is, with the strategy
and the restart that it has; what the new policy's rules find wrong there is told, and watched like
every other violation. The generation of constraints moves on, so whoever is about to place the VM
under the policy it had decides again.
"""

from dataclasses import replace
from typing import NamedTuple

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.groups.defining import POLICY_GROUP, define, of_policy
from roost.control.memory.roster import Roster
from roost.control.memory.specs import stored_spec
from roost.control.policies.reading import policy_row
from roost.control.policies.writing import members_of
from roost.control.rules.writing import refuse_beside_older
from roost.control.vms.lookup import locked_vm
from roost.control.vms.requests import request_of
from roost.control.vms.ruling import wrong_part
from roost.ledger.schema.rows import Changes, PolicyRow, SpecRow, VMRow
from roost.ledger.schema.tables import members, policies, vm_specs
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.transaction import Tx, advance_constraints
from roost.model.vm import VMSpec
from roost.parts.access import Principal
from roost.wire.bundles import read_bundle
from roost.wire.spectext import spec_text


class Put(NamedTuple):
    """A VM and its spec, and whether that names another policy than before."""

    vm: VMRow
    spec: VMSpec
    changed: bool


def put_under(tx: Tx, ref: str, project: str | None, name: str | None, who: Principal) -> Put:
    """Put a VM under a policy, or none; as often as it is asked for."""
    vm = locked_vm(tx, ref, project, who)
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    spec = stored_spec(tx.connection, vm)
    if spec.policy == (name or ""):
        return Put(vm, spec, changed=False)
    if vm.phase:
        raise Conflict(f"VM {vm.name!r} is moving; wait until it has arrived", vm=vm.id)
    refuse_beside_older(tx)
    row = None if name is None else _policy(tx, name)
    version = 0 if row is None else row.version
    new = replace(spec, version=spec.version + 1, policy=name or "", policy_version=version)
    text = spec_text(new)
    tx.remove(vm_specs, vm=vm.id, version=spec.version)
    tx.insert(vm_specs, {"vm": vm.id, "version": new.version, "spec": text})
    changes: Changes = {
        "vm_specs": {f"{vm.id}|{spec.version}": None, f"{vm.id}|{new.version}": SpecRow(text)}
    }
    _spread(tx, vm, row, changes)
    changes["constraints_generation"] = advance_constraints(tx)  # type: ignore[assignment]
    if name is not None and tx.find(policies, name=name) is None:  # deleted just now
        raise NotFound(f"there is no policy {name!r}", policy=name)
    note = f"from {spec.policy or 'no policy'} to {name or 'no policy'}"
    tx.event("vm.policy_set", f"vm/{vm.id}", changes, project=vm.project, note=note)
    return Put(vm, new, changed=True)


def _policy(tx: Tx, name: str) -> PolicyRow:
    try:
        return policy_row(tx.connection, name)
    except NotFound as error:  # of the body: what the path names is there
        raise InvalidRequest(error.message, hint=error.hint, policy=name) from error


def _spread(tx: Tx, vm: VMRow, row: PolicyRow | None, changes: Changes) -> None:
    """Take a VM out of the group of the policy it had, and into that of its new one."""
    theirs = f"{vm.project}/{POLICY_GROUP}"
    left = [
        each["group_id"]
        for each in tx.find_all(members, vm=vm.id)
        if each["group_id"].startswith(theirs)
    ]
    spread = None if row is None else read_bundle(row.bundle).spread
    joins = None if row is None or spread is None else of_policy(vm.project, row.name, spread)
    enrolled = joins is not None and define(
        tx, joins, lambda tx: members_of(tx, row.name if row is not None else "", vm.project)
    )
    told = {f"{group}|{vm.id}": None for group in left}
    if joins is not None and not enrolled:
        tx.insert(members, {"group_id": joins.id, "vm": vm.id})
        told |= {f"{joins.id}|{vm.id}": {}}  # type: ignore[dict-item]
    if told:
        changes["members"] = told
    advance_groups(tx, vm.id, changes)
    for group in left:
        tx.remove(members, group_id=group, vm=vm.id)


def broken_by(roster: Roster, put: Put) -> list[tuple[str, str]]:
    """Return the hard rules that the VM's place does not satisfy now, each with the part."""
    request, engine = request_of(put.vm, roster, put.spec), roster.engine
    if request.key not in engine.fleet.vms.numbers:
        return []
    bound = [each for each in engine.terms_of(request).rules if each.hard]
    wrong = [(each.name, wrong_part(engine, request, each)) for each in bound]
    return [(name, part) for name, part in wrong if part is not None]
