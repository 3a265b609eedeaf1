"""What a doctor asks about projects: what they use is what their VMs ask for."""

from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, func, select

from roost.ledger.schema.amounts import AMOUNTS, LIMITS
from roost.ledger.schema.tables import projects, vms
from roost.ledger.upkeep.examination import Examination, has_none, never, none_of


@cache
def _asked_of_projects() -> Select[Any]:
    sums = (
        select(
            vms.c.project.label("project"),
            *(func.sum(vms.c[name]).label(name) for name in AMOUNTS),
            func.count().label("vms"),
        )
        .group_by(vms.c.project)
        .subquery()
    )
    query = select(
        projects,
        *(func.coalesce(sums.c[name], 0).label(f"{name}_asked") for name in LIMITS),
    ).outerjoin(sums, sums.c.project == projects.c.name)
    return query.order_by(projects.c.name)


_HOMELESS = never(
    "quotas",
    select(vms.c.id).where(has_none(projects, projects.c.name == vms.c.project)),
    lambda vm: f"VM {vm} belongs to no project",
)


def check_projects(connection: Connection, found: Examination) -> None:
    """See whether what a project uses is the sum over its VMs, also over those that wait."""
    for row in connection.execute(_asked_of_projects()).mappings():
        found.count("quotas", 1)
        for name in LIMITS:
            used, quota, asked = (
                row[f"{name}_used"],
                row[f"{name}_quota"],
                int(row[f"{name}_asked"]),
            )
            if used != asked:
                found.find(
                    "quotas",
                    f"project {row['name']!r} uses {used} {name}, its VMs ask for {asked}",
                )
            if quota is not None and used > quota:
                found.note(
                    "quota_below_use",
                    f"project {row['name']!r} uses {used} {name} of {quota}",
                )
    none_of(connection, found, [_HOMELESS])
