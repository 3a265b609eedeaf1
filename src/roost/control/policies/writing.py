"""Write policies: keep the row and its versions, say the event.

Every change moves the generation of the constraints, in the transaction's last row: whoever has
decided under a policy as it was is turned away by the claim statement and decides anew.
"""

from typing import Any

import msgspec
from sqlalchemy import func, select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.policies.reading import policy_row
from roost.control.rules.writing import refuse_beside_older
from roost.ledger.rows import Changes, PolicyRow
from roost.ledger.tables import (
    constraints,
    groups,
    policies,
    policy_versions,
    projects,
    vm_specs,
    vms,
)
from roost.ledger.transaction import Tx, advance_constraints, row_json
from roost.wire.bundles import read_bundle
from roost.wire.policies import MOST_POLICIES, MOST_RULES_IN_ALL, MOST_VERSIONS
from roost.wire.specs import SpecUnreadable, read_spec

_COUNT = select(func.count()).select_from(policies)
_DEFAULT_OF = select(projects.c.name).order_by(projects.c.name)
_CONSTRAINTS = select(constraints.c.id).order_by(constraints.c.id)
_SPECS = select(vm_specs.c.vm, vm_specs.c.version, vm_specs.c.spec).order_by(vm_specs.c.vm)
#: Users of a policy that a refusal names.
_MOST_TOLD = 5


def insert(tx: Tx, row: PolicyRow) -> None:
    """Keep a new policy; refuses one more than there may be."""
    refuse_beside_older(tx)
    # The generation's row is what all changes wait for: two never count the same.
    generation = advance_constraints(tx)
    if tx.find(policies, name=row.name) is not None:
        raise Conflict(f"there is a policy {row.name!r} already", policy=row.name)
    if int(tx.connection.execute(_COUNT).scalar_one()) >= MOST_POLICIES:
        raise Conflict(
            f"there are {MOST_POLICIES} policies already, and no more are taken",
            hint="Maybe delete some that nobody uses.",
        )
    tx.insert(policies, msgspec.structs.asdict(row))
    _refuse_too_many_rules(tx)
    changes = _version(tx, row)
    _say(tx, "policy.created", row, changes | {"policies": {row.name: row}}, generation)


def update(tx: Tx, row: PolicyRow, kind: str, note: str = "", **values: Any) -> PolicyRow:
    """Give a locked policy other values, as a new version."""
    refuse_beside_older(tx)
    values |= {"version": row.version + 1, "changed_ms": tx.at_ms, "changed_by": tx.actor}
    found = tx.change(policies, {"name": row.name}, **values)
    assert found is not None
    now = PolicyRow(**found)
    changes = _version(tx, now)
    old = now.version - MOST_VERSIONS
    if tx.remove(policy_versions, policy=row.name, version=old):
        changes["policy_versions"][f"{row.name}|{old}"] = None
    changes["policies"] = {row.name: now}
    generation = advance_constraints(tx)
    _refuse_too_many_rules(tx)
    _say(tx, kind, now, changes, generation, note)
    return now


def _refuse_too_many_rules(tx: Tx) -> None:
    texts = tx.connection.execute(select(policies.c.bundle)).scalars()
    if sum(len(read_bundle(text).rules) for text in texts) > MOST_RULES_IN_ALL:
        raise Conflict(
            f"all policies together would have more than {MOST_RULES_IN_ALL} rules",
            hint="Maybe one rule with || says what several do.",
        )


def remove(tx: Tx, row: PolicyRow) -> None:
    """Delete a locked policy with its versions; refuses while anybody uses it."""
    refuse_beside_older(tx)
    spreads = [each["id"] for each in tx.find_all(groups, name=f"~policy {row.name}")]
    for group in spreads:
        tx.remove(groups, id=group)
    # Before users are counted, so that whoever is created under it from now on is turned away.
    generation = advance_constraints(tx)
    _refuse_if_used(tx, row.name)
    versions = [each["version"] for each in tx.find_all(policy_versions, policy=row.name)]
    tx.remove(policy_versions, policy=row.name)
    tx.remove(policies, name=row.name)
    changes: Changes = {
        "groups": dict.fromkeys(spreads),
        "policies": {row.name: None},
        "policy_versions": {f"{row.name}|{version}": None for version in versions},
    }
    _say(tx, "policy.deleted", row, changes, generation)


def _refuse_if_used(tx: Tx, name: str) -> None:
    run = tx.connection.execute
    for what, users in (
        ("the default of project", run(_DEFAULT_OF.where(projects.c.policy == name)).scalars()),
        ("that of rule", run(_CONSTRAINTS.where(constraints.c.policy == name)).scalars()),
        ("that of VM", iter(vms_under(tx, name))),
    ):
        found = list(users)
        if found:
            named = ", ".join(repr(each) for each in found[:_MOST_TOLD])
            more = f" and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
            raise Conflict(
                f"policy {name!r} is still {what} {named}{more}", policy=name, users=len(found)
            )


def vms_under(tx: Tx, name: str) -> list[str]:
    """Return the ids of the VMs that were created under a policy."""
    # The text finds candidates, also labels that look like it; the spec itself decides.
    like = _SPECS.where(vm_specs.c.spec.contains(f'"policy":"{name}"', autoescape=True))
    found: dict[str, bool] = {}
    for vm, version, text in tx.connection.execute(like):
        try:
            found[vm] = read_spec(text, version).policy == name
        except SpecUnreadable:
            found[vm] = True  # what cannot be read may be under it
    return [vm for vm, is_under in found.items() if is_under]


def members_of(tx: Tx, policy: str, project: str) -> list[str]:
    """Return the VMs that a project has under a policy, locked: none of them goes meanwhile."""
    found = []
    for vm in vms_under(tx, policy):
        row = tx.find(vms, lock=True, id=vm)
        if row is not None and row["project"] == project and row["desired"] != "absent":
            found.append(vm)
    return found


def set_default(tx: Tx, project: str, policy: str | None) -> dict[str, Any]:
    """Make a policy the default of a project, or none; return the project's row."""
    refuse_beside_older(tx)
    row = tx.update(projects, projects.c.name == project, policy=policy)
    if row is None:
        raise NotFound(f"there is no project {project!r}", project=project)
    shown = {name: value for name, value in row.items() if not name.endswith("_used")}
    changes: Changes = {"projects": {project: shown}}
    changes["constraints_generation"] = advance_constraints(tx)  # type: ignore[assignment]
    if policy is not None:
        try:
            policy_row(tx.connection, policy)  # not before: it may be deleted just now
        except NotFound as error:  # of the body: what the path names is there
            raise InvalidRequest(error.message, hint=error.hint, policy=policy) from error
    note = f"policy {policy}" if policy is not None else "no policy"
    tx.event("project.policy", f"project/{project}", changes, project=project, note=note)
    return row


def _version(tx: Tx, row: PolicyRow) -> Changes:
    body = {"policy": row.name, "version": row.version, "body": row_json(row)}
    tx.insert(policy_versions, body)
    return {"policy_versions": {f"{row.name}|{row.version}": {"body": body["body"]}}}


def _say(
    tx: Tx, kind: str, row: PolicyRow, changes: Changes, generation: int, note: str = ""
) -> None:
    changes["constraints_generation"] = generation  # type: ignore[assignment]
    tx.event(kind, f"policy/{row.name}", changes, note=note)
