"""Look up VMs by id or name, as far as the asker may see them, and projects by name."""

from collections.abc import Iterable

from sqlalchemy import Connection, select

from roost.base.errors import LedgerUnsettled, NotFound
from roost.control.memory.restore_detect import is_doubted
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import projects, vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal


def vm_row(connection: Connection, ref: str, project: str | None, who: Principal) -> VMRow:
    """Return the VM that an id or a name means; one of another project is not found."""
    found = None
    if ref.startswith("vm-"):
        found = find_row(connection, vms, {"id": ref})
    if found is None:
        owner = project or who.project or "default"
        found = find_row(connection, vms, {"project": owner, "name": ref})
    elif project is not None and found["project"] != project:
        found = None
    if found is None or (who.project is not None and found["project"] != who.project):
        raise NotFound(f"no VM {ref!r}", vm=ref)
    return VMRow(**found)


def require_projects(connection: Connection, names: Iterable[str]) -> None:
    """Refuse names that no project has."""
    asked = list(dict.fromkeys(names))
    known = select(projects.c.name).where(projects.c.name.in_(asked))
    found = set(connection.scalars(known))
    for name in asked:
        if name not in found:
            raise NotFound(f"no project {name!r}", project=name)


def locked_vm(tx: Tx, ref: str, project: str | None, who: Principal) -> VMRow:
    """Return the VM that an id or a name means, locked until the transaction ends."""
    vm = vm_row(tx.connection, ref, project, who)
    return relock(tx, vm.id)


def relock(tx: Tx, vm_id: str) -> VMRow:
    """Return a VM by id, locked, to change it; the row is read after the lock is had."""
    found = tx.find(vms, id=vm_id, lock=True)
    if found is None:
        raise NotFound(f"no VM {vm_id!r}", vm=vm_id)
    if is_doubted(tx, vm_id):
        raise LedgerUnsettled(
            f"an old database was restored, and it is not known yet where VM {found['name']!r} is",
            vm=vm_id,
            hint="Maybe a host has not come back yet; roost doctor says which.",
        )
    return VMRow(**found)


async def find_vm(store: Store, vm_id: str) -> VMRow | None:
    """Return a VM by id."""

    def question(connection: Connection) -> VMRow | None:
        found = find_row(connection, vms, {"id": vm_id})
        return VMRow(**found) if found is not None else None

    return await store.read(question)
