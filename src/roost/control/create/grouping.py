"""Groups: find those a VM belongs to, and make those it defines.

A rule about labels becomes an implicit group of its own: every VM of the project that has those
labels is a member, those that exist already are enrolled in the same transaction, and the rules'
generation moves, so that no VM with labels is created elsewhere at the same time without it.
"""

import hashlib

import msgspec
from sqlalchemy import select, update

from roost.base.errors import Conflict, NotFound
from roost.control.memory.follower import Follower
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.ledger.rows import GroupRow
from roost.ledger.store import Store
from roost.ledger.tables import counters, groups, members, projects, vms
from roost.ledger.transaction import Tx, row_json
from roost.wire.bodies import AffinityBody, CreateVM, GroupBody


class Grouping:
    """Finds the groups of a VM in the ledger, and creates those that it defines."""

    def __init__(self, store: Store, roster: Roster, follower: Follower, lineage: Lineage) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._lineage = lineage

    async def groups_for(self, body: CreateVM, actor: str) -> tuple[str, ...]:
        """Return the ids of all groups that a VM belongs to, made where it defines them."""
        found = set()
        for group in body.groups:
            if isinstance(group, str):
                found.add(await self._named(body.project, group))
            else:
                found.add(await self._defined(explicit(body.project, group), actor))
        for rule in body.affinity:
            found.add(await self._defined(implicit(body.project, rule), actor))
        if body.labels:
            found.update(self._roster.matching_groups(body.project, body.labels))
        if found:
            self._lineage.require_settled()
        return tuple(sorted(found))

    def groups_if_known(self, body: CreateVM) -> tuple[list[GroupRow], tuple[str, ...]]:
        """Return what `groups_for` would, without making any: new groups, and all ids."""
        wanted = [explicit(body.project, g) for g in body.groups if isinstance(g, GroupBody)]
        wanted += [implicit(body.project, rule) for rule in body.affinity]
        found = {row.id for row in wanted}
        for group in body.groups:
            if isinstance(group, str):
                group_id = f"{body.project}/{group}"
                if group_id not in self._roster.groups:
                    raise _no_group(group)
                found.add(group_id)
        if body.labels:
            found.update(self._roster.matching_groups(body.project, body.labels))
        for row in wanted:
            self._same(row)
        new = [row for row in wanted if row.id not in self._roster.groups]
        return new, tuple(sorted(found))

    def still_valid(self, body: CreateVM, groups: tuple[str, ...]) -> tuple[str, ...]:
        """Return the groups without label rules that are gone; raises Conflict for those it named.

        What a create found when it came may have been changed or deleted before it is placed.
        """
        wanted = [explicit(body.project, g) for g in body.groups if isinstance(g, GroupBody)]
        wanted += [implicit(body.project, rule) for rule in body.affinity]
        for row in wanted:
            self._same(row)
        named = {f"{body.project}/{g}" for g in body.groups if isinstance(g, str)}
        named |= {row.id for row in wanted}
        for group in groups:
            if group in named and group not in self._roster.groups:
                name = group.partition("/")[2]
                raise Conflict(f"the group {name!r} was deleted meanwhile", group=name)
        return tuple(group for group in groups if group in self._roster.groups)

    async def _named(self, project: str, name: str) -> str:
        group_id = f"{project}/{name}"
        if group_id not in self._roster.groups:
            await self._follower.catch_up()
        if group_id not in self._roster.groups:
            raise _no_group(name)
        return group_id

    async def _defined(self, row: GroupRow, actor: str) -> str:
        if row.id not in self._roster.groups:
            await self._store.write(lambda tx: _make(tx, row), actor)
            await self._follower.catch_up()
        self._same(row)
        return row.id

    def _same(self, row: GroupRow) -> None:
        known = self._roster.groups.get(row.id)
        if known is None:
            return
        for name in ("rule", "scope", "hard", "max_skew", "weight"):
            if getattr(known, name) != getattr(row, name):
                raise Conflict(
                    f"group {row.name!r} exists with {name} {getattr(known, name)!r}, "
                    f"not {getattr(row, name)!r}",
                    group=row.name,
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


def _make(tx: Tx, row: GroupRow) -> None:
    # The rules' counter is the lock of all definitions: two processes never make one group twice.
    tx.row(select(counters).where(counters.c.name == "rules").with_for_update())
    if tx.row(select(groups.c.id).where(groups.c.id == row.id)) is not None:
        return
    project = select(projects.c.name).where(projects.c.name == row.project)
    if tx.row(project.with_for_update(read=True)) is None:
        raise NotFound(f"no project {row.project!r}", project=row.project)
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
        bump = update(counters).where(counters.c.name == "rules")
        bump = bump.values(value=counters.c.value + 1)
        rules = tx.connection.execute(bump.returning(counters.c.value)).scalar_one()
        changes["members"] = {f"{row.id}|{vm}": {} for vm in enrolled}
        changes["rules"] = rules
    tx.event("group.created", f"group/{row.id}", changes, project=row.project)  # type: ignore[arg-type]


def _no_group(name: str) -> NotFound:
    return NotFound(
        f"no group {name!r}; the first VM of a group brings its rule along",
        hint='Maybe {"name": ..., "rule": "anti-affinity"} instead of the name alone.',
        group=name,
    )
