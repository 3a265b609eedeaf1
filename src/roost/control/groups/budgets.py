"""Disruption budgets of groups: how many members may be away at once, and who keeps to it.

A member is away while it is moved, was stopped by us and has not run again, has lost its host and
has not been seen on another one yet, or is on a host that is not heard of. Members that their owner
stopped, or that never had a host, are not. Whoever is about to move or stop a member locks the
group's row first and counts then: two writers never both take the last of a budget. Losses are not
asked: they may pass a budget, and then nothing more is disrupted until enough members are back.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, exists, func, or_, select

from roost.base.errors import Conflict
from roost.ledger.schema.rows import GroupRow
from roost.ledger.schema.tables import displaced, groups, hosts, members, vms
from roost.ledger.writes.transaction import Tx

#: The whole of a share.
WHOLE = 1000

_OFFLINE = select(hosts.c.number).where(hosts.c.health == "offline")
_AWAY = and_(
    vms.c.desired != "absent",
    or_(
        vms.c.phase != "",
        exists().where(displaced.c.vm == vms.c.id),
        vms.c.host.in_(_OFFLINE),
        # One that never had a host is of its first generation, until somebody changes it; one that
        # was placed again has not been seen there until its agent says so.
        and_(
            vms.c.desired != "stopped",
            vms.c.generation > 1,
            or_(vms.c.host.is_(None), vms.c.observed_generation == 0),
        ),
    ),
)


class Spending(NamedTuple):
    """A group's budget as a number, and how much of it is taken."""

    allowed: int
    away: int

    @property
    def left(self) -> int:
        """Return how many more members may be disrupted."""
        return max(0, self.allowed - self.away)


class BudgetSpent(Conflict):
    """A VM that may not be disrupted now: its group has no more to spare."""


def allowed_of(budget: int | None, share: int | None, count: int) -> int | None:
    """Return how many of so many members may be away at once; None: there is no budget.

    A share is rounded up, so that of a small group one may still be moved.
    """
    if budget is not None:
        return budget
    return None if share is None else -(-share * count // WHOLE)


def spending(connection: Connection, ids: Iterable[str] | None = None) -> dict[str, Spending]:
    """Return how the budgets of groups stand: of these groups, or of all that have one."""
    found = {}
    for row in connection.execute(_query(ids)).mappings():
        allowed = allowed_of(row["budget"], row["budget_share"], row["members"])
        if allowed is not None:
            found[row["id"]] = Spending(allowed, row["away"])
    return found


def _query(ids: Iterable[str] | None) -> Select[Any]:
    count = select(func.count()).where(members.c.group_id == groups.c.id)
    of = members.join(vms, vms.c.id == members.c.vm)
    away = select(func.count()).select_from(of).where(members.c.group_id == groups.c.id, _AWAY)
    query = select(
        groups.c.id,
        groups.c.budget,
        groups.c.budget_share,
        count.correlate(groups).scalar_subquery().label("members"),
        away.correlate(groups).scalar_subquery().label("away"),
    ).where(or_(groups.c.budget.is_not(None), groups.c.budget_share.is_not(None)))
    return query if ids is None else query.where(groups.c.id.in_(list(ids)))


def keep_budgets(tx: Tx, disrupted: Mapping[str, str]) -> None:
    """Refuse to disrupt VMs, by id with their names, beyond what budgets of their groups leave.

    The groups' rows are locked until the end of the transaction, in the order of their ids.
    """
    of: dict[str, list[str]] = {}
    for vm in sorted(disrupted):
        for row in tx.find_all(members, vm=vm):
            of.setdefault(row["group_id"], []).append(vm)
    for group, asked in sorted(of.items()):
        found = tx.find(groups, lock=True, id=group)
        stands = spending(tx.connection, [group]).get(group)
        if found is not None and stands is not None:
            refuse_beyond(GroupRow(**found), stands, asked, disrupted)


def refuse_beyond(
    group: GroupRow, stands: Spending, asked: list[str], names: Mapping[str, str]
) -> None:
    """Refuse to disrupt more members of a group than its budget leaves."""
    if len(asked) <= stands.left:
        return
    who = ", ".join(repr(names[vm]) for vm in asked[:5])
    raise BudgetSpent(
        f"the disruption budget of group {group.name!r} allows {stands.allowed} members to be away "
        f"at once, and {stands.away} are: {who} must stay for now",
        group=group.name,
        allowed=stands.allowed,
        away=stands.away,
        hint="Maybe wait until others are back, or give the group a larger budget.",
    )
