"""What a plane shares with parts that others bring: the store, time, ids, who may, and leases."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roost.base.clock import Clock
from roost.base.ids import IdSource
from roost.ledger.store import Store
from roost.parts.access import Access
from roost.parts.part import Part
from roost.parts.sealing import Seal
from roost.parts.singleton import Leases


@dataclass(frozen=True, slots=True)
class Shared:
    """The things of one process that every part may use."""

    store: Store
    clock: Clock
    ids: IdSource
    access: Access
    leases: Leases
    seal: Seal
    able: Callable[[], bool]  # whether this process may act now


#: Makes parts of a plane from what it shares.
Bring = Callable[[Shared], Sequence[Part]]
