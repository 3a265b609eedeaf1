"""The changes of one event, decoded for those who keep something in memory.

What an event says of a table has a type, which stands beside the row's; whoever follows events
names the tables it wants (`ChangedTable`), and all that anybody wants is decoded at once. Tables
and fields that nobody here knows are left out, never an error: a newer process may have more.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from roost.ledger.schema.rows import (
    ClaimRow,
    ConstraintRow,
    DisplacedRow,
    FlavorRow,
    GroupRow,
    HoldRow,
    HostRow,
    PlanMoveRow,
    PlanRow,
    PolicyRow,
    PreemptionRow,
    PriorityClassRow,
    ProjectRow,
    RelaxationRow,
    ReservationRow,
    SpecRow,
    TopologyRow,
    TrafficRow,
    VMRow,
)
from roost.model.kept import Kept

V = TypeVar("V")

_NONE: Mapping[str, Any] = MappingProxyType({})


class ChangedTable(Generic[V]):
    """A table as events name it, and the type of the rows that they carry."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value


class Changes:
    """The changes of one event, by table."""

    __slots__ = ("_tables", "tables")

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._tables = tables
        self.tables = tuple(tables)  # the names of those that have changes

    def of(self, table: ChangedTable[V]) -> Mapping[str, V]:
        """Return the changed rows of a table by key; mostly none."""
        found: Mapping[str, V] = self._tables.get(table.name, _NONE)
        return found

    def value(self, table: ChangedTable[V]) -> V | None:
        """Return the new value of a table that has a single row."""
        found: V | None = self._tables.get(table.name)
        return found


def changes_decoder(tables: Iterable[ChangedTable[Any]]) -> Callable[[str], Changes]:
    """Return a decoder of events' changes that keeps these tables alone."""
    wanted = {table.name: table.value for table in tables}
    fields: Any = TypedDict("fields", wanted, total=False)  # type: ignore[misc]
    decode = msgspec.json.Decoder(fields).decode
    return lambda text: Changes(decode(text))


class HostCapacity(msgspec.Struct):
    """What an event says of a host's amounts."""

    generation: int


AnyRow = dict[str, object]

VMS: ChangedTable[VMRow | None] = ChangedTable("vms", dict[str, VMRow | None])
VM_SPECS: ChangedTable[SpecRow | None] = ChangedTable("vm_specs", dict[str, SpecRow | None])
CLAIMS: ChangedTable[ClaimRow | None] = ChangedTable("claims", dict[str, ClaimRow | None])
RESERVATIONS: ChangedTable[ReservationRow | None] = ChangedTable(
    "reservations", dict[str, ReservationRow | None]
)
HOLDS: ChangedTable[HoldRow | None] = ChangedTable("holds", dict[str, HoldRow | None])
#: What hosts keep free after the event.
HELD: ChangedTable[Kept] = ChangedTable("held", dict[str, Kept])
HOSTS: ChangedTable[HostRow | None] = ChangedTable("hosts", dict[str, HostRow | None])
HOST_AMOUNTS: ChangedTable[HostCapacity | None] = ChangedTable(
    "host_amounts", dict[str, HostCapacity | None]
)
GROUPS: ChangedTable[GroupRow | None] = ChangedTable("groups", dict[str, GroupRow | None])
GROUP_GENERATIONS: ChangedTable[int] = ChangedTable("group_generations", dict[str, int])
MEMBERS: ChangedTable[AnyRow | None] = ChangedTable("members", dict[str, AnyRow | None])
TOMBSTONES: ChangedTable[AnyRow | None] = ChangedTable("tombstones", dict[str, AnyRow | None])
TOKENS: ChangedTable[AnyRow | None] = ChangedTable("tokens", dict[str, AnyRow | None])
FENCES: ChangedTable[AnyRow | None] = ChangedTable("fences", dict[str, AnyRow | None])
CONSTRAINTS: ChangedTable[ConstraintRow | None] = ChangedTable(
    "constraints", dict[str, ConstraintRow | None]
)
PRIORITY_CLASSES: ChangedTable[PriorityClassRow | None] = ChangedTable(
    "priority_classes", dict[str, PriorityClassRow | None]
)
FLAVORS: ChangedTable[FlavorRow | None] = ChangedTable("flavors", dict[str, FlavorRow | None])
PREEMPTIONS: ChangedTable[PreemptionRow | None] = ChangedTable(
    "preemptions", dict[str, PreemptionRow | None]
)
DISPLACED: ChangedTable[DisplacedRow | None] = ChangedTable(
    "displaced", dict[str, DisplacedRow | None]
)
PLANS: ChangedTable[PlanRow | None] = ChangedTable("plans", dict[str, PlanRow | None])
PLAN_MOVES: ChangedTable[PlanMoveRow | None] = ChangedTable(
    "plan_moves", dict[str, PlanMoveRow | None]
)
TRAFFIC: ChangedTable[TrafficRow | None] = ChangedTable("traffic", dict[str, TrafficRow | None])
TOPOLOGIES: ChangedTable[TopologyRow | None] = ChangedTable(
    "topologies", dict[str, TopologyRow | None]
)
POLICIES: ChangedTable[PolicyRow | None] = ChangedTable("policies", dict[str, PolicyRow | None])
PROJECTS: ChangedTable[ProjectRow | None] = ChangedTable("projects", dict[str, ProjectRow | None])
RELAXATIONS: ChangedTable[RelaxationRow | None] = ChangedTable(
    "relaxations", dict[str, RelaxationRow | None]
)
#: The generation of all constraints and policies.
CONSTRAINTS_GENERATION: ChangedTable[int] = ChangedTable("constraints_generation", int)
#: The generation of the rules about labels.
RULES: ChangedTable[int] = ChangedTable("rules", int)
