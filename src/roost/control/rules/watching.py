"""Since when VMs are where a hard rule does not want them: kept in the ledger by one process.

What is wrong is judged as `roost rule check` does, on a copy of the fleet and in a thread. A
judgement costs in proportion to the VMs there are, so its own time is its pace: after one that took
a second the next comes twenty seconds later at the earliest. Beginning and end are events, and the
row has since when; a VM that broke a rule for less than one pace may never be noted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from roost.base.clock import Clock
from roost.control.memory.roster import Roster
from roost.control.rules.judging import Judge, Key, kept_violations
from roost.ledger.schema.rows import Changes, ViolationRow
from roost.ledger.schema.tables import violations, vms
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.wire.constraints import ViolationBody

#: The least time between two judgements, and how many times as long as the last one took.
_LOOK_S = 20.0
_PACE = 20.0
#: Violations that are kept; more of them, and those beyond are listed without a time.
MOST_KEPT = 10_000
#: Rows that one transaction changes.
_PIECE = 500


class Difference(NamedTuple):
    """What a judgement finds different from what is kept."""

    begun: list[ViolationRow]
    ended: list[ViolationRow]


def compare(
    found: Mapping[Key, ViolationRow], kept: Mapping[Key, ViolationRow], most: int = MOST_KEPT
) -> Difference:
    """Compare what is wrong now with what is kept; on another host it has begun anew."""
    ended = [row for key, row in kept.items() if key not in found]
    begun, room = [], most - (len(kept) - len(ended))
    for key, row in found.items():
        has = kept.get(key)
        if has is None:
            room -= 1
            if room >= 0:
                begun.append(row)
        elif has.host != row.host:
            begun.append(row)
        elif has.part != row.part:
            begun.append(replace(row, since_ms=has.since_ms))
    return Difference(begun, ended)


class WatchedPlaces(Part):
    """Keeps since when VMs are where hard rules do not want them."""

    singleton: Singleton
    look_s = _LOOK_S

    def __init__(
        self, store: Store, roster: Roster, judge: Judge, clock: Clock, singleton: Singleton
    ) -> None:
        self._store, self._roster, self._judge = store, roster, judge
        self._clock, self.singleton = clock, singleton
        self._not_before = 0.0
        self._any_kept = True  # nobody has looked yet

    async def look(self) -> None:
        """Judge all VMs, unless the last judgement took so long that it is too early."""
        begun = self._clock.monotonic()
        if begun < self._not_before:
            return
        if not self._any_kept and not self._roster.rulebook.has_hard:
            return
        # Without a hard rule nothing is wrong; what another process has kept ends.
        has_hard = self._roster.rulebook.has_hard
        wrong = await self._judge.violations(MOST_KEPT) if has_hard else []
        kept = await self._store.read(kept_violations)
        found = self._rows(wrong, self._clock.wall_ms())
        different = compare(found, kept)
        await self._write(different.ended, self._end)
        await self._write(different.begun, self._begin)
        self._any_kept = bool(found)
        self._not_before = begun + _PACE * (self._clock.monotonic() - begun)

    def _rows(self, wrong: Iterable[ViolationBody], now_ms: int) -> dict[Key, ViolationRow]:
        found = {}
        for each in wrong:
            entry = self._roster.entry(each.host)
            if entry is not None:
                row = ViolationRow(
                    vm=each.vm, constraint_id=each.rule, host=entry.number, part=each.part,
                    since_ms=now_ms,
                )  # fmt: skip
                found[row.vm, row.constraint_id] = row
        return found

    async def _write(
        self, rows: list[ViolationRow], change: Callable[[Tx, list[ViolationRow]], None]
    ) -> None:
        rows.sort(key=lambda row: (row.vm, row.constraint_id))
        for start in range(0, len(rows), _PIECE):
            piece = rows[start : start + _PIECE]

            def write(tx: Tx, piece: list[ViolationRow] = piece) -> None:
                self.singleton.check(tx)
                if not release_before_may_be_here(tx.connection):  # it would not follow
                    change(tx, piece)

            await self._store.write(write)

    def _begin(self, tx: Tx, rows: list[ViolationRow]) -> None:
        for row in rows:
            found = tx.find(vms, id=row.vm)
            if found is None or found["host"] != row.host:
                continue  # it has left since
            tx.remove(violations, vm=row.vm, constraint_id=row.constraint_id)
            tx.insert(violations, {name: getattr(row, name) for name in row.__struct_fields__})
            note = f"{row.constraint_id}: {row.part}"[:1000]
            _say(tx, "vm.misplaced", row, found["project"], row, note)

    def _end(self, tx: Tx, rows: list[ViolationRow]) -> None:
        for row in rows:
            if tx.remove(violations, vm=row.vm, constraint_id=row.constraint_id):
                found = tx.find(vms, id=row.vm)
                project = None if found is None else found["project"]
                _say(tx, "vm.misplaced_ended", row, project, None, row.constraint_id)


def _say(
    tx: Tx, kind: str, row: ViolationRow, project: str | None, now: ViolationRow | None, note: str
) -> None:
    changes: Changes = {"violations": {f"{row.vm}|{row.constraint_id}": now}}
    tx.event(kind, f"vm/{row.vm}", changes, project=project, note=note)
