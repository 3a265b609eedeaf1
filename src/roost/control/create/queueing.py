"""VMs that wait for room: tried again when some appears, the most urgent first.

Urgency is priority plus one for every minute of waiting, so nobody waits for ever behind a stream
of more important VMs; and once the first in line has waited for `patience_s`, nobody behind it is
placed before it: room that appears is left to add up for it, unless it is too large for any host.
Then room is also held for it on the host that lacks the least, so that no create takes what became
free there; for a limited time, after which it is let go and held again only as much later.
"""

import logging
from dataclasses import replace

from sqlalchemy import bindparam, update

from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.create import relaxing
from roost.control.create.drawing import life_of
from roost.control.create.placing import Basis, Placing, take
from roost.control.memory.holdings import ORDINARY
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.vms.lookup import relock
from roost.control.vms.refusing import refused_by
from roost.ledger.claims.capacity import CLEANUP, RUN, claims_of
from roost.ledger.claims.holding import lock_hosts
from roost.ledger.claims.makingroom import QUEUE, begin_hold, drop_hold, hold_id
from roost.ledger.schema.amounts import AMOUNTS
from roost.ledger.schema.rows import Changes, ClaimRow, HoldRow, VMRow
from roost.ledger.schema.tables import holds, preemptions, vms
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.statements import Plus, find_row, find_rows
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Rejection, RejectionCode
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.wire.answers import rejection_json

log = logging.getLogger("roost.queue")

