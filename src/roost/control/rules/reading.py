"""Read constraints from one view of the ledger, as users see them."""

import difflib
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection, or_, select
from sqlalchemy.sql.elements import ColumnElement

from roost.base.errors import NotFound, RuleError
from roost.base.timestamps import timestamp
from roost.ledger.schema.rows import ConstraintRow
from roost.ledger.schema.tables import constraint_versions, constraints
from roost.ledger.writes.statements import find_row
from roost.model.rules import WHOLE_WEIGHT
from roost.parts.access import Principal
from roost.rules.parsing import parse
from roost.rules.tree import to_tree
from roost.wire.constraints import (
    ConstraintBody,
    ConstraintDetail,
    ConstraintPage,
    ConstraintVersion,
    ListConstraints,
)

_read_version: Callable[[str], ConstraintRow] = msgspec.json.Decoder(ConstraintRow).decode
_selector = msgspec.json.Decoder(dict[str, str])
_VERSIONS = select(constraint_versions.c.body).order_by(constraint_versions.c.version.desc())


def id_of(name: str, project: str | None) -> str:
    """Return the id of a constraint: its name, behind the project whose it is."""
    return f"{project}/{name}" if project else name


def constraint_row(
    connection: Connection, name: str, project: str | None, who: Principal, *, lock: bool = False
) -> ConstraintRow:
    """Return the constraint of this name; one of another project is not found."""
    key = id_of(name, project)
    found = None
    if may_see(who, project or ""):
        found = find_row(connection, constraints, {"id": key}, lock=lock)
    if found is None:
        close = difflib.get_close_matches(key, _names(connection, who), n=1)
        raise NotFound(
            f"there is no rule {name!r} {_whose(project)}",
            rule=key,
            hint=f"Maybe {close[0]!r}?" if close else None,
        )
    return ConstraintRow(**found)


def may_see(who: Principal, project: str) -> bool:
    """Say whether somebody may see the rules of a project; those of the fleet bind everybody."""
    return not project or who.project in (None, project)


def _whose(project: str | None) -> str:
    return f"of project {project!r}" if project else "of the fleet"


def _names(connection: Connection, who: Principal) -> list[str]:
    query = select(constraints.c.id).where(*_visible(who)).order_by(constraints.c.id)
    return list(connection.execute(query).scalars())


def _visible(who: Principal) -> list[ColumnElement[bool]]:
    if who.project is None:
        return []
    return [or_(constraints.c.project == "", constraints.c.project == who.project)]


def listed(connection: Connection, asked: ListConstraints, who: Principal) -> ConstraintPage:
    """Return constraints in the order of their ids."""
    where = _visible(who)
    if asked.project is not None:
        where.append(constraints.c.project == asked.project)
    if asked.kind is not None:
        where.append(constraints.c.kind == asked.kind)
    if asked.after is not None:
        where.append(constraints.c.id > asked.after)
    query = select(constraints).where(*where).order_by(constraints.c.id).limit(asked.limit + 1)
    found = [ConstraintRow(**row) for row in connection.execute(query).mappings()]
    page = found[: asked.limit]
    return ConstraintPage(
        constraints=[ConstraintBody(**_shown(row)) for row in page],
        next=page[-1].id if len(found) > asked.limit else None,
    )


def detail(connection: Connection, row: ConstraintRow) -> ConstraintDetail:
    """Return a constraint with its versions, the newest first."""
    query = _VERSIONS.where(constraint_versions.c.constraint_id == row.id)
    versions = [_version(_read_version(text)) for text in connection.execute(query).scalars()]
    return ConstraintDetail(**_shown(row), versions=versions)


def _version(row: ConstraintRow) -> ConstraintVersion:
    return ConstraintVersion(
        version=row.version,
        expression=row.expression,
        kind=row.kind,
        weight=row.weight / WHOLE_WEIGHT,
        priority=row.priority,
        selector=selector_of(row),
        enabled=row.enabled,
        changed_at=timestamp(row.changed_ms),
        changed_by=row.changed_by,
        when=row.applies_when,
        until=row.applies_until,
        relax_after_s=row.relax_after_s,
    )


def _shown(row: ConstraintRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "project": row.project or None,
        "description": row.description,
        "expression": row.expression,
        "tree": _tree(row.expression),
        "form": row.form,
        "kind": row.kind,
        "weight": row.weight / WHOLE_WEIGHT,
        "priority": row.priority,
        "selector": selector_of(row),
        "vm": row.vm or None,
        "policy": row.policy,
        "enabled": row.enabled,
        "expires_at": timestamp(row.expires_ms) if row.expires_ms is not None else None,
        "version": row.version,
        "created_at": timestamp(row.created_ms),
        "created_by": row.created_by,
        "changed_at": timestamp(row.changed_ms),
        "changed_by": row.changed_by,
        "holds": row.holds,
        "when": row.applies_when,
        "until": row.applies_until,
        "time_zone": row.time_zone,
        "dwell_s": row.dwell_s,
        "active": row.active is not False,
        "switched_at": timestamp(row.switched_ms) if row.switched_ms is not None else None,
        "relax_after_s": row.relax_after_s,
    }


def selector_of(row: ConstraintRow) -> dict[str, str]:
    """Return the labels that VMs must have for a constraint to be for them."""
    return _selector.decode(row.selector) if row.selector else {}


def _tree(expression: str) -> dict[str, Any] | None:
    """Return an expression as a tree; None where a tree cannot say it."""
    try:
        return to_tree(parse(expression), expression)
    except RuleError:
        return None
