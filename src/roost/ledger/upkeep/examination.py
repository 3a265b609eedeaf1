"""What a doctor finds in a ledger, and the form of most of its questions.

Whoever owns rows asks about them (`Part.examine`). A finding is a broken invariant, so a bug; a
trouble is the fleet's, and somebody must see to it: a silent host, a VM in doubt; a note is worth
knowing but can come about rightly. Most questions are queries whose rows are all wrong (`Wrong`).
Sums are made by the database; what it cannot sum is read in pages, so memory does not grow with the
number of VMs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, func, select

#: Findings of one check that are told one by one.
MOST_TOLD = 20


@dataclass(slots=True)
class Examination:
    """What was looked at, by the name of the check, and what is wrong or worth knowing."""

    checked: dict[str, int] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)
    troubles: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def count(self, check: str, number: int) -> None:
        """Record how many rows a check looked at."""
        self.checked[check] = self.checked.get(check, 0) + int(number)

    def find(self, check: str, message: str) -> None:
        """Record a broken invariant."""
        self._tell(self.findings, check, message)

    def trouble(self, check: str, message: str) -> None:
        """Record what the ledger holds rightly and somebody must see to."""
        self._tell(self.troubles, check, message)

    def note(self, check: str, message: str) -> None:
        """Record a note: worth knowing, and nothing is broken."""
        self._tell(self.notes, check, message)

    def _tell(self, told: list[tuple[str, str]], check: str, message: str) -> None:
        already = sum(1 for name, _ in told if name == check)
        if already < MOST_TOLD:
            told.append((check, message))
        elif already == MOST_TOLD:
            told.append((check, f"more than {MOST_TOLD}; the rest is not listed"))


class Wrong(NamedTuple):
    """A query whose rows are all wrong, and how to say it."""

    check: str
    query: Select[Any]
    say: Callable[..., str]


def none_of(connection: Connection, found: Examination, questions: Sequence[Wrong]) -> None:
    """Record every row that one of these queries finds as broken."""
    for check, query, say in questions:
        for row in connection.execute(query):
            found.find(check, say(*row))


def has_none(table: Table, *where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Say that a table has no such row.

    A count is asked for each row by a key. NOT EXISTS may become a join, and with a limit, and
    without statistics, one that goes through the table for each row: minutes at 100,000 VMs.
    """
    return select(func.count()).select_from(table).where(*where).scalar_subquery() == 0


def never(check: str, query: Select[Any], say: Callable[..., str]) -> Wrong:
    """Return the question whether a query has rows, as far as they are told one by one."""
    return Wrong(check, query.limit(MOST_TOLD + 1), say)
