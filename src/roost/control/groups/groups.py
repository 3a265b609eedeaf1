"""VM groups as objects: list, show, create, give another rule, add and remove members, delete.

A group's generation moves with every change that a placement depends on, so a create or a move that
was decided on the group as it was before is decided anew, by whichever process.

A hard rule holds from the moment it is set: a change by which a member, where it is now, would
break it is refused, and the refusal names VM and host. A soft rule may always be set. Evenness of
a spread is what placing keeps, not what members are refused for: `holds` says how it is. Labels
alone decide who belongs to a rule about labels: such a group has neither its rule nor its members
changed by hand, and can be deleted once nobody is in it.
"""

from collections.abc import Sequence
from hashlib import sha256
from math import ceil
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select
from sqlalchemy.sql.elements import ColumnElement

from roost.base.errors import Conflict, InvalidRequest, LedgerUnsettled, NotFound
from roost.control.groups.budgets import WHOLE
from roost.control.groups.checking import check_groups
from roost.control.groups.defining import advance_rules, define, lock_rules
from roost.control.groups.reading import MOST_TOLD, detail, group_row, read_places, summary
from roost.control.groups.routes import group_routes
from roost.control.groups.rules import Rule, broken
from roost.control.memory.restore_detect import Lineage, member_is_doubted
from roost.control.vms.lookup import relock, vm_row
from roost.ledger.schema.rows import Changes, GroupRow
from roost.ledger.schema.tables import groups, members
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.idempotency import use_key
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.groups import (
    CreateGroup,
    GroupDetail,
    GroupPage,
    GroupVMs,
    ListGroups,
    SetBudget,
    SetGroupRule,
)

_encode = msgspec.json.Encoder(order="sorted").encode
_COUNT = (
    select(func.count())
    .where(members.c.group_id == groups.c.id)
    .correlate(groups)
    .scalar_subquery()
)


