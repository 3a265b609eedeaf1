"""The door through which a refusal learns after which moves a VM would fit; plans lie above."""

from typing import Protocol

from roost.model.flow import PlaceRequest
from roost.parts.access import Principal
from roost.wire.bodies import RejectionBody


class NamesMoves(Protocol):
    """Knows after which few moves of others a VM would fit."""

    async def tell_moves(self, found: RejectionBody, request: PlaceRequest, who: Principal) -> None:
        """Add to a refusal for want of room the moves that would make some, if few do."""
