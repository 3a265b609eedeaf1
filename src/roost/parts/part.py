"""The protocol of a part: one use case as a plane runs it.

A plane is an ordered tuple of parts. It loads them from one view of the ledger, tells them of every
event, runs their loops, looks after what one process does for all, deletes what is too old, asks
them when a doctor comes and opens their routes, always in that order. Every hook is optional: what
a part does not override does nothing. A part never reaches for another by way of the plane; what it
needs it is given when it is made.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from roost.ledger.schema.changes import ChangedTable, Changes
from roost.ledger.schema.rows import Event
from roost.ledger.upkeep.examination import Examination
from roost.ledger.upkeep.retention import Kept
from roost.parts.routes import Route
from roost.parts.singleton import Singleton


@dataclass(frozen=True, slots=True)
class Loop:
    """Work that every process repeats; without a pause it goes on by itself until cancelled."""

    work: Callable[[], Awaitable[object]]
    pause_s: float | None = None


class Part:
    """One use case: what it keeps, what it does by itself and what it can be asked."""

    #: Tables whose changes it wants to be told of in `follow`, decoded.
    follows: Sequence[ChangedTable[Any]] = ()
    #: Rows of its own that are kept only for a while; one process deletes the others for all.
    keeps: Sequence[Kept] = ()
    #: The lease under which it looks; without one it never does.
    singleton: Singleton | None = None
    #: The least time between two looks; they are as frequent as the plane's when this is 0.
    look_s: float = 0.0
    #: Tables whose changes make it look even when it is not due; all of them are folded.
    wakes: Sequence[ChangedTable[Any]] = ()

    # What it keeps in memory

    def load(self, connection: Connection) -> None:
        """Load this part's memory from one consistent view, when the process starts."""

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to what this part remembers.

        When it raises, nothing moves on: the same event comes again, here first, until it is taken.
        """

    def followed(self) -> None:
        """Act on the events just applied: no more are at hand for now."""

    # What it does by itself

    def loops(self) -> Sequence[Loop]:
        """Return the background loops that every process runs."""
        return ()

    def gained(self) -> None:
        """Reset after gaining the lease: another process may have looked meanwhile."""

    def is_due(self) -> bool:
        """Say from memory whether something may be due though none of `wakes` has changed."""
        return True

    async def may_look(self) -> bool:
        """Say whether this part may look now."""
        return True

    async def look(self) -> None:
        """Run the singleton work of this part, where its lease is held."""

    # What it can be asked

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return ()

    def examine(self, connection: Connection, found: Examination) -> None:
        """Add findings, troubles and notes of this part to the doctor's examination."""
