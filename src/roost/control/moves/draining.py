"""Empty hosts that drain: one move at a time on each; VMs that fit nowhere else stay, reported."""

import logging
from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection, bindparam, select

from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.base.errors import Conflict, LedgerUnsettled, NotFound, Unavailable
from roost.control.create.placing import Stale
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import HostEntry, Roster
from roost.control.moves.handover import (
    abandon_move,
    ask_back,
    give_up_fenced_target,
    is_proof,
    recall,
)
from roost.control.moves.moving import Moving
from roost.control.timers import Timers
from roost.control.vms.lookup import relock
from roost.control.vms.move_record import read_move
from roost.ledger.rows import VMRow
from roost.ledger.store import Store
from roost.ledger.tables import vms
from roost.ledger.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.drain")

#: How long a VM that could not be moved off a host is left alone: others come first.
_WAITS = BackOff(10.0, 600.0)

_HERE = (
    select(vms)
    .where(vms.c.host == bindparam("on_host"), vms.c.desired != "absent")
    .order_by(vms.c.priority.desc(), vms.c.id)
)
_COMING = select(vms.c.id, vms.c.target).where(vms.c.target.in_(bindparam("hosts", expanding=True)))
_MOVES = select(vms.c.id, vms.c.generation, vms.c.phase, vms.c.move).where(
    vms.c.phase != "", vms.c.phase != "recalling"
)


class Drain(Part):
    """Moves VMs off draining hosts, and gives up moves whose target is lost."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        roster: Roster,
        moving: Moving,
        lineage: Lineage,
        singleton: Singleton,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._store, self._roster, self._moving = store, roster, moving
        self._lineage, self._clock, self._timers = lineage, clock, timers
        self.singleton = singleton
        self._begun: dict[tuple[str, int, str], float] = {}  # since when a move is in its phase
        #: How often a VM was moved in vain, and when it is tried again.
        self._tries: dict[tuple[str, int], tuple[int, float]] = {}

    async def may_look(self) -> bool:
        """Wait until it is known that the ledger is not old."""
        return await self._lineage.is_sure()

    async def look(self) -> None:
        """Begin the next move of every draining host."""
        draining = {e.number for e in self._roster.hosts.values() if e.row.admin == "draining"}
        self._tries = {key: tries for key, tries in self._tries.items() if key[1] in draining}
        for entry in list(self._roster.hosts.values()):
            if entry.row.admin == "draining" and entry.row.health == "online":
                await self._next(entry)
        await self._abandon_lost()
        await self._abandon_late()

    async def _next(self, entry: HostEntry) -> None:
        here = await self._store.read(lambda c: _vms_on(c, entry.number))
        if any(vm.phase for vm in here):
            return  # one at a time
        now = self._clock.monotonic()
        for vm in here:
            tries, next_at = self._tries.get((vm.id, entry.number), (0, now))
            if vm.observed not in ("running", "paused", "stopped") or now < next_at:
                continue
            try:
                found = await self._moving.begin(vm, "drain", explain=False)
            except (Conflict, NotFound, Unavailable) as error:
                log.info("VM %s stays on %s for now: %s", vm.name, entry.name, error.message)
                continue
            if not isinstance(found, VMRow):
                continue  # fits nowhere else; the next may
            # It is still here when this is read only if the move was given up.
            wait_s = _WAITS.wait_s(tries)
            self._tries[vm.id, entry.number] = tries + 1, now + wait_s
            log.info("draining %s: VM %s moves", entry.name, vm.name)
            return

    async def _abandon_lost(self) -> None:
        """Take back moves whose target is offline, as far as it can be known that it has nothing.

        Before it is sent the VM stays. While it is sent the source decides. What was sent belongs
        to the target, until that comes back or is fenced.
        """
        lost = {n: e.row.fenced for n, e in self._roster.hosts.items() if e.row.health == "offline"}
        if not lost:
            return
        hosts = {"hosts": list(lost)}
        waiting = await self._store.read(lambda c: c.execute(_COMING, hosts).all())
        for vm_id, target in waiting:
            await self._write(vm_id, partial(_take_back_lost, fenced=lost[target]))

    async def _abandon_late(self) -> None:
        """Take back moves that take too long in their phase.

        The source gives up by itself at its limit; here six times the limit of a phase is only the
        net under that.
        """
        rows = await self._store.read(lambda c: c.execute(_MOVES).all())
        limits = {
            (row.id, row.generation, row.phase): self._limit_s(row.phase, row.move) for row in rows
        }
        now = self._clock.monotonic()
        self._begun = {key: self._begun.get(key, now) for key in limits}
        for key, since in self._begun.items():
            if now - since >= limits[key]:
                why = f"it was {key[2]} for {limits[key]:.0f} s"
                await self._write(key[0], partial(_take_back_late, why=why))

    def _limit_s(self, phase: str, move: str | None) -> float:
        if phase != "moving":
            return self._timers.move_s
        return max(6 * self._timers.move_s, 1.5 * read_move(move).info.limit_s)

    async def _write(self, vm_id: str, step: Callable[[Tx, VMRow], None]) -> None:
        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            step(tx, relock(tx, vm_id))

        try:
            await self._store.write(change)
        except (Conflict, NotFound, Stale):
            return  # it has gone on meanwhile
        except LedgerUnsettled:
            return  # where it is is not known; the move is over once that is


def _vms_on(connection: Connection, host: int) -> list[VMRow]:
    return [VMRow(**row) for row in connection.execute(_HERE, {"on_host": host}).mappings()]


def _take_back_lost(tx: Tx, vm: VMRow, fenced: str | None) -> None:
    why = "its target is offline"
    match vm.phase:
        case "preparing":
            abandon_move(tx, vm, why)
        case "moving":
            ask_back(tx, vm, why)
        case "landing" | "recalling" if is_proof(vm, fenced):
            give_up_fenced_target(tx, vm, f"{why} and fenced")


def _take_back_late(tx: Tx, vm: VMRow, why: str) -> None:
    match vm.phase:
        case "preparing":
            abandon_move(tx, vm, why)
        case "moving":
            ask_back(tx, vm, why)
        case "cancelling" | "landing":
            recall(tx, vm, why)
