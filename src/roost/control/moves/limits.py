"""The limits of moves: give up those whose target is lost, and those that take too long.

One process looks for all. What then follows is the machine's: before it is sent the VM stays, while
it is sent the source decides, and what was sent belongs to the target until that comes back or is
fenced.
"""

from sqlalchemy import bindparam, select

from roost.base.clock import Clock
from roost.base.errors import Conflict, LedgerUnsettled, NotFound
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.handover import happen
from roost.control.moves.machine import Input, Late, TargetLost
from roost.control.timers import Timers
from roost.control.vms.lookup import relock
from roost.control.vms.move_record import read_record
from roost.ledger.schema.changes import VMS
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.model.states import Phase
from roost.parts.part import Part
from roost.parts.singleton import Singleton

_COMING = select(vms.c.id, vms.c.target).where(vms.c.target.in_(bindparam("hosts", expanding=True)))
_MOVES = select(vms.c.id, vms.c.generation, vms.c.phase, vms.c.move).where(vms.c.phase != "")


class MoveLimits(Part):
    """Gives up moves whose target is lost, and moves that are late."""

    singleton: Singleton
    wakes = (VMS,)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        lineage: Lineage,
        singleton: Singleton,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._store, self._roster, self._lineage = store, roster, lineage
        self._clock, self._timers = clock, timers
        self.singleton = singleton
        #: Since when a move is in its phase.
        self._since: dict[tuple[str, int, Phase], float] = {}
        self._any_moves = True  # at the last look

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    def is_due(self) -> bool:
        """Say whether a VM moves: time is against it, and so is the loss of its target."""
        return self._any_moves

    async def look(self) -> None:
        """Cancel moves that are late or have lost their target, as far as the machine lets it."""
        await self._give_up_lost()
        await self._give_up_late()

    async def _give_up_lost(self) -> None:
        lost = {n: e.row.fenced for n, e in self._roster.hosts.items() if e.row.health == "offline"}
        if not lost:
            return
        hosts = {"hosts": list(lost)}
        waiting = await self._store.read(lambda c: c.execute(_COMING, hosts).all())
        for vm_id, target in waiting:
            await self._happen(vm_id, TargetLost(lost[target]))

    async def _give_up_late(self) -> None:
        rows = await self._store.read(lambda c: c.execute(_MOVES).all())
        self._any_moves = bool(rows)
        limits = {
            (row.id, row.generation, row.phase): limit_s(self._timers, row.phase, row.move)
            for row in rows
            if row.phase != "recalling"
        }
        now = self._clock.monotonic()
        self._since = {key: self._since.get(key, now) for key in limits}
        for key, since in self._since.items():
            if now - since >= limits[key]:
                why = f"it was {key[2]} for {limits[key]:.0f} s"
                await self._happen(key[0], Late(why))

    async def _happen(self, vm_id: str, happened: Input) -> None:
        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            happen(tx, relock(tx, vm_id), happened)

        try:
            await self._store.write(change)
        except (Conflict, NotFound):
            return  # it has gone on meanwhile
        except LedgerUnsettled:
            return  # where it is is not known; the move is over once that is


def limit_s(timers: Timers, phase: Phase, record: str | None) -> float:
    """Return how long a move may stay in a phase.

    The source gives up sending by itself at its limit; six times the limit of a phase is only the
    net under that.
    """
    if phase != "moving":
        return timers.move_s
    return max(6 * timers.move_s, 1.5 * read_record(record).info.limit_s)