class Groups(Part):
    """VM groups as objects: listed, created, changed by hand, deleted."""

    def __init__(self, store: Store, lineage: Lineage) -> None:
        self._store, self._lineage = store, lineage

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return group_routes(self)

    def examine(self, connection: Connection, found: Examination) -> None:
        """Examine that hard rules hold, and that members are VMs of groups that exist."""
        check_groups(connection, found)

    # Reading

    async def list(self, asked: ListGroups, who: Principal) -> GroupPage:
        """Return groups in the order of project and name."""
        where: list[ColumnElement[bool]] = []
        project = asked.project
        if who.project is not None:
            if project not in (None, who.project):
                return GroupPage(groups=[])
            project = who.project
        if project is not None:
            where.append(groups.c.project == project)
        if asked.name is not None:
            where.append(groups.c.name == asked.name)
        if asked.rule is not None:
            where.append(groups.c.rule == asked.rule)
        if asked.after is not None:
            where.append(groups.c.id > asked.after)
        query = select(groups, _COUNT.label("number")).where(*where).order_by(groups.c.id)

        def question(connection: Connection) -> GroupPage:
            found = [
                dict(row) for row in connection.execute(query.limit(asked.limit + 1)).mappings()
            ]
            page = found[: asked.limit]
            more = len(found) > asked.limit
            counts = [row.pop("number") for row in page]
            return GroupPage(
                groups=[summary(GroupRow(**row), n) for row, n in zip(page, counts, strict=True)],
                next=page[-1]["id"] if more else None,
            )

        return await self._store.read(question)

    async def get(
        self,
        ref: str,
        project: str | None,
        who: Principal,
        most: int = 100,
        after: str | None = None,
    ) -> GroupDetail:
        """Return one group with its members, and whether its rule holds now."""

        def question(connection: Connection) -> GroupDetail:
            return detail(connection, group_row(connection, ref, project, who), most, after)

        return await self._store.read(question)

    # Changing

    async def create(
        self, body: CreateGroup, who: Principal, key: str | None = None
    ) -> GroupDetail:
        """Make a group without members; the same key with the same body gives the first answer."""
        project = body.project or who.home
        if who.project not in (None, project):
            raise NotFound(f"no project {project!r}", project=project)
        row = GroupRow(id=f"{project}/{body.name}", project=project, name=body.name, **_rule(body))
        scope, digest = f"group:{who.project or who.name}", sha256(_encode(body)).hexdigest()

        def change(tx: Tx) -> GroupDetail:
            earlier = use_key(tx, scope, key, digest, row.id)
            if earlier is None and not define(tx, row):
                raise Conflict(
                    f"there is a group {body.name!r} in project {project!r} already",
                    group=body.name,
                    project=project,
                )
            found = tx.find(groups, id=row.id)
            if found is None:
                raise Conflict(
                    f"the idempotency key made group {body.name!r}, which was deleted since",
                    group=body.name,
                )
            return detail(tx.connection, GroupRow(**found))

        return await self._store.write(change, who.name)

    async def set_rule(
        self, ref: str, project: str | None, body: SetGroupRule, who: Principal
    ) -> GroupDetail:
        """Give a group another rule; a hard one is refused unless it holds now."""
        values = _rule(body)
        if body.hard:
            self._lineage.require_settled()

        def change(tx: Tx) -> GroupDetail:
            row = _locked(tx, ref, project, who, "its rule is part of what it is")
            if all(getattr(row, name) == value for name, value in values.items()):
                return detail(tx.connection, row)
            now = _advance(tx, row, **values)
            _require_holds(tx, now, "the rule is refused")
            tx.event(
                "group.rule_set", f"group/{row.id}", {"groups": {row.id: now}}, project=row.project
            )
            return detail(tx.connection, now)

        return await self._store.write(change, who.name)

    async def set_budget(
        self, ref: str, project: str | None, body: SetBudget, who: Principal
    ) -> GroupDetail:
        """Set how many members may be away at once, or that there is no limit."""
        if body.at_most is not None and body.share is not None:
            raise InvalidRequest("a budget is a number of members or a share of them, not both")
        share = None if body.share is None else ceil(body.share * WHOLE)
        values = {"budget": body.at_most, "budget_share": share}

        def change(tx: Tx) -> GroupDetail:
            row = group_row(tx.connection, ref, project, who, lock=True)
            _refuse_beside_older(tx)
            count = len(tx.find_all(members, group_id=row.id))
            if body.at_most is not None and 0 < count < body.at_most:
                raise Conflict(
                    f"the group {row.name!r} has {count} members: a budget of {body.at_most} "
                    "limits nothing",
                    hint="Maybe a share, which grows with the group.",
                    group=row.name,
                    members=count,
                )
            if all(getattr(row, name) == value for name, value in values.items()):
                return detail(tx.connection, row)
            now = _advance(tx, row, **values)
            tx.event(
                "group.budget_set", f"group/{row.id}", {"groups": {row.id: now}},
                project=row.project,
            )  # fmt: skip
            return detail(tx.connection, now)

        return await self._store.write(change, who.name)

    async def add(
        self, ref: str, project: str | None, body: GroupVMs, who: Principal
    ) -> GroupDetail:
        """Make VMs members; those that are members already stay what they are."""
        self._lineage.require_settled()

        def change(tx: Tx) -> GroupDetail:
            found = group_row(tx.connection, ref, project, who)
            ids = _lock_vms(tx, body.vms, found.project, who, present=True)
            row = _locked(tx, ref, project, who, "labels decide who belongs to it")
            known = {each["vm"] for each in tx.find_all(members, group_id=row.id)}
            new = [vm for vm in ids if vm not in known]
            if not new:
                return detail(tx.connection, row)
            for vm in new:
                tx.insert(members, {"group_id": row.id, "vm": vm})
            now = _advance(tx, row)
            _require_holds(tx, now, "no VM was added")
            _say_members(tx, "group.joined", now, new, {})
            return detail(tx.connection, now)

        return await self._store.write(change, who.name)

    async def remove(
        self, ref: str, project: str | None, body: GroupVMs, who: Principal
    ) -> GroupDetail:
        """Let VMs leave a group; those that are no members are left alone."""

        def change(tx: Tx) -> GroupDetail:
            found = group_row(tx.connection, ref, project, who)
            ids = _lock_vms(tx, body.vms, found.project, who, present=False)
            row = _locked(tx, ref, project, who, "labels decide who belongs to it")
            gone = [vm for vm in ids if tx.remove(members, group_id=row.id, vm=vm)]
            if not gone:
                return detail(tx.connection, row)
            now = _advance(tx, row)
            _say_members(tx, "group.left", now, gone, None)
            return detail(tx.connection, now)

        return await self._store.write(change, who.name)

    async def delete(
        self, ref: str, project: str | None, who: Principal, *, force: bool = False
    ) -> None:
        """Delete a group; one that has members only by force, and then they leave it."""

        def change(tx: Tx) -> None:
            lock_rules(tx)
            row = group_row(tx.connection, ref, project, who, lock=True)
            _refuse_beside_older(tx)
            left = [each["vm"] for each in tx.find_all(members, group_id=row.id)]
            if left and (row.selector or not force):
                raise _has_members(row, len(left))
            changes: Changes = {"groups": {row.id: None}}
            if left:
                tx.remove(members, group_id=row.id)
                changes["members"] = {f"{row.id}|{vm}": None for vm in left}
            tx.remove(groups, id=row.id)
            if row.selector:
                changes["rules"] = advance_rules(tx)  # type: ignore[assignment]
            tx.event("group.deleted", f"group/{row.id}", changes, project=row.project)

        await self._store.write(change, who.name)


