"""Whether this ledger is the newest that hosts have obeyed, or an older one that was restored.

Every event has a sequence and the name of its transaction. Agents keep the newest pair that they
were told and say it in their hello; a ledger that has no such event has gone back, and what it says
of any VM may be untrue. Two states follow:

    unsure     from the start of a process until every host of the roster was heard of since that
               was not offline before, or until the leases that older processes gave have ended:
               lists confirm nothing, no VM that exists is placed, moved or recovered
    restored   in the ledger, from the first host that is ahead until no VM is in doubt any more
               (`settling`): nobody changes a VM in doubt, and hosts are asked what they have
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence

from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, literal, select

from roost.base.clock import Clock
from roost.base.errors import LedgerUnsettled
from roost.control.hosts.registering import change_host
from roost.control.memory.roster import Roster
from roost.control.timers import Timers
from roost.ledger.schema.changes import Changes
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import copies, doubts, host_liveness, hosts, members, roll_call, vms
from roost.ledger.schema.tables import events as events_table
from roost.ledger.store import Store
from roost.ledger.upkeep.base import read_base
from roost.ledger.writes.statements import count_rows, find_row
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Loop, Part
from roost.wire.agentlimits import MOST_AHEAD
from roost.wire.agentlink import Hello, LedgerPoint

log = logging.getLogger("roost.lineage")

#: Points of the past that are known without asking the database.
_MOST_KNOWN = 4096
#: What a guard needs that no host has told of: one that has joined since the copy was made.
_STOP_S = 5.0

RESTORED, SETTLED = "ledger.restored", "ledger.settled"

_ANY_DOUBT = select(doubts.c.vm).limit(1)
_ANY_CALL = select(roll_call.c.host).limit(1)
_HOST: BindParameter[int] = bindparam("of_host")
_DOUBT_ON = (
    select(doubts.c.vm)
    .join(vms, vms.c.id == doubts.c.vm)
    .where((vms.c.host == _HOST) | (vms.c.target == _HOST))
    .limit(1)
)
_NEWEST = select(events_table.c.seq, events_table.c.tx).order_by(events_table.c.seq.desc()).limit(1)
_EVIDENCE = select(host_liveness.c.host, host_liveness.c.evidence)


class Lineage(Part):
    """Detects that the ledger was restored from an old copy, by what hosts have obeyed."""

    def __init__(self, store: Store, roster: Roster, clock: Clock, timers: Timers) -> None:
        self._store, self._roster = store, roster
        self._clock, self._timers = clock, timers
        self.sure = False
        self.restored = False
        self.doubted = 0  # VMs, at the last look
        self.point: LedgerPoint | None = None
        self._known: OrderedDict[int, str] = OrderedDict()
        self._unheard: dict[int, int] = {}  # hosts, with their evidence when this process began
        self._one_compared = False  # a host of those was heard, and is not ahead of the ledger
        self._since = 0.0
        self._declared = False  # this process has said that the ledger was restored
        self._declaring = asyncio.Lock()
        self._outlived = False  # ... or seen the end of that

    # Following

    def load(self, connection: Connection) -> None:
        """Read the ledger's newest event, and the hosts heard of before."""
        columns = select(events_table.c.seq, events_table.c.tx)
        newest = columns.order_by(events_table.c.seq.desc()).limit(_MOST_KNOWN)
        for seq, tx in reversed(connection.execute(newest).all()):
            self._reach(seq, tx)
        self.doubted = _count_doubts(connection)
        self.restored = connection.execute(_ANY_CALL).first() is not None
        self._unheard = _evidence(connection)
        self._since = self._clock.monotonic()
        self.sure = not self._unheard  # no host was ever told anything

    def follow(self, event: Event, changes: Changes) -> None:
        """Record the sequence that the ledger has reached."""
        self._reach(event.seq, event.tx)
        if event.kind == RESTORED:
            self.restored = True
        elif event.kind == SETTLED:
            self.restored, self._outlived, self.doubted = False, True, 0

    def _reach(self, seq: int, tx: str) -> None:
        self.point = LedgerPoint(seq, tx)
        self._known[seq] = tx
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    # Sure or not

    @property
    def has_waited(self) -> bool:
        """Return whether leases that were given before this process began have ended."""
        return self._clock.monotonic() - self._since >= self._wait_s

    @property
    def _wait_s(self) -> float:
        stops = [entry.row.guard_stop_s or 0.0 for entry in self._roster.hosts.values()]
        return self._timers.lease_s * self._timers.fence_margin + max([_STOP_S, *stops])

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.refresh, self._timers.watch_s),)

    async def refresh(self) -> None:
        """Read which hosts any process has heard since the start."""
        if not self.sure:
            now = await self._store.read(_evidence)
            for host, before in list(self._unheard.items()):
                if now.get(host) != before:  # by another process, which has compared it
                    self._unheard.pop(host, None)
                    self._one_compared = True
            self.sure = self._all_heard() or self.has_waited
        if self.restored:
            self.doubted = await self._store.read(_count_doubts)

    def _all_heard(self) -> bool:
        """Say whether every host was heard that the ledger does not have as offline already.

        One that has been off for long is not waited for. Had it worked since an old copy was made,
        then the hosts that were heard, which learn how far the ledger is with every heartbeat,
        would know of later events; so at least one that was known before and was told of the
        ledger must have been compared.
        """
        waited_for = (self._roster.hosts.get(number) for number in self._unheard)
        return not self._unheard or (
            self._one_compared
            and all(entry is None or entry.row.health == "offline" for entry in waited_for)
        )

    async def is_sure(self) -> bool:
        """Say whether it is known that the ledger is not old, after another look if need be."""
        if not self.sure:
            await self.refresh()
        return self.sure

    async def require_sure(self) -> None:
        """Refuse a second copy of a VM while the ledger may be an old one."""
        if not await self.is_sure():
            raise LedgerUnsettled(
                "the server has just started and has not heard of every host yet",
                hint=f"Maybe try again; after {self._wait_s:.0f} s it waits for nobody.",
            )

    def require_settled(self) -> None:
        """Refuse placements by group rules while members are in doubt."""
        if self.restored:
            raise LedgerUnsettled(
                "an old database was restored, and it is not known yet where every VM is",
                hint="Maybe a host has not come back yet; roost doctor says which.",
            )

    # Hosts that are ahead

    async def hear(self, hello: Hello) -> None:
        """Compare the ledger point that a host has obeyed with this ledger, before its list."""
        why = await self._why_ahead(hello)
        if why is None and hello.heard is not None:
            entry = self._roster.entry(hello.host)
            self._one_compared |= entry is not None and entry.number in self._unheard
        if why is None or (self._declared and self.restored):
            return
        if self._outlived:
            log.warning("host %s comes late: %s", hello.host, why)
            return
        async with self._declaring:  # hosts come back together, and once is enough
            if self._declared and self.restored:
                return
            note = f"host {hello.host} {why}"
            await self._store.write(lambda tx: doubt_all(tx, note), "roost")
            self._declared = self.restored = True
            log.error("an old ledger was restored: %s", note)

    def let_in(self, host: int) -> None:
        """Record that a host was heard here, and compared with the ledger."""
        self._unheard.pop(host, None)

    async def _why_ahead(self, hello: Hello) -> str | None:
        point = hello.heard
        if point is not None and not await self._has(point):
            return f"has heard of event {point.seq} of {point.tx}"
        entry = self._roster.entry(hello.host)
        if self.sure or (entry is not None and entry.row.instance == hello.instance):
            # An agent that lives on has forgotten nothing. Else what is ahead by a generation alone
            # is found by its reports too, only later.
            return None
        told = {vm.id: vm.generation for vm in hello.held}
        told |= {vm.id: vm.generation for vm in hello.vms}
        here = entry.number if entry is not None else -1
        query = select(vms.c.id, vms.c.generation).where(
            (vms.c.host == here) | (vms.c.target == here)  # of others it has nothing to say
        )
        for vm, generation in await self._store.read(lambda c: c.execute(query).all()):
            if generation < told.get(vm, 0) <= generation + MOST_AHEAD:
                return f"has generation {told[vm]} of VM {vm}, which is at {generation}"
        return None

    async def _has(self, point: LedgerPoint) -> bool:
        if self._known.get(point.seq) == point.tx:
            return True
        return await self._store.read(lambda connection: _has(connection, point))


