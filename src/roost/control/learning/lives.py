"""How long VMs live: ends are counted in the ledger, and what is left is told from the counts.

    a VM's row is removed -> vm_ends (same transaction) -> lifetimes (counted) -> LifeTable
                                                     living VMs and their ages -^

Counting takes rows of `vm_ends` away and adds them to the counts in one transaction, so each end
counts once, whichever process does it, and whenever one is killed. Counts are halved when they are
many: a fleet's habits change. They are not in events; losing them costs guesses, and no VM.
"""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from roost.analysis.lifetime import AGES_S, NO_LIVES, LifeTable, LifetimeCounts, Path
from roost.base.errors import Unavailable
from roost.control.memory.expecting import class_path
from roost.control.memory.roster import Roster
from roost.ledger.schema.changes import VMS, Changes
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import lifetimes, vm_ends, vms
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import DAY_S, Kept
from roost.ledger.writes.transaction import Tx
from roost.model.vm import VMSpec, image_of
from roost.parts.part import Loop, Part

log = logging.getLogger("roost.lives")

#: How often ends are counted, and how many in one transaction.
COUNT_S, PIECE = 600.0, 500
#: The weight of one VM, and of how many VMs there is memory before all counts are halved.
ONE, MOST_COUNTED = 1024, 200_000

_AGES = AGES_S.tolist()
_WAITING = select(vm_ends.c.vm).order_by(vm_ends.c.vm).limit(PIECE)
_TAKE = delete(vm_ends).where(vm_ends.c.vm.in_(bindparam("ids", expanding=True)))
_TAKEN = _TAKE.returning(*vm_ends.c)
_TOTAL = select(func.sum(lifetimes.c.weight))
_HALVE = update(lifetimes).values(weight=lifetimes.c.weight // 2)
_FORGET = delete(lifetimes).where(lifetimes.c.weight <= 0)
_COUNTS = select(lifetimes)
_LIVING = select(
    vms.c.id, vms.c.project, vms.c.cpu_milli, vms.c.memory_bytes, vms.c.created_ms
).where(vms.c.host.is_not(None))


class KnownLives(NamedTuple):
    """What is left by class and age, and when the VMs that are there were created."""

    table: LifeTable
    born_ms: Mapping[str, int]


NOTHING_KNOWN = KnownLives(NO_LIVES, {})


class Lives(Part):
    """Counts ends for all processes, and reads the counts of all."""

    follows = (VMS,)

    #: More than a year of habits; classes that were last seen longest ago go first.
    keeps = (Kept(lifetimes, "seen_ms", seconds=400 * DAY_S, most=50_000),)

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster
        self._some_ended = False  # since the last count, by any process

    def load(self, connection: Connection) -> None:
        """See whether ends wait to be counted."""
        self._some_ended = connection.execute(_WAITING).first() is not None

    def follow(self, event: Event, changes: Changes) -> None:
        """Hear of VMs that are gone."""
        if None in changes.of(VMS).values():
            self._some_ended = True

    def loops(self) -> Sequence[Loop]:
        """Return the background loop that counts ends."""
        return (Loop(self.count, COUNT_S),)

    async def count(self) -> None:
        """Count the VMs that have ended since the last time."""
        if not self._some_ended:
            return
        self._some_ended = False
        try:
            while await self._store.write(count_ended) == PIECE:
                pass
        except Unavailable as error:
            self._some_ended = True
            log.debug("ends are counted later: %s", error.message)

    async def read(self, now_ms: int) -> KnownLives:
        """Return what is known at a moment, from the ledger as it is now."""
        specs = self._roster.specs.copied()
        return await self._store.read(lambda connection: lives_in(connection, specs, now_ms))


def count_ended(tx: Tx) -> int:
    """Count a piece of the VMs that have ended, and return how many those were."""
    connection = tx.connection
    ids = list(connection.execute(_WAITING).scalars())
    if not ids:
        return 0
    # Those that another process has counted meanwhile are not returned.
    ended: dict[tuple[int, int, str, str, int], int] = defaultdict(int)
    for row in connection.execute(_TAKEN, {"ids": ids}).mappings():
        age_bin = bisect_right(_AGES, max(0, row["lived_s"])) - 1
        shape = (row["cpu_milli"], row["memory_bytes"], row["project"], row["image"])
        ended[*shape, age_bin] += ONE
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    keys = [column.name for column in lifetimes.primary_key]
    for key in sorted(ended):  # in one order, so that two processes never lock each other
        values = dict(zip(keys, key, strict=True), weight=ended[key], seen_ms=tx.at_ms)
        plus = {"weight": lifetimes.c.weight + ended[key], "seen_ms": tx.at_ms}
        into = dialect.insert(lifetimes).values(values)
        connection.execute(into.on_conflict_do_update(index_elements=keys, set_=plus))
    while int(connection.execute(_TOTAL).scalar() or 0) > MOST_COUNTED * ONE:
        connection.execute(_HALVE)
        connection.execute(_FORGET)
    return len(ids)


def lives_in(connection: Connection, specs: Mapping[str, VMSpec], now_ms: int) -> KnownLives:
    """Return what the counts and the ages of the VMs that are there say."""
    counts = LifetimeCounts()
    for row in connection.execute(_COUNTS).mappings():
        if 0 <= row["age_bin"] < len(_AGES) and row["weight"] > 0:
            path = class_path(row["cpu_milli"], row["memory_bytes"], row["project"], row["image"])
            counts.add_ended(path, row["age_bin"], row["weight"] / ONE)
    living: dict[Path, list[int]] = defaultdict(list)
    born: dict[str, int] = {}
    for vm, project, cpu, memory, created_ms in connection.execute(_LIVING):
        spec = specs.get(vm)
        born[vm] = created_ms
        if spec is not None and spec.until_ms is not None:
            continue  # it ends when its owner said so
        path = class_path(cpu, memory, project, "" if spec is None else image_of(spec))
        living[path].append(max(0, now_ms - created_ms) // 1000)
    for path, ages_s in living.items():
        counts.add(path, ages_s, censored=True)
    return KnownLives(LifeTable(counts), born)
