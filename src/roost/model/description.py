"""A whole fleet as plain values: what fleet files hold and what a `Fleet` is built from."""

from dataclasses import dataclass

from roost.model.constraints import NO_CONSTRAINTS, Constraints
from roost.model.groups import GroupSpec
from roost.model.hosts import HostSpec
from roost.model.resources import Demand


@dataclass(frozen=True, slots=True)
class PlacedVM:
    """A VM that already has a host.

    Devices and cells are positions on that host; empty means that the fleet assigns them by its
    own rule when the demand asks for some.
    """

    name: str
    host: str
    demand: Demand
    constraints: Constraints = NO_CONSTRAINTS
    groups: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """Capacity kept free on a host by a reservation or a move."""

    name: str
    host: str
    demand: Demand


@dataclass(frozen=True, slots=True)
class UsedSpec:
    """What was measured on a host: (resource, amount) pairs."""

    host: str
    amounts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class FleetDescription:
    """Everything a fleet file can say."""

    hosts: tuple[HostSpec, ...] = ()
    groups: tuple[GroupSpec, ...] = ()
    vms: tuple[PlacedVM, ...] = ()
    holds: tuple[HoldSpec, ...] = ()
    used: tuple[UsedSpec, ...] = ()
