"""Read policies from one view of the ledger, as users see them."""

import difflib
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.ledger.schema.rows import PolicyRow
from roost.ledger.schema.tables import policies, policy_versions, projects
from roost.ledger.writes.statements import find_row
from roost.model.policies import WHOLE_RATIO, Bundle
from roost.model.rules import WHOLE_WEIGHT
from roost.parts.access import Principal
from roost.wire.bundles import read_bundle
from roost.wire.policies import (
    ListPolicies,
    PolicyBody,
    PolicyDetail,
    PolicyPage,
    PolicyRuleBody,
    PolicyVersion,
    SpreadBody,
)

_read_version: Callable[[str], PolicyRow] = msgspec.json.Decoder(PolicyRow).decode
_VERSIONS = select(policy_versions.c.body).order_by(policy_versions.c.version.desc())
_USERS = select(projects.c.policy, projects.c.name).order_by(projects.c.name)


def policy_row(connection: Connection, name: str, *, lock: bool = False) -> PolicyRow:
    """Return the policy of this name."""
    found = find_row(connection, policies, {"name": name}, lock=lock)
    if found is None:
        known = connection.execute(select(policies.c.name).order_by(policies.c.name)).scalars()
        close = difflib.get_close_matches(name, list(known), n=1)
        raise NotFound(
            f"there is no policy {name!r}",
            policy=name,
            hint=f"Maybe {close[0]!r}?" if close else None,
        )
    return PolicyRow(**found)


def version_row(connection: Connection, name: str, version: int) -> PolicyRow:
    """Return a policy as it was at one version.

    The policy is there, so a version that is not is a mistake of the request, not a 404.
    """
    found = find_row(connection, policy_versions, {"policy": name, "version": version})
    if found is None:
        raise InvalidRequest(
            f"policy {name!r} has no version {version}, or it is kept no longer",
            policy=name,
            version=version,
        )
    return _read_version(found["body"])


def listed(connection: Connection, asked: ListPolicies, who: Principal) -> PolicyPage:
    """Return policies in the order of their names."""
    query = select(policies).order_by(policies.c.name).limit(asked.limit + 1)
    if asked.after is not None:
        query = query.where(policies.c.name > asked.after)
    found = [PolicyRow(**row) for row in connection.execute(query).mappings()]
    page = found[: asked.limit]
    users = _users(connection, who)
    return PolicyPage(
        policies=[PolicyBody(**_shown(row, users)) for row in page],
        next=page[-1].name if len(found) > asked.limit else None,
    )


def detail(connection: Connection, row: PolicyRow, who: Principal) -> PolicyDetail:
    """Return a policy with its versions, the newest first."""
    query = _VERSIONS.where(policy_versions.c.policy == row.name)
    versions = [_version(_read_version(text)) for text in connection.execute(query).scalars()]
    return PolicyDetail(**_shown(row, _users(connection, who)), versions=versions)


def _users(connection: Connection, who: Principal) -> dict[str, list[str]]:
    """Return the projects that have each policy as their default, of those that one may see."""
    found: dict[str, list[str]] = {}
    for policy, project in connection.execute(_USERS.where(projects.c.policy.is_not(None))):
        if who.project in (None, project):
            found.setdefault(policy, []).append(project)
    return found


def bundle_fields(bundle: Bundle) -> dict[str, Any]:
    """Return what a policy says as answers show it."""
    spread = bundle.spread
    return {
        "strategy": bundle.strategy,
        "weights": dict(bundle.weights) or None,
        "rules": [
            PolicyRuleBody(
                name=rule.name,
                expression=rule.expression,
                kind="hard" if rule.weight is None else "soft",
                weight=1.0 if rule.weight is None else rule.weight / WHOLE_WEIGHT,
                priority=rule.priority,
                description=rule.description,
            )
            for rule in bundle.rules
        ],
        "overcommit": {name: ratio / WHOLE_RATIO for name, ratio in bundle.overcommit.items()}
        or None,
        "spread": spread
        and SpreadBody(
            scope=spread.scope,  # type: ignore[arg-type]  # one of these words
            kind="hard" if spread.hard else "soft",
            max_skew=spread.max_skew,
            weight=spread.weight,
        ),
        "preemption": bundle.preemption,
        "restart": bundle.restart,
    }


def _shown(row: PolicyRow, users: dict[str, list[str]]) -> dict[str, Any]:
    return {
        **bundle_fields(read_bundle(row.bundle)),
        "name": row.name,
        "description": row.description,
        "version": row.version,
        "projects": users.get(row.name, []),
        "created_at": timestamp(row.created_ms),
        "created_by": row.created_by,
        "changed_at": timestamp(row.changed_ms),
        "changed_by": row.changed_by,
    }


def _version(row: PolicyRow) -> PolicyVersion:
    return PolicyVersion(
        **bundle_fields(read_bundle(row.bundle)),
        version=row.version,
        description=row.description,
        changed_at=timestamp(row.changed_ms),
        changed_by=row.changed_by,
    )
