"""Scenarios: a fleet, its users, its operators and its misfortunes, as a small YAML file.

A scenario says how much of everything happens; with a seed, `workloads` makes a history of it, in
which every moment is fixed. Files are read strictly: a field that nobody knows is an
error with its line, because a fault that is misspelt never happens.
"""

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from roost.base.units import GIB, parse_bytes
from roost.sim.histories.action_kinds import KINDS
from roost.sim.histories.history import History, Machines, host_name
from roost.wire.text.strictyaml import Seconds, Size, find_file, parse_strictly, read_text

Count = Annotated[int, Meta(ge=1, le=100_000)]
PerHour = Annotated[float, Meta(ge=0.0)]

#: What users do to VMs that exist, at random.
Change = Literal["resize", "stop", "pause", "restart", "migrate", "cancel"]
#: What operators do to hosts, quotas and VMs at random; the last three are mistakes.
Operation = Literal[
    "drain", "cordon", "maintain", "confirm_dead", "wrong_delete", "early_uncordon", "low_quota"
]
#: Actions that chance draws elsewhere and that are no faults.
_NO_FAULTS = frozenset(
    ("create", "burst", "delete", "delete_some", "stop", "start", "restart", "pause", "resize",
     "migrate", "cancel", "cordon", "uncordon", "drain", "confirm_dead")
)  # fmt: skip
FAULT_KINDS = tuple(sorted({kind.do for kind in KINDS} - _NO_FAULTS))


class Part(Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a scenario."""


class Hosts(Part):
    """Some equal hosts; they stand in turn in the zones, and there in turn in the racks."""

    count: Count
    cpu: Count = 16
    memory: Size = Size("64GiB")
    disk: Size = Size("1000GiB")
    zones: Annotated[tuple[str, ...], Meta(min_length=1)] = ("z0",)
    racks: Annotated[int, Meta(ge=0)] = 0  # in each zone, called ZONE-r0, ZONE-r1, ...
    guard: bool = True

    def __post_init__(self) -> None:
        for each in (self.memory, self.disk):
            if parse_bytes(each) % GIB:
                raise ValueError(f"{each} is not a whole number of GiB")


class Quota(Part):
    """What a project may use together."""

    cpu: int | None = None
    memory: Size | None = None
    disk: Size | None = None
    vms: int | None = None


class Demand(Part):
    """What a VM asks for, and how often that is drawn beside others."""

    cpu: int | float = 1
    memory: Size = Size("1GiB")
    disk: Size = Size("0GiB")
    weight: Annotated[float, Meta(gt=0.0)] = 1.0


class Lognormal(Part):
    """Lognormal lifetimes: most live short, some very long."""

    median: Seconds
    sigma: Annotated[float, Meta(gt=0.0)] = 1.0


class Lifetime(Part):
    """How long VMs live: one of these."""

    fixed: Seconds | None = None
    exponential: Seconds | None = None  # the mean
    lognormal: Lognormal | None = None

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.fixed, self.exponential, self.lognormal)) != 1:
            raise ValueError("a lifetime is one of fixed, exponential and lognormal")


class Group(Part):
    """The rule for the VMs of one batch."""

    rule: Literal["affinity", "anti-affinity", "spread"]
    scope: Literal["host", "rack", "zone"] = "host"
    hard: bool = True
    max_skew: Count = 1


class Arrivals(Part):
    """VMs that are created: so many per hour, or a total over the time."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,30}$")]  # of the VMs: NAME-0, NAME-1, ...
    per_hour: PerHour = 0.0
    total: Annotated[int, Meta(ge=0)] = 0
    from_: Seconds = field(default=Seconds(0.0), name="from")
    until: Seconds | None = None  # the end of the scenario
    batch: Count = 1  # created by one request, with one size
    project: str = "default"
    sizes: Annotated[tuple[Demand, ...], Meta(min_length=1)] = (Demand(),)
    lifetime: Lifetime | None = None  # None: they stay
    restart: Literal["here", "elsewhere", "mixed"] = "mixed"
    group: Group | None = None
    zones: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    not_hosts: tuple[str, ...] = ()
    queue: bool = False  # wait when nothing fits, instead of failing
    priority: int = 0

    def __post_init__(self) -> None:
        if (self.per_hour > 0) == (self.total > 0):
            raise ValueError("arrivals have either per_hour or total")


