"""Recover VMs of a dead host on request: also those that stay with their host otherwise.

The proof is the same as that of `recover`: nothing is started a second time unless the ledger has
it that the first copy is over. A lease is no proof for a VM that stays with its host, since the
guard lets such a VM run; a fence command or an operator's word is. What was on the host's own disk
is lost, as with every VM that is restarted elsewhere.
"""

from collections.abc import Sequence

from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.machine import SENT, is_proof
from roost.control.survive.rehoming import Rehoming
from roost.control.vms.lookup import vm_row
from roost.control.vms.views import vm_body
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_rows
from roost.ledger.writes.transaction import Tx
from roost.model.states import KeptRestart
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.roles import OPERATOR
from roost.parts.routes import CHANGING, NO_PLACE, Route
from roost.wire.bodies import NotRecovered, RecoveredBody, VMBody
from roost.wire.queries import OneVM


class RequestedRecovery(Part):
    """Restarts VMs of fenced hosts elsewhere when an operator asks."""

    def __init__(self, store: Store, roster: Roster, rehoming: Rehoming, lineage: Lineage) -> None:
        self._store, self._roster = store, roster
        self._rehoming, self._lineage = rehoming, lineage

    # fmt: off
    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return (
            Route(method="POST", path="/api/v1/vms/{vm}/recover", noun="vms", verb="recover",
                  call=lambda call: self.vm(call.path["vm"], call.query.project, call.who),
                  roles=OPERATOR, summary="Start a VM elsewhere whose host is proved to be off",
                  query=OneVM, reply=VMBody, statuses=(202,), errors=(*CHANGING, *NO_PLACE)),
            Route(method="POST", path="/api/v1/hosts/{name}/recover",
                  noun="hosts", verb="recover_host",
                  call=lambda call: self.host(call.path["name"], call.who), roles=OPERATOR,
                  summary="Start all VMs of a host elsewhere that is proved to be off",
                  reply=RecoveredBody, statuses=(202,), errors=CHANGING),
        )
    # fmt: on

    async def vm(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Start one VM elsewhere, or queue it when nothing has room."""
        await self._lineage.require_sure()
        vm = await self._store.read(lambda connection: vm_row(connection, ref, project, who))
        entry = self._dead_home(vm)
        await self._rehoming.restart_elsewhere(vm, entry, who.name, _nothing_more)
        now = await self._store.read(lambda connection: vm_row(connection, vm.id, None, who))
        read = self._roster.specs.read
        specs = await self._store.read(lambda connection: read(connection, [now]))
        return vm_body(now, specs.get(vm.id), self._roster)

    async def host(self, name: str, who: Principal) -> RecoveredBody:
        """Start every VM of a host elsewhere, the most urgent first."""
        await self._lineage.require_sure()
        entry = self._roster.entry(name)
        if entry is None:
            raise NotFound(f"no host {name!r}", host=name)
        _require_proof(entry, "here", f"its VMs may still run on host {name!r}")
        rows = await self._store.read(lambda c: find_rows(c, vms, {"host": entry.number}))
        found = RecoveredBody(host=name)
        waiting = [VMRow(**row) for row in rows if row["desired"] != "absent"]
        for vm in sorted(waiting, key=lambda vm: (-vm.priority, vm.created_ms, vm.id)):
            try:
                home = self._dead_home(vm)
                placed = await self._rehoming.restart_elsewhere(vm, home, who.name, _nothing_more)
                (found.restarted if placed else found.queued).append(vm.name)
            except (Conflict, NotFound, Unavailable) as error:
                found.failed.append(NotRecovered(vm=vm.name, why=error.message))
        return found

    def _dead_home(self, vm: VMRow) -> HostEntry:
        """Return the host that a VM is on, if it is proved that it does not run there any more."""
        if vm.desired == "absent":
            raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
        if vm.host is None:
            raise Conflict(f"VM {vm.name!r} has no host: it is queued already", vm=vm.id)
        if vm.phase in SENT:
            raise Conflict(
                f"VM {vm.name!r} was being handed over; its target is asked first", vm=vm.id
            )
        entry = self._roster.hosts.get(vm.host)
        if entry is None:  # a row is ahead of what this process has heard, or behind it
            raise Conflict(f"the host of VM {vm.name!r} is gone, or not heard of here", vm=vm.id)
        _require_proof(entry, vm.restart, f"VM {vm.name!r} may still run on host {entry.name!r}")
        return entry


def _require_proof(entry: HostEntry, restart: KeptRestart, risk: str) -> None:
    if entry.row.health == "online":
        raise Conflict(
            f"host {entry.name!r} is online", host=entry.name, hint="Maybe roost host drain."
        )
    if not is_proof(restart, entry.row.fenced):
        raise Conflict(
            f"{risk}: nothing proves that the host is off",
            host=entry.name,
            hint=f"Maybe switch it off, then: roost host confirm-dead {entry.name} --reason ...",
        )


def _nothing_more(tx: Tx) -> None:
    """Demand no lease: whoever asks is an operator, not the process that watches hosts."""