def _rule(body: SetGroupRule) -> dict[str, Any]:
    return {name: getattr(body, name) for name in ("rule", "scope", "hard", "max_skew", "weight")}


def _locked(tx: Tx, ref: str, project: str | None, who: Principal, why: str) -> GroupRow:
    """Return a group that may be changed by hand, locked."""
    row = group_row(tx.connection, ref, project, who, lock=True)
    if row.selector:
        raise Conflict(f"{row.name!r} is a rule about labels: {why}", group=row.name)
    _refuse_beside_older(tx)
    return row


def _refuse_beside_older(tx: Tx) -> None:
    """Refuse what processes of the release before would not follow: they keep to what they know."""
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "groups cannot be changed while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def _lock_vms(
    tx: Tx, refs: Sequence[str], project: str, who: Principal, *, present: bool
) -> list[str]:
    """Return the ids of VMs, all of them locked, so that none goes or moves meanwhile."""
    ids = sorted({vm_row(tx.connection, ref, project, who).id for ref in refs})
    for vm_id in ids:
        vm = relock(tx, vm_id)
        if present and vm.desired == "absent":
            raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    return ids


def _require_holds(tx: Tx, row: GroupRow, refused: str) -> None:
    """Refuse a change by which a hard rule would not hold for the members where they are."""
    if not row.hard:
        return
    if member_is_doubted(tx, [row.id]):
        raise LedgerUnsettled(
            f"it is not known yet where every member of {row.name!r} is", group=row.name
        )
    wrong = broken(Rule(row.rule, row.scope, row.max_skew), read_places(tx.connection, row))
    if wrong:
        raise Conflict(
            f"{refused}: {wrong[0]}",
            hint="Maybe move the VM first, or make the rule soft.",
            group=row.name,
            broken=wrong[:MOST_TOLD],
        )


def _advance(tx: Tx, row: GroupRow, **values: Any) -> GroupRow:
    """Change a group and move its generation: whoever decided on it as it was decides anew."""
    changed = tx.change(groups, {"id": row.id}, generation=Plus(1), **values)
    assert changed is not None
    return GroupRow(**changed)


def _say_members(
    tx: Tx, kind: str, row: GroupRow, vms: Sequence[str], value: dict[str, object] | None
) -> None:
    changes: Changes = {
        "members": {f"{row.id}|{vm}": value for vm in vms},
        "group_generations": {row.id: row.generation},
    }
    tx.event(kind, f"group/{row.id}", changes, project=row.project)


def _has_members(row: GroupRow, count: int) -> Conflict:
    if row.selector:
        hint = "Maybe delete the VMs that have its labels first."
    else:
        hint = "Maybe let them leave first, or delete it with force."
    return Conflict(
        f"the group {row.name!r} still has {count} members",
        group=row.name,
        members=count,
        hint=hint,
    )
