"""Verify every invariant on the live database, and say what is wrong."""

from collections.abc import Sequence

from sqlalchemy import Connection

from roost.ledger.store import Store
from roost.ledger.upkeep.checks import examine
from roost.ledger.upkeep.examination import Examination
from roost.parts.part import Part
from roost.wire.bodies import DoctorBody, FindingBody


async def doctor(store: Store, parts: Sequence[Part] = ()) -> DoctorBody:
    """Examine the ledger and what parts know of it on one consistent view; work goes on."""

    def question(connection: Connection) -> Examination:
        found = examine(connection)
        for part in parts:
            part.examine(connection, found)
        return found

    found = await store.read(question)
    return DoctorBody(
        ok=not found.findings and not found.troubles,
        checked=found.checked,
        findings=_bodies(found.findings),
        troubles=_bodies(found.troubles),
        notes=_bodies(found.notes),
    )


def _bodies(told: Sequence[tuple[str, str]]) -> list[FindingBody]:
    return [FindingBody(check=check, message=said) for check, said in told]
