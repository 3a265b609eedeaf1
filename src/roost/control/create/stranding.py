"""Who would be stranded by a loss, as somebody may see it: a name in place of the claim's key.

Of another project's VM only that there is one is told: its rules and its size are its project's.
"""

from sqlalchemy import Connection

from roost.base.errors import NotFound
from roost.control.vms.lookup import vm_row
from roost.ledger.store import Store
from roost.model.flow import Rejection
from roost.parts.access import Principal
from roost.placement.rejecting import renamed

_HIDDEN = "a VM of another project"


async def as_seen(stranded: Rejection, store: Store, who: Principal) -> Rejection:
    """Return the refusal of a VM, or of a copy of what was asked for, as somebody may see it."""
    vm, _, _ = stranded.vm.rpartition(":")
    if not vm:  # a copy: it has no claim
        return stranded

    def question(connection: Connection) -> str | None:
        try:
            return vm_row(connection, vm, None, who).name
        except NotFound:
            return None

    name = await store.read(question)
    if name is not None:
        return renamed(stranded, name)
    if who.project is None:  # deleted meanwhile
        return renamed(stranded, vm)
    return Rejection(
        _HIDDEN, stranded.code, f"no host for {_HIDDEN}", stranded.strategy, stranded.hosts
    )
