"""Define groups: as rows, and in the ledger.

A group is defined by a request of its own or by the first VM that brings its rule along. A rule
about labels becomes an implicit group: every VM of the project that has those labels is a member,
those that exist already are enrolled in the same transaction, and the rules' generation moves, so
that no VM with labels is created elsewhere at the same time without it.
"""

import hashlib
from collections.abc import Callable

import msgspec
from sqlalchemy import select, update

from roost.base.errors import NotFound
from roost.ledger.schema.rows import GroupRow
from roost.ledger.schema.tables import counters, groups, members, projects, vms
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.policies import PolicySpread
from roost.wire.bodies import AffinityBody, GroupBody

#: How the name of a policy's group begins.
POLICY_GROUP = "~policy-"
_HEAD = select(counters.c.value).where(counters.c.name == "events")
_RULES = select(counters.c.value).where(counters.c.name == "rules").with_for_update()
_ADVANCE_RULES = (
    update(counters)
    .where(counters.c.name == "rules")
    .values(value=counters.c.value + 1)
    .returning(counters.c.value)
)


def explicit(project: str, body: GroupBody) -> GroupRow:
    """Return the row of a group that a VM names and defines."""
    return GroupRow(
        id=f"{project}/{body.name}",
        project=project,
        name=body.name,
        rule=body.rule,
        scope=body.scope,
        hard=body.hard,
        max_skew=body.max_skew,
        weight=body.weight,
    )


def implicit(project: str, body: AffinityBody) -> GroupRow:
    """Return the row of the group that a rule about labels stands for; same rule, same group."""
    selector = row_json(dict(sorted(body.selector.items())))
    text = f"{body.rule} {body.scope} {body.hard} {body.max_skew} {body.weight} {selector}"
    digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    listed = ",".join(f"{key}={value}" for key, value in sorted(body.selector.items()))
    return GroupRow(
        id=f"{project}/~{digest}",
        project=project,
        name=f"~{body.rule} {listed}",
        rule=body.rule,
        scope=body.scope,
        hard=body.hard,
        max_skew=body.max_skew,
        weight=body.weight,
        selector=selector,
    )


def of_policy(project: str, policy: str, spread: PolicySpread) -> GroupRow:
    """Return the row of the group in which a project's VMs of a policy are spread.

    Another spread is another group, which those who are there join when it is defined.
    """
    text = f"{policy} {spread.scope} {spread.hard} {spread.max_skew} {spread.weight}"
    digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    return GroupRow(
        id=f"{project}/{POLICY_GROUP}{digest}",
        project=project,
        name=f"~policy {policy}",
        rule="spread",
        scope=spread.scope,
        hard=spread.hard,
        max_skew=spread.max_skew,
        weight=spread.weight,
    )


def lock_rules(tx: Tx) -> None:
    """Lock the label rules: no other transaction defines or deletes groups meanwhile."""
    tx.connection.execute(_RULES)


def advance_rules(tx: Tx) -> int:
    """Move the generation of the rules about labels; return it."""
    return int(tx.connection.execute(_ADVANCE_RULES).scalar_one())


def define(tx: Tx, row: GroupRow, first: Callable[[Tx], list[str]] | None = None) -> bool:
    """Make a group unless there is one of this id; say whether it is new.

    `first` finds VMs that are members from the beginning.
    """
    project = select(projects.c.name).where(projects.c.name == row.project)
    if tx.row(project.with_for_update(read=True)) is None:  # first, as claims lock their rows
        raise NotFound(f"no project {row.project!r}", project=row.project)
    # The rules' counter is the lock of all definitions: two processes never make one group twice.
    lock_rules(tx)
    if tx.row(select(groups.c.id).where(groups.c.id == row.id)) is not None:
        return False
    # Never a generation that an earlier group of this name had: each of those had its event.
    row = msgspec.structs.replace(row, generation=tx.connection.execute(_HEAD).scalar_one())
    tx.insert(groups, msgspec.structs.asdict(row))
    changes: dict[str, object] = {"groups": {row.id: row}}
    if row.selector:
        query = select(vms.c.id).where(vms.c.project == row.project, vms.c.desired != "absent")
        for key, value in msgspec.json.decode(row.selector).items():
            query = query.where(vms.c.labels.contains(f"\n{key}={value}\n", autoescape=True))
        query = query.order_by(vms.c.id).with_for_update()  # none of them may go meanwhile
        enrolled = [found["id"] for found in tx.rows(query)]
        for vm in enrolled:
            tx.insert(members, {"group_id": row.id, "vm": vm})
        changes["members"] = {f"{row.id}|{vm}": {} for vm in enrolled}
        changes["rules"] = advance_rules(tx)
    elif first is not None:
        joined = first(tx)
        for vm in joined:
            tx.insert(members, {"group_id": row.id, "vm": vm})
        changes["members"] = {f"{row.id}|{vm}": {} for vm in joined}
    tx.event("group.created", f"group/{row.id}", changes, project=row.project)  # type: ignore[arg-type]
    return True
