"""Hosts, requests and fleets for tests; a case names only what it cares about."""

from roost.base.units import GIB, TIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import Constraints
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupSpec
from roost.model.hosts import HostSpec, Resource
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.placement.engine import Engine

Amount = int | Resource | None


def _resource(amount: Amount) -> Resource:
    return amount if isinstance(amount, Resource) else Resource(amount)


def host(
    name: str = "host",
    cpu_milli: Amount = 16_000,
    memory_bytes: Amount = 64 * GIB,
    disk_bytes: Amount = TIB,
    **rest: object,
) -> HostSpec:
    """Return a host of 16 cores, 64 GiB and 1 TiB, open and online, unless told otherwise."""
    return HostSpec(
        name, _resource(cpu_milli), _resource(memory_bytes), _resource(disk_bytes), **rest
    )


def request(
    name: str = "vm",
    cpu_milli: int = 1000,
    memory_bytes: int = GIB,
    disk_bytes: int = 0,
    *,
    extended: tuple[tuple[str, int], ...] = (),
    devices: DeviceDemand | None = None,
    numa: NumaMode = NumaMode.ANY,
    groups: tuple[GroupSpec | str, ...] = (),
    strategy: str | None = None,
    seed: int | None = None,
    **constraints: object,
) -> PlaceRequest:
    """Return a request for one core and 1 GiB, without any rule, unless told otherwise."""
    demand = Demand(cpu_milli, memory_bytes, disk_bytes, extended, devices, numa)
    return PlaceRequest(name, demand, Constraints(**constraints), groups, strategy, seed)


def fleet_of(*specs: HostSpec) -> Fleet:
    """Return a fleet of these hosts, numbered in the order given."""
    fleet = Fleet()
    for spec in specs:
        fleet.register(spec)
    return fleet


def engine_on(*specs: HostSpec, strategy: str = "first_fit") -> Engine:
    """Return an engine on a fleet of these hosts."""
    return Engine(fleet_of(*specs), strategy)


def put(
    fleet: Fleet,
    host_name: str,
    name: str = "tenant",
    cpu_milli: int = 1000,
    memory_bytes: int = GIB,
    disk_bytes: int = 0,
) -> int:
    """Put a VM on a host by hand and return its number."""
    demand = fleet.vector(Demand(cpu_milli, memory_bytes, disk_bytes))
    return fleet.apply(name, fleet.row(host_name), demand)


def place(engine: Engine, asked: PlaceRequest) -> str | None:
    """Place and commit one request and return the host's name."""
    found = engine.find(asked)
    if found is None:
        return None
    engine.commit(asked, found)
    return found.host
