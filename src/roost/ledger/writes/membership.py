"""Members of groups within an ordinary transaction: a group's generation moves with its members."""

from sqlalchemy import select

from roost.ledger.schema.rows import Changes
from roost.ledger.schema.tables import groups, members
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx


def advance_groups(tx: Tx, vm: str, changes: Changes) -> None:
    """Advance the generations of a VM's groups: a member of theirs has moved."""
    for row in tx.find_all(members, vm=vm):
        found = tx.change(groups, {"id": row["group_id"]}, generation=Plus(1))
        if found is not None:
            generations = changes.setdefault("group_generations", {})
            generations[row["group_id"]] = found["generation"]


def group_checks_hold(tx: Tx, vm: str, expected: tuple[tuple[str, int], ...]) -> bool:
    """Lock a VM's groups and say whether generations and members are as the placement saw them."""
    ids = [row["group_id"] for row in tx.find_all(members, vm=vm)]
    if ids != sorted(group for group, _ in expected):
        return False
    if not ids:
        return True
    current = select(groups.c.id, groups.c.generation).where(groups.c.id.in_(ids))
    rows = tx.rows(current.order_by(groups.c.id).with_for_update())
    return {row["id"]: row["generation"] for row in rows} == dict(expected)


def forget_members(tx: Tx, vm: str, changes: Changes) -> None:
    """Take a VM out of all its groups."""
    advance_groups(tx, vm, changes)
    rows = tx.find_all(members, vm=vm)
    if rows:
        tx.remove(members, vm=vm)
        changes["members"] = {f"{row['group_id']}|{vm}": None for row in rows}