class Loss(Part):
    """A host, a rack or a zone loses power or network; `any` is one that chance picks."""

    at: Seconds
    for_: Seconds = field(name="for")
    host: str = ""
    rack: str = ""
    zone: str = ""
    how: Literal["power", "network"] = "power"

    def __post_init__(self) -> None:
        if sum(bool(each) for each in (self.host, self.rack, self.zone)) != 1:
            raise ValueError("a loss is of a host, of a rack or of a zone")


class Maintenance(Part):
    """Hosts are drained, switched off, switched on and opened again, one after the other."""

    from_: Seconds = field(default=Seconds(0.0), name="from")
    every: Seconds = Seconds(600.0)
    off: Seconds = Seconds(120.0)
    patience: Seconds = Seconds(1800.0)  # then the operator gives up and opens it again
    hosts: tuple[str, ...] = ()  # none: all of them


class Timed(Part):
    """One action at a fixed time."""

    at: Seconds
    do: str
    on: str = ""
    with_: dict[str, Any] = field(default_factory=dict, name="with")


class Scenario(Part):
    """A whole scenario."""

    about: str
    duration: Seconds
    hosts: Annotated[tuple[Hosts, ...], Meta(min_length=1)]
    planes: Annotated[int, Meta(ge=1, le=9)] = 2
    timers: Literal["production", "short"] = "production"
    calm: Seconds = Seconds(1800.0)
    lazy: bool = True
    short: bool = True  # takes seconds: belongs to `--scenario all`
    rates: dict[str, float] = {}
    continuous: Seconds = Seconds(0.0)  # between looks at what to move; 0: nobody looks
    projects: dict[str, Quota] = {}
    arrivals: tuple[Arrivals, ...] = ()
    changes: dict[Change, PerHour] = {}
    operators: dict[Operation, PerHour] = {}
    losses: tuple[Loss, ...] = ()
    maintenance: Maintenance | None = None
    faults: dict[str, PerHour] = {}
    actions: tuple[Timed, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.faults:
            if kind not in FAULT_KINDS:
                raise ValueError(f"unknown fault {kind!r}; faults are {', '.join(FAULT_KINDS)}")
        names = [each.name for each in self.arrivals]
        if len(set(names)) < len(names):
            raise ValueError(f"two arrivals have one name: {', '.join(sorted(names))}")
        self._check_names()

    def _check_names(self) -> None:
        fleet = self.fleet()
        plans = [fleet.host_plan(number) for number in range(fleet.hosts)]
        known = {
            "host": {host_name(number) for number in range(fleet.hosts)},
            "rack": {plan.rack for plan in plans} - {""},
            "zone": {plan.zone for plan in plans},
            "project": {"default", *self.projects},
        }
        asked: list[tuple[str, str]] = []
        for each in self.arrivals:
            asked += [("zone", zone) for zone in each.zones] + [("project", each.project)]
            asked += [("rack", rack) for rack in each.racks]
            asked += [("host", host) for host in (*each.hosts, *each.not_hosts)]
        for loss in self.losses:
            asked += [(kind, name) for kind in known if (name := getattr(loss, kind, ""))]
        if self.maintenance is not None:
            asked += [("host", host) for host in self.maintenance.hosts]
        for kind, name in asked:
            if name not in known[kind] and not (name == "any" and known[kind]):
                some = sorted(known[kind])[:8] or ["none"]
                raise ValueError(f"there is no {kind} {name!r}; there is {', '.join(some)}")

    def fleet(self) -> History:
        """Return a history with this fleet, in which nothing happens yet."""
        machines = [
            Machines(
                count=some.count,
                cpu=some.cpu,
                memory_gib=parse_bytes(some.memory) // GIB,
                disk_gib=parse_bytes(some.disk) // GIB,
                zones=some.zones,
                racks=some.racks,
                guard=some.guard,
            )
            for some in self.hosts
        ]
        return History(
            seed=0,
            hosts=sum(some.count for some in machines),
            planes=self.planes,
            calm_s=float(self.calm),
            lazy=self.lazy,
            rates=self.rates,
            continuous=float(self.continuous),
            timers=self.timers,
            length_s=float(self.duration),
            machines=machines,
        )


# Reading


def shipped() -> dict[str, Path]:
    """Return the scenarios that come with roost, by name."""
    folder = Path(str(files("roost.sim") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Path:
    """Return the file of a scenario that is named, or given as a path."""
    return find_file(name, shipped(), "scenario")


def read_scenario(path: Path) -> Scenario:
    """Read a scenario; a mistake is told with its line."""
    return parse_scenario(read_text(path), str(path))


def parse_scenario(text: str, file: str) -> Scenario:
    """Turn a text into a scenario."""
    return parse_strictly(text, file, Scenario)
