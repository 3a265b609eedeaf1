"""Which parts may rest at a look of the plane: those that nothing concerns since they looked last.

A part that would ask the ledger at every look, mostly for nothing, names the tables whose changes
concern it (`Part.wakes`) and says from memory whether something is due by itself (`Part.is_due`).
It rests while neither is so, and asks nothing. Rows of these tables change only with an event, of
this process or another, and every event comes here, so nothing goes by unseen. Whatever is not
certain makes it look: a lease just gained, a look that failed or was not allowed, a follower that
is behind, a ledger that may be an old copy. And every part looks once in `MOST_REST_S` in any case.
"""

import logging
from collections.abc import Callable, Sequence

from roost.base.clock import Clock
from roost.ledger.schema.changes import Changes
from roost.ledger.schema.rows import Event
from roost.parts.part import Part

log = logging.getLogger("roost.parts")

#: The longest that a part rests; should it ever have missed its cause, this is how late it is.
MOST_REST_S = 60.0


class Resting(Part):
    """Follows events for all parts that rest, and says which of them must look."""

    def __init__(
        self, parts: Sequence[Part], clock: Clock, certain: Callable[[], bool] = lambda: True
    ) -> None:
        self._clock, self._certain = clock, certain
        self._concerned: dict[str, list[Part]] = {}
        for part in parts:
            for table in part.wakes:
                self._concerned.setdefault(table.name, []).append(part)
        self.follows = [table for part in parts for table in part.wakes]
        self._looked: dict[Part, float] = {}  # since when nothing has woken those that rest
        self._awake: set[tuple[str, ...]] = set()  # tables whose parts are all awake already

    def follow(self, event: Event, changes: Changes) -> None:
        """Wake the parts that an event concerns."""
        if changes.tables in self._awake:
            return
        self._awake.add(changes.tables)
        for table in changes.tables:
            for part in self._concerned.get(table, ()):
                self.wake(part)

    def wake(self, part: Part) -> None:
        """Let a part look at the next opportunity, whatever it remembers."""
        self._looked.pop(part, None)

    def begins(self, part: Part) -> None:
        """Record that a part begins to look: what happens from now on wakes it again."""
        self._looked[part] = self._clock.monotonic()
        self._awake.clear()

    def may_rest(self, part: Part) -> bool:
        """Say whether a part has nothing to look at; in doubt it has."""
        looked = self._looked.get(part)
        if looked is None or self._clock.monotonic() - looked >= MOST_REST_S:
            return False
        try:
            return self._certain() and not part.is_due()
        except Exception:  # it looks then, as if it could not tell
            log.exception("%s cannot tell whether it is due", type(part).__qualname__)
            return False
