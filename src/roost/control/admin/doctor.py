"""Verify every invariant on the live database, and say what is wrong."""

from sqlalchemy import Connection

from roost.control.survive.restore_judge import what_is_open
from roost.ledger.checks import Examination, examine
from roost.ledger.store import Store
from roost.wire.bodies import DoctorBody, FindingBody


async def doctor(store: Store) -> DoctorBody:
    """Examine the ledger on one consistent view; work goes on meanwhile."""
    found = await store.read(_examine)
    return DoctorBody(
        ok=not found.findings,
        checked=found.checked,
        findings=[FindingBody(check=check, message=said) for check, said in found.findings],
        notes=[FindingBody(check=check, message=said) for check, said in found.notes],
    )


def _examine(connection: Connection) -> Examination:
    found = examine(connection)
    doubted, silent = what_is_open(connection)
    if doubted:
        waits = f"; these hosts have not answered: {', '.join(silent[:20])}" if silent else ""
        found.note(
            "restored", f"an old database was restored, and {doubted} VMs are in doubt{waits}"
        )
    return found
