"""Change where a VM may be started after the loss of its host, while it exists.

A lease proves that a VM is over only if its host stops the VM when the lease ends. A host does so
for VMs that it was told may run elsewhere. So a VM that stayed with its host until now is
`elsewhere_asked` first: ordered, but no lease counts as proof for it. It is `elsewhere` once its
host reports the newest order with that policy in force (`acknowledged`). So is one that waits while
room is held on a host for a copy that was told to stay. The other way round the ledger changes at
once: that a host stops a VM too often is no second copy.
"""

from msgspec import UNSET

from roost.base.errors import Conflict, InvalidRequest
from roost.control.vms.lookup import locked_vm
from roost.ledger.claims.capacity import CLEANUP, claim_id
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import claims, vms
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx
from roost.model.states import KeptRestart, Restart
from roost.parts.access import Principal
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import SetVM

ASKED: KeptRestart = "elsewhere_asked"
#: VMs that are started on another host when it is proved that they do not run any more.
MOVABLE: tuple[KeptRestart, ...] = ("elsewhere", ASKED)


def asked_restart(vm: VMRow) -> Restart:
    """Return the restart policy that a VM's owner wants, which its host is told."""
    return "here" if vm.restart == "here" else "elsewhere"


def set_vm(tx: Tx, ref: str, project: str | None, body: SetVM, who: Principal) -> VMRow:
    """Set what is given of a VM: where it is started after the loss of its host."""
    if body.restart is UNSET:
        raise InvalidRequest("nothing to set", hint='Maybe {"restart": "elsewhere"}.')
    vm = locked_vm(tx, ref, project, who)
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    if body.restart == asked_restart(vm):
        return vm
    if vm.phase:
        raise Conflict(f"VM {vm.name!r} is moving; wait until it has arrived", vm=vm.id)
    kept: KeptRestart = body.restart
    # A host that was told to keep it may have it: its home, or one that let go of it and was not
    # heard since.
    is_somewhere = vm.host is not None or tx.find(claims, id=claim_id(vm.id, CLEANUP))
    if kept == "elsewhere" and is_somewhere:
        if release_before_may_be_here(tx.connection):
            raise Conflict(
                "a VM cannot be set to restart elsewhere while older processes may run beside",
                vm=vm.id,
                hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
            )
        kept = ASKED
    row = tx.change(vms, {"id": vm.id}, generation=Plus(1), restart=kept)
    assert row is not None
    note = f"after the loss of its host: {body.restart}"
    tx.event("vm.restart_set", f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project, note=note)
    return VMRow(**row)


def acknowledged(vm: VMRow, seen: SeenVM) -> KeptRestart:
    """Return a VM's policy after a report of its host.

    Only a report on the newest order counts: an older one may be of a time before the VM was set
    to stay with its host.
    """
    if vm.restart == ASKED and seen.generation == vm.generation and seen.restart == "elsewhere":
        return "elsewhere"
    return vm.restart
