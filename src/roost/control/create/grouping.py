"""The groups of a VM that is created: those it names, those it defines, those its labels say."""

from roost.base.errors import Conflict, NotFound
from roost.control.groups.defining import define, explicit, implicit, of_policy
from roost.control.memory.follower import Follower
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.policies.writing import members_of
from roost.ledger.schema.rows import GroupRow
from roost.ledger.store import Store
from roost.model.policies import PolicySpread
from roost.wire.bodies import CreateVM, GroupBody


class Grouping:
    """Finds the groups of a VM in the ledger, and creates those that it defines."""

    def __init__(self, store: Store, roster: Roster, follower: Follower, lineage: Lineage) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._lineage = lineage

    async def groups_for(
        self, body: CreateVM, actor: str, policy: str = "", spread: PolicySpread | None = None
    ) -> tuple[str, ...]:
        """Return the ids of all groups that a VM belongs to, made where it defines them."""
        found = set()
        if spread is not None:
            row = of_policy(body.project, policy, spread)
            if row.id not in self._roster.groups:
                await self._store.write(
                    lambda tx: define(tx, row, lambda tx: members_of(tx, policy, body.project)),
                    actor,
                )
                await self._follower.catch_up()
            found.add(row.id)
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

    def groups_if_known(
        self, body: CreateVM, policy: str = "", spread: PolicySpread | None = None
    ) -> tuple[list[GroupRow], tuple[str, ...]]:
        """Return what `groups_for` would, without making any: new groups, and all ids."""
        wanted = [of_policy(body.project, policy, spread)] if spread is not None else []
        wanted += [explicit(body.project, g) for g in body.groups if isinstance(g, GroupBody)]
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
            await self._store.write(lambda tx: define(tx, row), actor)
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


def _no_group(name: str) -> NotFound:
    return NotFound(
        f"no group {name!r}; the first VM of a group brings its rule along",
        hint=f"Maybe `roost group create {name} anti-affinity` first, or its rule with it: "
        f"--group '{name} anti-affinity'.",
        group=name,
    )
