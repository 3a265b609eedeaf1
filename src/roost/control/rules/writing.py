"""Write constraints: check what was asked for, keep the row and its versions, say the event.

Every change moves the generation of all constraints, in the transaction's last row: whoever has
decided under the rules as they were is turned away by the claim statement and decides anew.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Select, func, select

from roost.base.errors import Conflict, Forbidden, InvalidRequest, NotFound
from roost.control.rules.reading import id_of
from roost.control.rules.versioning import Versioned, say
from roost.control.vms.lookup import vm_row
from roost.ledger.claims.capacity import RUN, claim_id
from roost.ledger.schema.rows import Changes, ConstraintRow
from roost.ledger.schema.tables import constraint_versions, constraints, policies, projects
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.transaction import Tx, advance_constraints, row_json
from roost.model.rules import WHOLE_WEIGHT, Rule, RuleScope
from roost.parts.access import Principal
from roost.rules.checking import condition
from roost.rules.fields import Fields
from roost.rules.tree import condition_of_tree
from roost.wire.constraints import (
    MOST_CONSTRAINTS,
    MOST_OF_A_PROJECT,
    MOST_OF_PROJECTS,
    MOST_VERSIONS,
    ConstraintDetail,
    CreateConstraint,
    DryRunConstraint,
    Expression,
    RuleFields,
)

TriedRule = CreateConstraint | DryRunConstraint
#: What may make a rule hold back VMs that it did not before.
_WHAT_BINDS = frozenset({"expression", "kind", "selector", "enabled"})
_COUNT = select(func.count()).select_from(constraints)
_VERSIONED = Versioned(constraints, "id", constraint_versions, "constraint_id", MOST_VERSIONS)


def read_expression(expression: Expression, fields: Fields) -> tuple[str, str]:
    """Return the text of an expression, checked, and the form it was written in."""
    if isinstance(expression, str):
        found, form = condition(expression, fields), "cel"
    else:
        found, form = condition_of_tree(expression, fields), "tree"
    return found.text, form


def require_may_change(who: Principal, project: str | None) -> None:
    """Refuse whoever may not change the rules of the fleet, or of this project.

    A rule of a project binds that project's VMs alone, so its members may make them; a rule of the
    fleet binds everybody's.
    """
    if project is None and who.role != "admin":
        raise Forbidden(
            "only an administrator changes rules of the fleet",
            hint="Maybe name a project: its rules bind its own VMs alone.",
        )
    if project is not None and who.project not in (None, project):
        raise NotFound(f"no project {project!r}", project=project)


def require_may_try(who: Principal, project: str | None) -> None:
    """Refuse to try a rule of a project that somebody may not see."""
    if project is not None and who.project not in (None, project):
        raise NotFound(f"no project {project!r}", project=project)


def rule_to_try(body: TriedRule, text: str, vm: str) -> Rule:
    """Return a rule that is asked for as the engine tries it: as if it were hard."""
    name = id_of(body.name, body.project)
    return _hard_rule(name, text, body.project, body.selector, vm, body.policy)


def changed_rule(now: ConstraintDetail, values: Mapping[str, Any]) -> Rule | None:
    """Return what a change makes of a rule; None if it does not hold more VMs back than before."""
    kind, enabled = values.get("kind", now.kind), values.get("enabled", now.enabled)
    if kind != "hard" or not enabled or not values.keys() & _WHAT_BINDS:
        return None
    selector = now.selector
    if "selector" in values:
        selector = msgspec.json.decode(values["selector"] or "{}")
    text = values.get("expression", now.expression)
    vm = claim_id(now.vm, RUN) if now.vm else ""
    return _hard_rule(now.id, text, now.project, selector, vm, now.policy)


def _hard_rule(
    name: str,
    text: str,
    project: str | None,
    selector: Mapping[str, str],
    vm: str,
    policy: str | None,
) -> Rule:
    scope = RuleScope.with_labels(project or "", vm, selector, policy or "")
    return Rule(name, text, scope=scope)


def new_row(
    tx: Tx, key: str, name: str, project: str | None, body: RuleFields, text: str, form: str,
    who: Principal, now_ms: int, timing: Mapping[str, Any],
) -> ConstraintRow:  # fmt: skip
    """Return the row of a new constraint."""
    if project is not None:
        known = select(projects.c.name).where(projects.c.name == project)
        if tx.row(known.with_for_update(read=True)) is None:
            raise NotFound(f"no project {project!r}", project=project)
    return ConstraintRow(
        id=key,
        project=project or "",
        name=name,
        description=body.description,
        expression=text,
        form=form,
        kind=body.kind,
        weight=thousandths(body.weight),
        priority=body.priority,
        selector=selector_text(body.selector),
        vm=_vm(tx, body.vm, project, who),
        policy=body.policy,
        enabled=body.enabled,
        expires_ms=expires_ms(now_ms, body.expires_in_s),
        created_ms=tx.at_ms,
        created_by=who.name,
        changed_ms=tx.at_ms,
        changed_by=who.name,
        relax_after_s=relax_after(body.kind, body.relax_after_s),
        **timing,
    )


def _vm(tx: Tx, ref: str | None, project: str | None, who: Principal) -> str:
    if ref is None:
        return ""
    if project is None:
        raise InvalidRequest(
            "a rule for one VM belongs to the VM's project", hint="Maybe name the project, too."
        )
    return vm_row(tx.connection, ref, project, who).id


def thousandths(weight: float) -> int:
    """Return a weight between 0 and 1 as the ledger has it; refuses one that would become 0."""
    found = round(weight * WHOLE_WEIGHT)
    if weight and not found:
        raise InvalidRequest(
            f"weight {weight} counts as 0: weights are kept in thousandths", weight=weight
        )
    return found


def selector_text(selector: dict[str, str]) -> str:
    """Return the labels of a selector as the ledger has them."""
    return row_json(dict(sorted(selector.items()))) if selector else ""


def relax_after(kind: str, after_s: int | None) -> int | None:
    """Return after how long a rule relaxes; refuses that of a rule that is soft anyway."""
    if after_s is not None and kind != "hard":
        raise InvalidRequest(
            "only a hard rule relaxes; a soft one refuses nobody",
            hint="Maybe leave out after how long it relaxes; a change takes it away by --no-relax.",
        )
    return after_s


def expires_ms(now_ms: int, in_s: int | None) -> int | None:
    """Return when something expires that is to hold for so long."""
    return None if in_s is None else now_ms + 1000 * in_s


def insert(tx: Tx, row: ConstraintRow) -> None:
    """Keep a new constraint; refuses one more than there may be."""
    refuse_beside_older(tx)
    if tx.find(constraints, id=row.id) is not None:
        whose = f"of project {row.project!r}" if row.project else "of the fleet"
        raise Conflict(f"there is a rule {row.name!r} {whose} already", rule=row.id)
    # The generation's row is what all changes of constraints wait for: two never count the same.
    generation = advance_constraints(tx)
    if row.policy is not None and tx.find(policies, name=row.policy) is None:
        raise NotFound(f"there is no policy {row.policy!r}", policy=row.policy)
    _refuse_one_more(tx, row.project)
    tx.insert(constraints, msgspec.structs.asdict(row))
    _say(tx, "constraint.created", row, _VERSIONED.file(tx, row.id, row), generation)


def _refuse_one_more(tx: Tx, project: str) -> None:
    """Refuse a rule beyond what a project, all projects, or the fleet may have."""
    bounds: list[tuple[str, int, Select[Any]]] = [("", MOST_CONSTRAINTS, _COUNT)]
    if project:
        of_projects = _COUNT.where(constraints.c.project != "")
        its_own = _COUNT.where(constraints.c.project == project)
        bounds.append((" of projects", MOST_OF_PROJECTS, of_projects))
        bounds.append((f" of project {project!r}", MOST_OF_A_PROJECT, its_own))
    for whose, most, query in bounds:
        if int(tx.connection.execute(query).scalar_one()) >= most:
            raise Conflict(
                f"there are {most} rules{whose} already, and no more are taken",
                hint="Maybe one rule with || says what several do; or delete some.",
            )


def update(
    tx: Tx, row: ConstraintRow, event: str = "constraint.changed", /, **values: Any
) -> ConstraintRow:
    """Give a locked constraint other values, as a new version."""
    refuse_beside_older(tx)
    now = ConstraintRow(**_VERSIONED.change(tx, row.id, row.version, values))
    _say(tx, event, now, _VERSIONED.file(tx, row.id, now), advance_constraints(tx))
    return now


def switch(tx: Tx, row: ConstraintRow, now_ms: int, *, active: bool) -> None:
    """Let a locked constraint hold, or not, by its condition; it is no other version."""
    found = tx.change(constraints, {"id": row.id}, active=active, switched_ms=now_ms)
    assert found is not None
    now = ConstraintRow(**found)
    kind = "constraint.switched_on" if active else "constraint.switched_off"
    _say(tx, kind, now, {"constraints": {row.id: now}}, advance_constraints(tx))


def remove(tx: Tx, row: ConstraintRow) -> None:
    """Delete a locked constraint with its versions."""
    refuse_beside_older(tx)
    changes = _VERSIONED.remove(tx, row.id)
    _say(tx, "constraint.deleted", row, changes, advance_constraints(tx))


def refuse_beside_older(tx: Tx) -> None:
    """Refuse while processes may be there that know no constraints and would not keep them."""
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "rules cannot be changed while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def _say(tx: Tx, kind: str, row: ConstraintRow, changes: Changes, generation: int) -> None:
    say(tx, kind, f"constraint/{row.id}", changes, generation, project=row.project or None)
