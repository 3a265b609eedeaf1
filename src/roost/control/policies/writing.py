"""Write policies: keep the row and its versions, say the event.

Every change moves the generation of the constraints, in the transaction's last row: whoever has
decided under a policy as it was is turned away by the claim statement and decides anew.
"""

from typing import Any

import msgspec
from sqlalchemy import func, select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.policies.reading import policy_row
from roost.control.rules.versioning import Versioned, say
from roost.control.rules.writing import refuse_beside_older
from roost.ledger.schema.rows import Changes, PolicyRow
from roost.ledger.schema.tables import (
    constraints,
    groups,
    policies,
    policy_versions,
    projects,
    vm_specs,
    vms,
)
from roost.ledger.writes.transaction import Tx, advance_constraints
from roost.wire.bundles import read_bundle
from roost.wire.policies import MOST_POLICIES, MOST_RULES_IN_ALL, MOST_VERSIONS
from roost.wire.spectext import SpecUnreadable, read_spec

_COUNT = select(func.count()).select_from(policies)
_VERSIONED = Versioned(policies, "name", policy_versions, "policy", MOST_VERSIONS)
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
    changes = _VERSIONED.file(tx, row.name, row)
    say(tx, "policy.created", f"policy/{row.name}", changes, generation)


def update(tx: Tx, row: PolicyRow, kind: str, note: str = "", **values: Any) -> PolicyRow:
    """Give a locked policy other values, as a new version."""
    refuse_beside_older(tx)
    now = PolicyRow(**_VERSIONED.change(tx, row.name, row.version, values))
    changes = _VERSIONED.file(tx, row.name, now)
    generation = advance_constraints(tx)
    _refuse_too_many_rules(tx)
    say(tx, kind, f"policy/{row.name}", changes, generation, note=note)
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
    changes = {"groups": dict.fromkeys(spreads), **_VERSIONED.remove(tx, row.name)}
    say(tx, "policy.deleted", f"policy/{row.name}", changes, generation)


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
    generation = advance_constraints(tx)
    if policy is not None:
        try:
            policy_row(tx.connection, policy)  # not before: it may be deleted just now
        except NotFound as error:  # of the body: what the path names is there
            raise InvalidRequest(error.message, hint=error.hint, policy=policy) from error
    note = f"policy {policy}" if policy is not None else "no policy"
    say(tx, "project.policy", f"project/{project}", changes, generation, project=project, note=note)
    return row