#: Reasons that are brought up to date in one look, so that a long queue does not stop the process.
_MOST_REASONS = 20
#: How long a host that refused a VM is not asked for it again: a refusal is how things were.
_ASK_AGAIN_S = 60.0
#: How long room is held for the first in line, in times of its patience.
_HOLD_TURNS = 6

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
        self._relaxing = relaxing.Planning(roster)
        self._room = -1
        self._said: dict[str, str] = {}  # why VMs could not be looked at, by id
        self._looked_ms = 0
        self._holding: dict[str, float] | None = None  # VMs that room is held for, and since when
        self._held_before: dict[str, float] = {}  # VMs that had their turn, and until when
        #: Since when a VM of a generation is known to be refused; None: it may be asked again.
        self._refused: dict[tuple[str, int], float | None] = {}

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    async def look(self) -> None:
        """Try all queued VMs, if room may have appeared since the last look."""
        await self._relax()
        forgiven = self._forgive()
        await self._let_go()
        before, now = self._looked_ms, self._clock.wall_ms()
        self._looked_ms = now
        if not self._roster.waiting:
            return
        # No row changes when a reservation begins, though its owner's VMs have room then.
        begun = self._roster.holdings.has_begun(before, now)
        if self._room == self._roster.room and not forgiven and not begun:
            return
        self._room = self._roster.room
        reasons = 0
        said, self._said = self._said, {}
        for vm in sorted(self._roster.waiting.values(), key=lambda vm: self._urgency(vm, now)):
            if vm.id not in self._roster.waiting:
                continue
            try:
                rejection = await self._try(vm, explain=reasons < _MOST_REASONS)
            except (Conflict, NotFound, Unavailable) as error:
                # Said once: it is looked at again every few moments.
                level = logging.DEBUG if said.get(vm.id) == error.message else logging.INFO
                log.log(level, "VM %s still waits: %s", vm.name, error.message)
                self._said[vm.id] = error.message
                self._room = -1  # nothing is known of it: look again
                continue
            if rejection is None:
                continue
            reasons += 1
            waited_s = (now - self._since_ms(vm)) / 1000
            if waited_s >= self._patience_s and _room_can_add_up(rejection):
                await self._hold_back(vm, rejection)
                break

    async def _relax(self) -> None:
        """Note who waits under a rule that relaxes, and relax it for those who waited so long."""
        now = self._clock.wall_ms()
        made = self._relaxing.plan(now)
        if not made:
            return

        def write(tx: Tx) -> None:
            self.singleton.check(tx)
            if not release_before_may_be_here(tx.connection):  # it would not follow
                relaxing.carry_out(tx, made, now)

        await self._store.write(write)

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
        minutes = max(0, now_ms - self._since_ms(vm)) / 60_000
        return -(vm.priority + minutes), vm.created_ms, vm.id

    def _since_ms(self, vm: VMRow) -> int:
        """Return since when a VM waits: one that was displaced, since then."""
        displaced = self._roster.displaced.get(vm.id)
        return vm.created_ms if displaced is None else displaced.at_ms

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
            kept = tx.find(holds, id=hold_id(vm.id, QUEUE))
            if kept is not None:
                lock_hosts(tx, (kept["host"], claim.host))
            changes: Changes = {"holds": drop_hold(tx, vm.id, QUEUE)}
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
            relaxing.forget(tx, vm.id, changes)
            note = f"on {seen.placement.host}{relaxing.said_of(seen.placement)}"
            tx.event("vm.placed", f"vm/{vm.id}", changes, project=vm.project, note=note)
            return VMRow(**row)

        may_ask_all = self._refused.get((vm.id, vm.generation), 0.0) is None
        never = () if may_ask_all else refused_by(vm)
        held = await self._held_for(vm)
        found = await self._placing.place(
            vm, commit, RUN, "roost", never=never, explain=explain, held=held
        )
        if isinstance(found, VMRow):
            log.info("VM '%s' waits no more", vm.name)
            return None
        if found is not None:
            found = relaxing.with_relaxed(self._roster, vm, found)
            if held is not None:
                host = self._roster.host_name(held.host)
                said = f"{found.message}; what becomes free on {host} is kept for it"
                found = replace(found, message=said)
            text = row_json(rejection_json(found))
            if text != vm.pending:
                await self._store.write(lambda tx: self._say_why(tx, vm, text))
        return found

    # Room that is held for the first in line

    async def _held_for(self, vm: VMRow) -> HoldRow | None:
        if not self._holding or vm.id not in self._holding:
            return None
        row = await self._store.read(lambda c: find_row(c, holds, {"id": hold_id(vm.id, QUEUE)}))
        return None if row is None else HoldRow(**row)

    async def _let_go(self) -> None:
        """Give back what is held for VMs that wait no more or had their turn, or is of no use."""
        now = self._clock.monotonic()
        if self._holding is None:  # another process may have held some
            rows = await self._store.read(lambda c: find_rows(c, holds, {"kind": QUEUE}))
            self._holding = {row["owner"].partition(":")[2]: now for row in rows}
        limit_s = _HOLD_TURNS * self._patience_s
        self._held_before = {vm: end for vm, end in self._held_before.items() if end > now}
        for vm, since in list(self._holding.items()):
            late = now - since > limit_s
            if late:
                self._held_before[vm] = now + limit_s
            if late or vm not in self._roster.waiting or not self._is_of_use(vm):
                await self._store.write(lambda tx: self._drop(tx, vm))  # noqa: B023
                del self._holding[vm]

    def _is_of_use(self, vm: str) -> bool:
        """Say whether what is held for a VM is on a host that takes VMs."""
        hold = self._roster.holdings.rows.get(hold_id(vm, QUEUE))
        entry = None if hold is None else self._roster.hosts.get(hold.host)
        return entry is not None and bool(self._roster.fleet.hosts.arrays.takes[entry.fleet_row])

    def _drop(self, tx: Tx, vm: str) -> None:
        self.singleton.check(tx)
        if dropped := drop_hold(tx, vm, QUEUE):
            tx.event("vm.room_let_go", f"vm/{vm}", {"holds": dropped})

    async def _hold_back(self, vm: VMRow, rejection: Rejection) -> None:
        """Hold room for the first in line where it lacks the least; nobody else has any held."""
        assert self._holding is not None
        miss = rejection.nearest_miss
        entry = self._roster.entry(miss.host) if miss is not None else None
        if entry is None or vm.id in self._held_before or vm.id in self._holding:
            return
        if life_of(self._roster, self._roster.specs.of(vm), vm.project) is not ORDINARY:
            return  # what it may have of a host is not told by what is free
        capacity = self._roster.fleet.hosts.arrays.capacity[entry.fleet_row, : len(AMOUNTS)]
        if any(need > most for need, most in zip(vm.amounts, capacity.tolist(), strict=True)):
            return  # it would never add up there

        def change(tx: Tx) -> bool:
            self.singleton.check(tx)
            now = relock(tx, vm.id)
            made = tx.find(preemptions, vm=vm.id) is not None
            if (
                made
                or release_before_may_be_here(tx.connection)
                or now.host is not None
                or now.pending is None
            ):
                return False
            others = tx.find_all(holds, kind=QUEUE)
            lock_hosts(tx, [entry.number, *(other["host"] for other in others)])
            for other in others:
                self._drop(tx, other["owner"].partition(":")[2])
            begin_hold(tx, vm.id, entry.number, QUEUE)
            return True

        if await self._store.write(change):
            self._holding = {vm.id: self._clock.monotonic()}
            log.info("room on %s is kept for VM %s", entry.name, vm.name)

    def gained(self) -> None:
        """Look again at what is held: another process may have changed it."""
        self._holding = None

    def _say_why(self, tx: Tx, vm: VMRow, text: str) -> None:
        self.singleton.check(tx)
        row = tx.row(_SAY_WHY, waits=vm.id, why=text)
        if row is not None:
            tx.event("vm.waits", f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project)


def _room_can_add_up(rejection: Rejection) -> bool:
    """Say whether a VM would fit once enough is gone; if not, leaving room for it helps nobody."""
    short = rejection.code is RejectionCode.INSUFFICIENT_RESOURCES
    return short and not rejection.larger_than_any_host
