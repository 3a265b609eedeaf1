"""A host as the roster has it, and how its row in the ledger is read.

A row that cannot be read, or that the fleet does not admit, makes an entry all the same: it is set
aside with the reason, and unknown is full. Nothing here changes the fleet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from roost.control.memory.held_copies import without_held
from roost.ledger.schema.rows import HostRow
from roost.model.hosts import HostSpec, Resource
from roost.wire.agentlink import AmountInfo, Inventory
from roost.wire.hostsettings import adjusted
from roost.wire.translate import host_spec

_inventory = msgspec.json.Decoder(Inventory)
_labels = msgspec.json.Decoder(dict[str, str])


@dataclass(slots=True)
class HostEntry:
    """One host: its ledger row, its row in the fleet, and the generation that claims quote."""

    row: HostRow
    inventory: Inventory
    fleet_row: int
    generation: int
    epoch: int = 0  # grows when the host is fenced; renewals quote it
    aside: str = ""  # why it cannot be used: what it registered with does not make sense here

    @property
    def number(self) -> int:
        """Return the host's number in the ledger."""
        return self.row.number

    @property
    def name(self) -> str:
        """Return the host's name."""
        return self.row.name


class ReadHost(NamedTuple):
    """A row of the ledger, and what it says that a host is; or why it cannot be taken."""

    row: HostRow
    generation: int
    inventory: Inventory
    spec: HostSpec
    aside: str


#: What is known of a host whose row cannot be read: nothing, and unknown is full.
UNKNOWN = Inventory(AmountInfo(None), AmountInfo(None), AmountInfo(None))


def _unknown(name: str) -> HostSpec:
    return HostSpec(name, Resource(None), Resource(None), Resource(None))


def read_host(row: HostRow) -> tuple[Inventory, HostSpec]:
    """Return what a row of the ledger says that a host is."""
    inventory = adjusted(_inventory.decode(row.inventory), row.settings)
    labels = None if row.labels is None else _labels.decode(row.labels)
    spec = host_spec(row.name, inventory, labels=labels, health=row.health, admin=row.admin)
    return inventory, without_held(spec, row)


def read_or_set_aside(
    row: HostRow, generation: int, aside: str, admit: Callable[[HostSpec], object]
) -> ReadHost:
    """Read a host's row; one that is not admitted, or is known not to be, is set aside."""
    if not aside:
        try:
            inventory, spec = read_host(row)
            admit(spec)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must start
            aside = str(error)
    if aside:
        inventory, spec = UNKNOWN, _unknown(row.name)
    return ReadHost(row, generation, inventory, spec, aside)
