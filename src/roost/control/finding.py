"""Look up VMs: by id, or by name within a project, as far as the asker may see them."""

from sqlalchemy import Connection, select

from roost.base.errors import NotFound
from roost.control.access import Principal
from roost.ledger.rows import VMRow
from roost.ledger.store import Store
from roost.ledger.tables import vms
from roost.ledger.transaction import Tx


def vm_row(connection: Connection, ref: str, project: str | None, who: Principal) -> VMRow:
    """Return the VM that an id or a name means; one of another project is not found."""
    found = None
    if ref.startswith("vm-"):
        found = connection.execute(select(vms).where(vms.c.id == ref)).mappings().first()
    if found is None:
        owner = project or who.project or "default"
        query = select(vms).where(vms.c.project == owner, vms.c.name == ref)
        found = connection.execute(query).mappings().first()
    elif project is not None and found["project"] != project:
        found = None
    if found is None or (who.project is not None and found["project"] != who.project):
        raise NotFound(f"no VM {ref!r}", vm=ref)
    return VMRow(**found)


def locked_vm(tx: Tx, ref: str, project: str | None, who: Principal) -> VMRow:
    """Return the same, locked until the transaction ends."""
    vm = vm_row(tx.connection, ref, project, who)
    return relock(tx, vm.id)


def relock(tx: Tx, vm_id: str) -> VMRow:
    """Return a VM by id, locked; the row is read after the lock is had."""
    found = tx.row(select(vms).where(vms.c.id == vm_id).with_for_update())
    if found is None:
        raise NotFound(f"no VM {vm_id!r}", vm=vm_id)
    return VMRow(**found)


async def find_vm(store: Store, vm_id: str) -> VMRow | None:
    """Return a VM by id."""

    def question(connection: Connection) -> VMRow | None:
        found = connection.execute(select(vms).where(vms.c.id == vm_id)).mappings().first()
        return VMRow(**found) if found is not None else None

    return await store.read(question)
