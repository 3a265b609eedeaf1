"""VMs that wait for room: tried again when some appears, the most urgent first.

Urgency is priority plus one for every minute of waiting, so nobody waits for ever behind a stream
of more important VMs; and once the first in line has waited for `patience_s`, nobody behind it is
placed before it: room that appears is left to add up for it, unless it is too large for any host.
"""

import logging

from sqlalchemy import bindparam, update

from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.create.placing import Basis, Placing, take
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.vms.lookup import relock
from roost.control.vms.refusing import refused_by
from roost.ledger.capacity import CLEANUP, RUN, claims_of
from roost.ledger.rows import Changes, ClaimRow, VMRow
from roost.ledger.statements import Plus
from roost.ledger.store import Store
from roost.ledger.tables import vms
from roost.ledger.transaction import Tx, row_json
from roost.model.flow import Rejection, RejectionCode
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.wire.answers import rejection_json

log = logging.getLogger("roost.queue")

#: Reasons that are brought up to date in one look, so that a long queue does not stop the process.
_MOST_REASONS = 20
#: How long a host that refused a VM is not asked for it again: a refusal is how things were.
_ASK_AGAIN_S = 60.0

_SAY_WHY = update(vms).where(vms.c.id == bindparam("waits"), vms.c.pending.is_not(None))
_SAY_WHY = _SAY_WHY.values(pending=bindparam("why")).returning(*vms.c)


class Queue(Part):
    """Places queued VMs again when room appears; runs where the lease is held."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        roster: Roster,
        placing: Placing,
        lineage: Lineage,
        clock: Clock,
        singleton: Singleton,
        *,
        patience_s: float = 600.0,
    ) -> None:
        self._store, self._roster, self._placing = store, roster, placing
        self._clock, self._lineage, self._patience_s = clock, lineage, patience_s
        self.singleton = singleton
        self._room = -1
        #: Since when a VM of a generation is known to be refused; None: it may be asked again.
        self._refused: dict[tuple[str, int], float | None] = {}

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    async def look(self) -> None:
        """Try all queued VMs, if room may have appeared since the last look."""
        forgiven = self._forgive()
        if not self._roster.waiting or (self._room == self._roster.room and not forgiven):
            return
        self._room = self._roster.room
        now = self._clock.wall_ms()
        reasons = 0
        for vm in sorted(self._roster.waiting.values(), key=lambda vm: self._urgency(vm, now)):
            if vm.id not in self._roster.waiting:
                continue
            try:
                rejection = await self._try(vm, explain=reasons < _MOST_REASONS)
            except (Conflict, NotFound, Unavailable) as error:
                log.info("VM %s still waits: %s", vm.name, error.message)
                self._room = -1  # nothing is known of it: look again
                continue
            if rejection is None:
                continue
            reasons += 1
            waited_s = (now - vm.created_ms) / 1000
            if waited_s >= self._patience_s and _room_can_add_up(rejection):
                break

    def _forgive(self) -> bool:
        """Expire refusals: hosts that refused a VM a while ago may be tried again."""
        waiting = {(vm.id, vm.generation) for vm in self._roster.waiting.values() if vm.problem}
        now = self._clock.monotonic()
        self._refused = {key: self._refused.get(key, now) for key in sorted(waiting)}
        old = [k for k, at in self._refused.items() if at is not None and now - at >= _ASK_AGAIN_S]
        self._refused.update(dict.fromkeys(old))
        return bool(old)

    def _urgency(self, vm: VMRow, now_ms: int) -> tuple[float, int, str]:
        """Return a queued VM's sort key: the most urgent first."""
        minutes = max(0, now_ms - vm.created_ms) / 60_000
        return -(vm.priority + minutes), vm.created_ms, vm.id

    async def _try(self, vm: VMRow, *, explain: bool) -> Rejection | None:
        """Place a queued VM, or return its rejection if one was asked for."""

        def commit(tx: Tx, seen: Basis, claim: ClaimRow) -> VMRow:
            self.singleton.check(tx)
            now = relock(tx, vm.id)
            if now.host is not None or now.generation != vm.generation:
                raise Conflict(f"VM {vm.name!r} was changed meanwhile", vm=vm.id)
            if CLEANUP in claims_of(tx, vm.id):
                # Until that host says that it has nothing of it, it might still start it.
                raise Conflict(f"an earlier host of VM {vm.name!r} has yet to answer", vm=vm.id)
            changes: Changes = {}
            take(tx, vm, claim, seen, "retry", changes)
            row = tx.change(
                vms,
                {"id": vm.id},
                host=claim.host,
                pending=None,
                generation=Plus(1),
            )
            assert row is not None
            changes["vms"] = {vm.id: row}
            note = f"on {seen.placement.host}"
            tx.event("vm.placed", f"vm/{vm.id}", changes, project=vm.project, note=note)
            return VMRow(**row)

        may_ask_all = self._refused.get((vm.id, vm.generation), 0.0) is None
        never = () if may_ask_all else refused_by(vm)
        found = await self._placing.place(vm, commit, RUN, "roost", never=never, explain=explain)
        if isinstance(found, VMRow):
            log.info("VM '%s' waits no more", vm.name)
            return None
        if found is not None:
            text = row_json(rejection_json(found))
            if text != vm.pending:
                await self._store.write(lambda tx: self._say_why(tx, vm, text))
        return found

    def _say_why(self, tx: Tx, vm: VMRow, text: str) -> None:
        self.singleton.check(tx)
        row = tx.row(_SAY_WHY, waits=vm.id, why=text)
        if row is not None:
            tx.event("vm.waits", f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project)


def _room_can_add_up(rejection: Rejection) -> bool:
    """Say whether a VM would fit once enough is gone; if not, leaving room for it helps nobody."""
    short = rejection.code is RejectionCode.INSUFFICIENT_RESOURCES
    return short and not rejection.larger_than_any_host
