"""Verify every invariant on the live database, and say what is wrong."""

from roost.ledger.checks import examine
from roost.ledger.store import Store
from roost.wire.bodies import DoctorBody, FindingBody


async def doctor(store: Store) -> DoctorBody:
    """Examine the ledger on one consistent view; work goes on meanwhile."""
    found = await store.read(examine)
    return DoctorBody(
        ok=not found.findings,
        checked=found.checked,
        findings=[FindingBody(check=check, message=said) for check, said in found.findings],
        notes=[FindingBody(check=check, message=said) for check, said in found.notes],
    )
