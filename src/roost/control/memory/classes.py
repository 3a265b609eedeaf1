"""The priority classes of the ledger as this process knows them: by name, and the default one."""

import difflib

from sqlalchemy import Connection

from roost.base.errors import InvalidRequest, NotFound
from roost.ledger.schema.changes import PRIORITY_CLASSES, Changes
from roost.ledger.schema.rows import PriorityClassRow
from roost.ledger.schema.tables import priority_classes
from roost.ledger.writes.statements import find_rows


class PriorityClasses:
    """All priority classes, kept current by events."""

    def __init__(self) -> None:
        self.rows: dict[str, PriorityClassRow] = {}
        self.default: PriorityClassRow | None = None

    def load(self, connection: Connection) -> None:
        """Read all classes from one view."""
        found = find_rows(connection, priority_classes, {})
        self.rows = {row["name"]: PriorityClassRow(**row) for row in found}
        self._find_default()

    def follow(self, changes: Changes) -> bool:
        """Apply one event; say whether a class is different."""
        changed = changes.of(PRIORITY_CLASSES)
        for name, row in changed.items():
            if row is None:
                self.rows.pop(name, None)
            else:
                self.rows[name] = row
        if changed:
            self._find_default()
        return bool(changed)

    def _find_default(self) -> None:
        defaults = (row for _, row in sorted(self.rows.items()) if row.is_default)
        self.default = next(defaults, None)

    def named(self, name: str) -> PriorityClassRow:
        """Return the class of a name; one that is unknown is refused with the closest there is."""
        found = self.rows.get(name)
        if found is None:
            close = difflib.get_close_matches(name, sorted(self.rows), n=1)
            raise NotFound(
                f"no priority class {name!r}",
                priority_class=name,
                hint=f"Maybe {close[0]!r}?" if close else None,
            )
        return found

    def given(self, name: str | None, priority: int) -> tuple[int, str]:
        """Return priority and class of a VM that asks for these; with neither, of the default.

        A class and another number beside it contradict each other.
        """
        if name is None:
            if priority or self.default is None:
                return priority, ""
            return self.default.value, self.default.name
        value = self.named(name).value
        if priority not in (0, value):
            raise InvalidRequest(
                f"priority {priority} is not that of the priority class {name!r}, {value}",
                hint="Maybe name the class alone.",
                priority=priority,
                priority_class=name,
            )
        return value, name
