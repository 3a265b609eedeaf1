"""What must hold in a database after a run, whatever the numbers were."""

from sqlalchemy import Connection, func, or_, select

from benchmarks.api.databases import with_store
from roost.control.admin.doctor import doctor
from roost.ledger.schema.tables import host_amounts, vms
from roost.ledger.store import Store

_AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes", "vms")


class Wrong(Exception):
    """An answer or a database is not as it must be."""


def verify(name: str, url: str, expected_vms: int) -> None:
    """Check a database that no server uses: every invariant, and that no VM is lost or double."""

    async def work(store: Store) -> None:
        found = await doctor(store)
        if not found.ok:
            said = "; ".join(f"{each.check}: {each.message}" for each in found.findings[:5])
            raise Wrong(f"{name}: the doctor finds {said}")
        there, over = await store.read(_count)
        if there != expected_vms:
            raise Wrong(f"{name}: {there} VMs are there and {expected_vms} were answered")
        if over:
            raise Wrong(f"{name}: {over} hosts are over their capacity")

    with_store(url, work)


def _count(connection: Connection) -> tuple[int, int]:
    there = connection.execute(select(func.count()).select_from(vms)).scalar_one()
    columns = host_amounts.c
    over = or_(*(columns[f"{a}_committed"] > columns[f"{a}_capacity"] for a in _AMOUNTS))
    query = select(func.count()).select_from(host_amounts).where(over)
    return int(there), int(connection.execute(query).scalar_one())
