"""Rules that hold under a condition (`when`): switched on and off by one process, in the ledger.

        when is true, and until is not
    off ------------------------------> on      at most one switch in `dwell_s`,
        <------------------------------         whatever the conditions do
        until is true; without one: when is not true

Two conditions keep a rule from flapping between two values, the dwell from flapping at all. What a
decision is made under is the row: a switch is an event and moves the generation of all constraints,
so nobody commits under the state before. A condition that ends in an error switches nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, RoostError
from roost.control.memory.roster import Roster
from roost.control.rules.timezones import require_zone, time_in
from roost.control.rules.writing import switch
from roost.fleet.fleet import Fleet
from roost.ledger.schema.rows import ConstraintRow
from roost.ledger.schema.tables import constraints
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.placement.rules.binding import checked
from roost.placement.rules.facts import fleet_record
from roost.rules.checking import condition
from roost.rules.evaluating import judge
from roost.rules.fields import Fields
from roost.rules.values import Trouble

log = logging.getLogger("roost.rules")

_LOOK_S = 5.0
#: Rules that one transaction switches.
_PIECE = 100
#: The least time between two switches of a rule, unless its author says another.
DWELL_S = 60
_NO_CONDITION: Mapping[str, Any] = dict.fromkeys(
    ("applies_when", "applies_until", "time_zone", "dwell_s", "active", "switched_ms")
)


def timing(given: Mapping[str, Any], row: ConstraintRow | None, fields: Fields) -> dict[str, Any]:
    """Return the columns of a rule's condition: what is given, over what the rule has.

    `given` may have when, until, time_zone and dwell_s; whether it is active is not among them.
    """
    if not given:
        return {}
    has: dict[str, Any] = {
        "when": row.applies_when if row else None,
        "until": row.applies_until if row else None,
        "time_zone": row.time_zone if row else None,
        "dwell_s": row.dwell_s if row else None,
    }
    asked = {**has, **given}
    if asked["when"] is None:
        for name in ("until", "time_zone", "dwell_s"):
            if given.get(name) is not None:
                raise InvalidRequest(
                    f"{name} says when a rule holds no more, or how it reads the time, and this "
                    "rule always holds",
                    hint="Maybe say when, too.",
                )
        return dict(_NO_CONDITION)
    for text in (asked["when"], asked["until"]):
        if text is not None:
            _check(text, fields)
    return {
        "applies_when": asked["when"],
        "applies_until": asked["until"],
        "time_zone": require_zone(asked["time_zone"]) if asked["time_zone"] else None,
        "dwell_s": asked["dwell_s"] or DWELL_S,
    }


def _check(text: str, fields: Fields) -> None:
    """Refuse a condition that reads anything but the fleet and the time."""
    for read in condition(text, fields).reads:
        if read.field.root != "fleet":
            raise InvalidRequest(
                f"when a rule holds depends on the fleet and the time, not on {read.field.path}",
                hint="Maybe that belongs into the rule itself.",
                field=read.field.path,
            )


@dataclass(frozen=True, slots=True)
class Said:
    """What the two conditions of a rule are now; None: that ended in an error."""

    when: bool | None
    until: bool | None


def ask(when: str, until: str | None, zone: str | None, fleet: Fleet, now_ms: int) -> Said:
    """Ask the conditions of a rule about a fleet and a time."""
    known = {"fleet": fleet_record(fleet, time_in(now_ms, zone))}

    def answer(text: str) -> bool | None:
        found = judge(checked(text), known)
        return None if isinstance(found, Trouble) else found

    begins = answer(when)
    if until is not None:
        return Said(begins, answer(until))
    return Said(begins, None if begins is None else not begins)


def begins_active(timing: Mapping[str, Any], fleet: Fleet, now_ms: int) -> bool:
    """Say whether a new or changed rule holds at first: unless it is known that it need not."""
    if timing.get("applies_when") is None:
        return True
    until, zone = timing.get("applies_until"), timing.get("time_zone")
    said = ask(timing["applies_when"], until, zone, fleet, now_ms)
    return said.when is not False and said.until is not True


def is_to_switch(row: ConstraintRow, said: Said, now_ms: int) -> bool:
    """Say whether a rule is to be switched now; never twice within its dwell.

    A switch that lies ahead was made by a clock that has been set back since: it binds nobody.
    """
    dwell_ms = 1000 * (row.dwell_s or DWELL_S)
    if row.switched_ms is not None and 0 <= now_ms - row.switched_ms < dwell_ms:
        return False
    if row.active is not False:
        return said.until is True
    return said.when is True and said.until is not True


class SwitchedRules(Part):
    """Switches rules on and off as their conditions say."""

    singleton: Singleton
    look_s = _LOOK_S

    def __init__(self, store: Store, roster: Roster, clock: Clock, singleton: Singleton) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        self.singleton = singleton

    async def look(self) -> None:
        """Ask every rule that has a condition; switch those that are to be."""
        now, fleet = self._clock.wall_ms(), self._roster.fleet
        due = []
        for row in self._roster.rulebook.rows.values():
            if row.enabled and row.applies_when is not None:
                try:
                    said = ask(row.applies_when, row.applies_until, row.time_zone, fleet, now)
                except RoostError as error:
                    log.error("the condition of rule %s cannot be read: %s", row.id, error)
                    continue  # a later release wrote it: it stays as it is
                if is_to_switch(row, said, now):
                    due.append(row)
        for start in range(0, len(due), _PIECE):
            piece = due[start : start + _PIECE]
            await self._store.write(lambda tx: self._switch(tx, piece, now))  # noqa: B023

    def _switch(self, tx: Tx, due: list[ConstraintRow], now_ms: int) -> None:
        self.singleton.check(tx)
        if release_before_may_be_here(tx.connection):
            return  # such a process does not follow it
        for row in sorted(due, key=lambda each: each.id):
            found = tx.find(constraints, lock=True, id=row.id)
            if found is not None and ConstraintRow(**found) == row:  # else asked again soon
                switch(tx, row, now_ms, active=row.active is False)
