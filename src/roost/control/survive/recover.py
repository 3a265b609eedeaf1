"""After the loss of a host: proof that its VMs are stopped, then new homes for those that want one.

A second copy of a VM starts only when the ledger records that the first is fenced:

    lease      the host's guard stops such VMs when the lease ends; the lease, a margin and the
               guard's own limit have passed since the watcher saw the last renewal
    command    a configured fence command succeeded
    operator   somebody said that the host is dead

Fencing moves the host's epoch under the same condition that was watched (no renewal since), and a
renewal quotes the epoch: either the renewal is in the ledger first and the host is not fenced, or
the host is fenced first and the renewal is refused. VMs are restarted in the order of their
priorities, so many at a look; VMs that stay with their host are for operators (`requested`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlalchemy import Connection, select

from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.hosts.registering import locked_host
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.handover import happen
from roost.control.moves.machine import SENT, Proof, SourceFenced, is_proof
from roost.control.survive.fencing import FENCE_SHARE, fence, why_not_fence
from roost.control.survive.liveness import Watcher
from roost.control.survive.rehoming import Rehoming
from roost.control.timers import Timers
from roost.control.vms.deletion import remove_deleted
from roost.control.vms.lookup import relock
from roost.control.vms.restart_policy import MOVABLE
from roost.ledger.claims.capacity import cleanup_claims, release
from roost.ledger.schema.changes import CLAIMS, HOSTS, VMS
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import find_rows
from roost.ledger.writes.transaction import Tx
from roost.model.states import FenceMethod
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.recover")

#: Runs the configured fence command for a host; True when it says that the host is off.
FenceCommand = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class RecoverLimits:
    """How much may be done at a time after losses."""

    fence_share: float = FENCE_SHARE  # of all hosts, fenced by command
    recover_at_once: int = 100  # VMs restarted at one look


class Recover(Part):
    """Fences silent hosts and restarts their VMs elsewhere; runs where their watcher does."""

    singleton: Singleton
    wakes = (HOSTS, VMS, CLAIMS)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        rehoming: Rehoming,
        watcher: Watcher,
        lineage: Lineage,
        timers: Timers,
        limits: RecoverLimits,
        command: FenceCommand | None = None,
    ) -> None:
        self._store, self._roster, self._rehoming = store, roster, rehoming
        self._limits = limits
        self._watcher, self._lineage, self._timers = watcher, lineage, timers
        self.singleton = watcher.singleton  # its proof is what that process has seen
        self._command = command
        self._commands: dict[int, tuple[int, asyncio.Future[bool]]] = {}
        self._held_back: dict[str, str] = {}  # hosts that the command must not fence, and why
        self._cleared: set[int] = set()  # fenced hosts that nothing was left to do for

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    def is_due(self) -> bool:
        """Say whether a host is lost for which something is left to do."""
        lost = (n for n, entry in self._roster.hosts.items() if entry.row.health == "offline")
        return bool(self._commands) or not self._cleared.issuperset(lost)

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor which hosts the fence command is held back from, and why."""
        for name, why in sorted(self._held_back.items()):
            found.trouble("fencing", f"host {name} is not fenced by command: {why}")

    async def look(self) -> None:
        """Fence offline hosts where there is proof, and restart their VMs elsewhere."""
        self._held_back, known = {}, self._held_back
        self._drop_commands()
        self._cleared = set()
        to_restart: list[tuple[VMRow, HostEntry]] = []
        for entry in list(self._roster.hosts.values()):
            if entry.row.health != "offline":
                continue
            if entry.row.fenced is None:
                await self._try_to_fence(entry)
            if entry.row.fenced is not None:
                to_restart += await self._clear(entry)
        for name in self._held_back.keys() - known.keys():
            log.error("host %s is not fenced by command: %s", name, self._held_back[name])
        await self._restart_in_order(to_restart)

    async def _try_to_fence(self, entry: HostEntry) -> None:
        silence = self._watcher.silences.get(entry.number)
        if silence is None:
            return
        stop_s = entry.row.guard_stop_s
        if stop_s is not None:
            needed = self._timers.lease_s * self._timers.fence_margin + stop_s
            if silence.silent_s >= needed:
                proof = f"no renewal for {silence.silent_s:.1f} s of {needed:.1f} s needed"
                await self._fence(entry, "lease", proof, silence.evidence)
                return
        if self._command is None:
            return
        if await self._is_wanted_elsewhere(entry):
            await self._fence_by_command(entry, silence.evidence, self._command)
        else:
            self._drop_command(entry.number)

    def _drop_commands(self) -> None:
        """Drop what was asked of hosts that are back, or fenced in another way meanwhile."""
        for number in list(self._commands):
            entry = self._roster.hosts.get(number)
            if entry is None or entry.row.health != "offline" or entry.row.fenced is not None:
                self._drop_command(number)

    def _drop_command(self, number: int) -> None:
        """Drop a command that has ended; one that runs goes on, and counts."""
        _, task = self._commands.get(number, (0, None))
        if task is not None and task.done():
            del self._commands[number]
            if not task.cancelled():
                task.exception()  # nobody asks for it any more

    def _may_run_command(self, entry: HostEntry) -> bool:
        rows = [each.row for each in self._roster.hosts.values()]
        why = why_not_fence(rows, len(self._commands), self._limits.fence_share)
        if why:
            self._held_back[entry.name] = why
        return not why

    async def _is_wanted_elsewhere(self, entry: HostEntry) -> bool:
        """Say whether fencing a host would help a VM: none is shot for nothing."""
        here = select(vms.c.id).where(vms.c.host == entry.number, vms.c.restart.in_(MOVABLE))

        def question(connection: Connection) -> bool:
            if connection.execute(here.limit(1)).scalar() is not None:
                return True
            # One that waits for another host until this one has destroyed its copy.
            left = [claim.vm for claim in cleanup_claims(connection, entry.number)]
            waits = vms.c.id.in_(left), vms.c.host.is_(None), vms.c.restart.in_(MOVABLE)
            return connection.execute(select(vms.c.id).where(*waits).limit(1)).scalar() is not None

        return await self._store.read(question)

    async def _fence_by_command(
        self, entry: HostEntry, evidence: int, command: FenceCommand
    ) -> None:
        """Run the fence command in the background; it proves what was seen before it began."""
        known = self._commands.get(entry.number)
        if known is not None and not known[1].done():
            return
        if known is not None:
            seen, task = self._commands.pop(entry.number)
            error = None if task.cancelled() else task.exception()
            if error is None and not task.cancelled() and task.result():
                await self._fence(entry, "command", "the fence command succeeded", seen)
                return
            log.warning("no proof by the fence command for host %s: %s", entry.name, error or "no")
        if not self._may_run_command(entry):
            return
        self._commands[entry.number] = (evidence, asyncio.ensure_future(command(entry.name)))
        await asyncio.sleep(0)  # let it begin

    async def _fence(
        self, entry: HostEntry, method: FenceMethod, proof: str, evidence: int
    ) -> None:
        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            host = locked_host(tx, entry.name)
            if host.fenced is None:
                fence(tx, host, method, proof, evidence)

        try:
            await self._store.write(change)
            log.warning("host %s is fenced by %s: %s", entry.name, method, proof)
        except Conflict as error:
            log.info("host %s is not fenced: %s", entry.name, error.message)

    async def _clear(self, entry: HostEntry) -> list[tuple[VMRow, HostEntry]]:
        """End deletions and moves on a fenced host; return the VMs that are to be restarted."""
        found = await self._store.read(lambda c: find_rows(c, vms, {"host": entry.number}))
        to_restart, idle = [], True
        for vm in [VMRow(**row) for row in found]:
            try:
                if vm.desired == "absent":
                    idle = False
                    await self._store.write(
                        lambda tx: self._finish_delete(tx, vm.id, entry.number)  # noqa: B023
                    )
                elif vm.phase in SENT:
                    idle = False
                    await self._ask_target(vm)
                elif vm.restart in MOVABLE and is_proof(vm.restart, entry.row.fenced):
                    to_restart.append((vm, entry))
            except (Conflict, NotFound, Unavailable) as error:
                log.warning("VM %s is not recovered yet: %s", vm.name, error.message)
        if await self._store.read(lambda c: cleanup_claims(c, entry.number)):
            idle = False
            await self._store.write(lambda tx: self._release_holds(tx, entry))
        if idle and not to_restart:
            self._cleared.add(entry.number)
        return to_restart

    async def _restart_in_order(self, waiting: list[tuple[VMRow, HostEntry]]) -> None:
        """Restart the most urgent first, and so many at a look that the hosts can follow."""
        waiting.sort(key=lambda each: (-each[0].priority, each[0].created_ms, each[0].id))
        restarted = 0
        for vm, entry in waiting:
            if restarted >= self._limits.recover_at_once:
                log.info("%d VMs wait for the next round of restarts", len(waiting) - restarted)
                return
            try:
                await self._rehoming.restart_elsewhere(vm, entry, "roost", self.singleton.check)
                restarted += 1
            except (Conflict, NotFound, Unavailable) as error:
                log.warning("VM %s is not recovered yet: %s", vm.name, error.message)

    async def _ask_target(self, vm: VMRow) -> None:
        """Step a move whose source is fenced: the target has the VM, or must say that it has not.

        If it is fenced too, neither has; then the VM is recovered like any other.
        """
        target = self._roster.hosts.get(vm.target) if vm.target is not None else None
        fenced: Proof | None = "removed" if target is None else target.row.fenced

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            happen(tx, relock(tx, vm.id), SourceFenced(fenced))

        await self._store.write(change)

    def _release_holds(self, tx: Tx, entry: HostEntry) -> None:
        """Release the cleanup claims of copies on a fenced host; their tombstones stay.

        Not for copies that the fence does not end: a lease ends only VMs that may run elsewhere,
        and as long as something is held for a VM it is not placed elsewhere.
        """
        self.singleton.check(tx)
        fenced = locked_host(tx, entry.name).fenced
        if fenced is None:
            return
        for claim in cleanup_claims(tx.connection, entry.number):
            vm = tx.find(vms, id=claim.vm)
            if vm is not None and not is_proof(vm["restart"], fenced):
                continue
            release(tx, claim)
            tx.event("vm.hold_released", f"vm/{claim.vm}", {"claims": {claim.id: None}})

    def _finish_delete(self, tx: Tx, vm_id: str, host: int) -> None:
        self.singleton.check(tx)
        vm = relock(tx, vm_id)
        if vm.host == host and vm.desired == "absent":
            remove_deleted(tx, vm, "its host is fenced", unseen=True)
