"""Change named rows of which every version is kept: constraints, and policies alike.

Rows, versions and the generation of the constraints go into one event.
"""

from typing import Any, NamedTuple

from sqlalchemy import Table

from roost.ledger.schema.rows import Changes, ConstraintRow, PolicyRow
from roost.ledger.writes.transaction import Tx, row_json


class Versioned(NamedTuple):
    """Rows of one kind, their key, and the table of their versions, which has a word for it."""

    rows: Table
    key: str
    versions: Table
    of: str
    most: int  # versions that are kept of one

    def change(self, tx: Tx, key: str, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Give a locked row of this version other values; return it as the next one."""
        values |= {"version": version + 1, "changed_ms": tx.at_ms, "changed_by": tx.actor}
        found = tx.change(self.rows, {self.key: key}, **values)
        assert found is not None
        return found

    def file(self, tx: Tx, key: str, row: ConstraintRow | PolicyRow) -> Changes:
        """File a row as its newest version; the oldest goes."""
        body, old = row_json(row), row.version - self.most
        tx.insert(self.versions, {self.of: key, "version": row.version, "body": body})
        filed: dict[str, Any] = {f"{key}|{row.version}": {"body": body}}
        if old > 0 and tx.remove(self.versions, **{self.of: key}, version=old):
            filed[f"{key}|{old}"] = None
        return {self.versions.name: filed, self.rows.name: {key: row}}

    def remove(self, tx: Tx, key: str) -> Changes:
        """Delete a locked row with its versions."""
        kept = [each["version"] for each in tx.find_all(self.versions, **{self.of: key})]
        tx.remove(self.versions, **{self.of: key})
        tx.remove(self.rows, **{self.key: key})
        filed = {f"{key}|{version}": None for version in kept}
        return {self.rows.name: {key: None}, self.versions.name: filed}


def say(tx: Tx, kind: str, subject: str, changes: Changes, generation: int, **told: Any) -> None:
    """Say a change of what is decided under, with the generation that it makes."""
    changes["constraints_generation"] = generation  # type: ignore[assignment]
    tx.event(kind, subject, changes, **told)