def doubt_all(tx: Tx, note: str) -> None:
    """Put every VM in doubt after a restore, and call the roll of all hosts."""
    for table in (doubts, roll_call, copies):
        tx.connection.execute(delete(table))
    tx.connection.execute(insert(doubts).from_select(["vm"], select(vms.c.id)))
    everybody = select(hosts.c.number, literal(False))
    tx.connection.execute(insert(roll_call).from_select(["host", "answered"], everybody))
    fenced = select(hosts.c.number).where(hosts.c.fenced.is_not(None)).order_by(hosts.c.number)
    for row in tx.rows(fenced):
        change_host(tx, row["number"], "host.fence_doubted", note=note, fenced=None)
    tx.event(RESTORED, "ledger", {}, note=note)


def is_doubted(tx: Tx, vm: str) -> bool:
    """Say whether it is not known where a VM is."""
    return tx.find(doubts, vm=vm) is not None


def doubted_among(tx: Tx, ids: list[str]) -> set[str]:
    """Return those of some VMs of which it is not known where they are."""
    if tx.row(_ANY_DOUBT) is None:
        return set()
    return {row["vm"] for row in tx.rows(select(doubts.c.vm).where(doubts.c.vm.in_(ids)))}


def member_is_doubted(tx: Tx, groups: list[str]) -> bool:
    """Say whether it is not known where a member of some groups is."""
    if tx.row(_ANY_DOUBT) is None:
        return False
    query = select(doubts.c.vm).join(members, members.c.vm == doubts.c.vm)
    return tx.row(query.where(members.c.group_id.in_(groups)).limit(1)) is not None


def host_is_doubted(connection: Connection, number: int) -> bool:
    """Say whether a host's list has a VM in doubt."""
    return connection.execute(_DOUBT_ON, {"of_host": number}).first() is not None


def newest_point(connection: Connection) -> LedgerPoint | None:
    """Return how far the ledger has come on this view."""
    found = connection.execute(_NEWEST).first()
    return LedgerPoint(found.seq, found.tx) if found is not None else None


def _has(connection: Connection, point: LedgerPoint) -> bool:
    """Say whether the ledger has had an event; of one that is kept no longer nobody can tell.

    Then it is believed: hosts that were away for that long would put every VM in doubt, and what
    is ahead by a generation is still found by its reports.
    """
    if point.seq <= read_base(connection):
        return True
    found = find_row(connection, events_table, {"seq": point.seq})
    return found is not None and found["tx"] == point.tx


def _evidence(connection: Connection) -> dict[int, int]:
    return {row[0]: row[1] for row in connection.execute(_EVIDENCE).all()}


def _count_doubts(connection: Connection) -> int:
    return count_rows(connection, doubts)
