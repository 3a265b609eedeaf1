"""Keep what is asked of the fleet in the ledger, so that the mix of typical requests outlives us.

    create asked -> Roster.asked -> every ten seconds, if anything is new: added to the table
                        ^                                        |
                        +--- the sums of all processes ----------+

Counts are added, never set, and halved when they are many, in the same transaction. A mix that
decisions went by is kept under its digest, which their records name (ADR-0043). None of it is in
events: losing the last seconds of it costs nothing but a slightly older mix.
"""

import logging
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from roost.base.errors import Unavailable
from roost.control.memory.roster import Roster
from roost.ledger.schema.tables import asked, mixes
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import DAY_S, Kept
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Loop, Part
from roost.placement.asked import MOST_ASKED, MOST_COUNTED, ONE
from roost.placement.mix import Mix, TypicalRequest, kinds_in
from roost.wire.mixes import kind_text, kinds_text, read_kind

log = logging.getLogger("roost.mix")

#: How often what is new is added.
KEEP_S = 10.0

_SUMS = select(asked.c.kind, asked.c.weight).order_by(asked.c.weight.desc()).limit(MOST_ASKED)
_TOTAL = select(func.sum(asked.c.weight))
_HALVE = update(asked).values(weight=asked.c.weight // 2)
_FORGET = delete(asked).where(asked.c.weight <= 0)


class KeptMix(Part):
    """Adds what one process was asked to what all were, and learns from the sum."""

    #: As long as the decisions that name them.
    keeps = (Kept(mixes, "at_ms", seconds=31 * DAY_S),)

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster
        self._kept = ""  # digest of the mix that is known to be in the ledger

    def load(self, connection: Connection) -> None:
        """Learn from what was asked before; where that is not known, the VMs there stand for it."""
        sums = sums_in(connection)
        if sums:
            self._roster.asked.replace(sums)
        elif not len(self._roster.asked):
            self._roster.asked.note_kinds(kinds_in(self._roster.fleet))

    def loops(self) -> Sequence[Loop]:
        """Return the background loop that keeps what is new."""
        return (Loop(self.keep, KEEP_S),)

    async def keep(self) -> None:
        """Add what was asked since the last time, if anything, and the mix if it is another."""
        mix, learnt = self._roster.engine.mix, self._roster.asked
        new = learnt.taken()
        # One that is kept already is kept again while anything is asked: decisions name it still.
        if not new and (mix is None or mix.digest == self._kept):
            return
        try:
            sums = await self._store.write(lambda tx: keep(tx, new, mix))
        except Unavailable as error:
            learnt.give_back(new)
            log.debug("what was asked is kept later: %s", error.message)
            return
        if mix is not None:
            self._kept = mix.digest
        if new:
            learnt.replace(sums)


def sums_in(connection: Connection) -> dict[TypicalRequest, int]:
    """Return what all processes were asked."""
    return {read_kind(kind): weight for kind, weight in connection.execute(_SUMS)}


def keep(tx: Tx, new: Mapping[TypicalRequest, int], mix: Mix | None) -> dict[TypicalRequest, int]:
    """Add counts to those of all processes, keep a mix under its digest, and return the sums."""
    connection = tx.connection
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    for kind in sorted(new, key=kind_text):  # in one order, so that two processes never lock
        values = {"kind": kind_text(kind), "weight": new[kind], "seen_ms": tx.at_ms}
        into = dialect.insert(asked).values(values)
        plus = {"weight": asked.c.weight + new[kind], "seen_ms": tx.at_ms}
        connection.execute(into.on_conflict_do_update(index_elements=["kind"], set_=plus))
    if mix is not None:
        row = {"digest": mix.digest, "kinds": kinds_text(mix.kinds), "at_ms": tx.at_ms}
        into = dialect.insert(mixes).values(row)
        again = {"at_ms": tx.at_ms}
        connection.execute(into.on_conflict_do_update(index_elements=["digest"], set_=again))
    while int(connection.execute(_TOTAL).scalar() or 0) > MOST_COUNTED * ONE:
        connection.execute(_HALVE)
        connection.execute(_FORGET)
    return sums_in(connection)
