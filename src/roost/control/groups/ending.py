"""A rule about labels ends when it has had no VM for a while, in one process for all.

VMs bring such rules along, and nobody asked for the groups that they became. Groups with a name of
their own stay until somebody deletes them, whoever made them: the next VM may name one.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from roost.base.clock import Clock
from roost.control.groups.defining import advance_rules, lock_rules
from roost.ledger.schema.rows import Changes
from roost.ledger.schema.tables import groups, members
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.upkeep.examination import has_none
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

#: How long a rule stays empty before it ends: a create that brought it may still be under way.
EMPTY_S = 3600.0
_LOOK_S = 300.0
#: Rules that one transaction ends.
_PIECE = 200

_EMPTY = select(groups.c.id, groups.c.generation).where(
    groups.c.selector != "", has_none(members, members.c.group_id == groups.c.id)
)


class EmptyRules(Part):
    """Ends rules about labels that have had no member for an hour."""

    singleton: Singleton
    look_s = _LOOK_S

    def __init__(self, store: Store, clock: Clock, singleton: Singleton) -> None:
        self._store, self._clock, self.singleton = store, clock, singleton
        self._empty_since: dict[tuple[str, int], float] = {}  # by id and generation

    def gained(self) -> None:
        """Count from now on: another process may have looked meanwhile."""
        self._empty_since.clear()

    async def look(self) -> None:
        """End the rules that were empty, and unchanged, at every look of the last hour."""
        now = self._clock.monotonic()
        found = await self._store.read(_empty)
        self._empty_since = {rule: self._empty_since.get(rule, now) for rule in found}
        over = [rule for rule, since in self._empty_since.items() if now - since >= EMPTY_S]
        for begin in range(0, len(over), _PIECE):
            piece = over[begin : begin + _PIECE]
            await self._store.write(lambda tx: self._end(tx, piece))  # noqa: B023

    def _end(self, tx: Tx, rules: Sequence[tuple[str, int]]) -> None:
        self.singleton.check(tx)
        if release_before_may_be_here(tx.connection):
            return  # such a process does not follow a rule that ends
        lock_rules(tx)
        for group_id, generation in rules:
            row = tx.find(groups, lock=True, id=group_id)
            if row is None or row["generation"] != generation:
                continue
            if tx.find_all(members, group_id=group_id):
                continue
            tx.remove(groups, id=group_id)
            changes: Changes = {"groups": {group_id: None}}
            changes["rules"] = advance_rules(tx)  # type: ignore[assignment]
            note = "no VM has its labels any more"
            tx.event(
                "group.deleted", f"group/{group_id}", changes, project=row["project"], note=note
            )


def _empty(connection: Connection) -> list[tuple[str, int]]:
    return [(row.id, row.generation) for row in connection.execute(_EMPTY)]
