"""The door through which a create asks others to make room; who does it is above this room."""

from typing import Protocol

from roost.ledger.schema.rows import VMRow
from roost.model.flow import PlaceRequest
from roost.parts.access import Principal
from roost.wire.bodies import PreemptionBody


class MakesRoom(Protocol):
    """Finds VMs that make room for others, and lets them."""

    async def planned(self, request: PlaceRequest, who: Principal) -> PreemptionBody | None:
        """Say who would make room for a request; None when nobody can."""

    async def begin_for(self, vm: VMRow) -> bool:
        """Begin to make room for a VM that waits; False when nobody can."""
