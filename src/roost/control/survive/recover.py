"""After the loss of a host: proof that its VMs are stopped, then new homes for those that want one.

A second copy of a VM starts only when the ledger records that the first is fenced:

    lease      the host's guard stops such VMs when the lease ends; the lease, a margin and the
               guard's own limit have passed since the watcher saw the last renewal
    command    a configured fence command succeeded
    operator   somebody said that the host is dead

Fencing moves the host's epoch under the same condition that was watched (no renewal since), and a
renewal quotes the epoch: either the renewal is in the ledger first and the host is not fenced, or
the host is fenced first and the renewal is refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.create.placing import Basis, Placing, take
from roost.control.hosts.registering import change_host, locked_host
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import HostEntry, Roster
from roost.control.moves.handover import give_up_both, happen
from roost.control.moves.machine import SENT, Proof, SourceFenced, is_proof
from roost.control.survive.liveness import Watcher
from roost.control.timers import Timers
from roost.control.vms.deletion import remove_deleted
from roost.control.vms.lookup import relock
from roost.ledger.capacity import RUN, cleanup_claims, release
from roost.ledger.membership import advance_groups
from roost.ledger.rows import Changes, ClaimRow, HostRow, VMRow
from roost.ledger.statements import Plus, find_row, find_rows
from roost.ledger.store import Store
from roost.ledger.tables import fences, host_liveness, vms
from roost.ledger.transaction import Tx, row_json
from roost.model.flow import Rejection
from roost.model.states import FenceMethod
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.wire.answers import rejection_json

log = logging.getLogger("roost.recover")

#: Runs the configured fence command for a host; True when it says that the host is off.
FenceCommand = Callable[[str], Awaitable[bool]]


class Recover(Part):
    """Fences silent hosts and restarts their VMs elsewhere; runs where their watcher does."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        roster: Roster,
        placing: Placing,
        watcher: Watcher,
        lineage: Lineage,
        timers: Timers,
        command: FenceCommand | None = None,
    ) -> None:
        self._store, self._roster, self._placing = store, roster, placing
        self._watcher, self._lineage, self._timers = watcher, lineage, timers
        self.singleton = watcher.singleton  # its proof is what that process has seen
        self._command = command
        self._commands: dict[int, tuple[int, asyncio.Future[bool]]] = {}

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    async def look(self) -> None:
        """Fence offline hosts where there is proof, and restart their VMs elsewhere."""
        for entry in list(self._roster.hosts.values()):
            if entry.row.health != "offline":
                continue
            if entry.row.fenced is None:
                await self._try_to_fence(entry)
            if entry.row.fenced is not None:
                await self._empty(entry)

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
        if self._command is not None and await self._is_wanted_elsewhere(entry):
            await self._fence_by_command(entry, silence.evidence, self._command)

    async def _is_wanted_elsewhere(self, entry: HostEntry) -> bool:
        """Say whether fencing a host would help a VM: none is shot for nothing."""
        where = {"host": entry.number, "restart": "elsewhere"}
        return await self._store.read(lambda c: find_row(c, vms, where)) is not None

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

    async def _empty(self, entry: HostEntry) -> None:
        waiting = await self._store.read(lambda c: find_rows(c, vms, {"host": entry.number}))
        for vm in [VMRow(**row) for row in waiting]:
            try:
                if vm.desired == "absent":
                    await self._store.write(
                        lambda tx: self._finish_delete(tx, vm.id, entry.number)  # noqa: B023
                    )
                elif vm.phase in SENT:
                    await self._ask_target(vm)
                elif vm.restart == "elsewhere":
                    await self._restart(vm, entry)
            except (Conflict, NotFound, Unavailable) as error:
                log.warning("VM %s is not recovered yet: %s", vm.name, error.message)
        if await self._store.read(lambda c: cleanup_claims(c, entry.number)):
            await self._store.write(lambda tx: self._release_holds(tx, entry))

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

    async def _restart(self, vm: VMRow, entry: HostEntry) -> None:
        def commit(tx: Tx, seen: Basis, claim: ClaimRow) -> VMRow:
            changes: Changes = {}
            self._leave(tx, vm, entry, changes)
            take(tx, vm, claim, seen, "recover", changes)
            row = _rehome(tx, vm, host=claim.host, pending=None)
            changes["vms"] = {vm.id: row}
            note = f"from {entry.name} to {seen.placement.host}"
            tx.event("vm.recovered", f"vm/{vm.id}", changes, project=vm.project, note=note)
            return row

        target = self._roster.host_name(vm.target)
        never = (entry.name,) if target is None else (entry.name, target)
        found = await self._placing.place(vm, commit, RUN, "roost", never=never)
        if isinstance(found, Rejection):
            await self._store.write(lambda tx: self._queue(tx, vm, entry, found))
        else:
            log.warning("VM %s is restarted elsewhere", vm.name)

    def _leave(self, tx: Tx, vm: VMRow, entry: HostEntry, changes: Changes) -> None:
        """Take a VM off a fenced host: claims go, and the host's copy is to be destroyed."""
        self.singleton.check(tx)
        now = relock(tx, vm.id)
        host = locked_host(tx, entry.name)
        if now.generation != vm.generation or now.host != entry.number or host.fenced is None:
            raise Conflict(f"VM {vm.name!r} was changed meanwhile", vm=vm.id)
        give_up_both(tx, now, changes)

    def _queue(self, tx: Tx, vm: VMRow, entry: HostEntry, why: Rejection) -> None:
        changes: Changes = {}
        self._leave(tx, vm, entry, changes)
        advance_groups(tx, vm.id, changes)
        row = _rehome(tx, vm, host=None, pending=row_json(rejection_json(why)))
        changes["vms"] = {vm.id: row}
        tx.event("vm.queued", f"vm/{vm.id}", changes, project=vm.project, note=why.message)


def _rehome(tx: Tx, vm: VMRow, **values: object) -> VMRow:
    row = tx.change(
        vms,
        {"id": vm.id},
        generation=Plus(1),
        target=None,
        phase="",
        move=None,
        observed="",
        observed_generation=0,
        problem=None,
        **values,
    )
    assert row is not None
    return VMRow(**row)


def fence(tx: Tx, host: HostRow, method: FenceMethod, proof: str, evidence: int | None) -> HostRow:
    """Record that a host is fenced, unless it was heard of since."""
    where = {"host": host.number}
    if evidence is not None:
        where["evidence"] = evidence
    fenced = tx.change(host_liveness, where, epoch=Plus(1))
    if fenced is None:
        raise Conflict(f"host {host.name!r} was heard of since", host=host.name)
    epoch = fenced["epoch"]
    row = {
        "host": host.number,
        "epoch": epoch,
        "method": method,
        "proof": proof,
        "at_ms": tx.at_ms,
    }
    tx.insert(fences, row)
    return change_host(
        tx,
        host.number,
        "host.fenced",
        note=f"{method}: {proof}",
        extra={"fences": {f"{host.number}|{epoch}": row}},
        health="offline",
        fenced=method,
    )
