"""Scenarios: a fleet, its users, its operators and its misfortunes, as a small YAML file.

A scenario says how much of everything happens; with a seed, `roost.sim.workloads` makes a history
of it, in which every moment is fixed. Files are read strictly: a field that nobody knows is an
error with its line, because a fault that is misspelt never happens.
"""

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, field

from roost.base.errors import InvalidRequest, NotFound
from roost.base.units import GIB, parse_bytes
from roost.sim.draws import KINDS
from roost.sim.history import History, Machines, host_name

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
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


class Seconds(float):
    """A length of time; in files a number of seconds, or such as 90s, 20m, 4h, 7d."""


class Size(str):
    """An amount of memory or disk, such as 4GiB."""

    __slots__ = ()


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
    """Most live short, some very long."""

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
            timers=self.timers,
            length_s=float(self.duration),
            machines=machines,
        )


# Reading


_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """Reads `on`, `off`, `yes` and `no` as the words they are: `on` is a field of every action.

    A field that is there twice is a mistake.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                said = f"the field `{key.value}` is there twice"
                raise yaml.MarkedYAMLError(problem=said, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [found for found in resolvers if first in "tTfF" or found[0] != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str) -> Any:
    """Return what a YAML text holds."""
    return yaml.load(text, Loader=_Loader)


def shipped() -> dict[str, Path]:
    """Return the scenarios that come with roost, by name."""
    folder = Path(str(files("roost.sim") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Path:
    """Return the file of a scenario that is named, or given as a path."""
    found = shipped()
    if name in found:
        return found[name]
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json") and path.exists():
        return path
    raise NotFound(
        f"no scenario {name!r}; shipped are {', '.join(found)}",
        hint="Maybe a file with the ending .yaml.",
    )


def read_scenario(path: Path) -> Scenario:
    """Read a scenario; a mistake is told with its line."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
    return parse_scenario(text, str(path))


def parse_scenario(text: str, file: str) -> Scenario:
    """Turn a text into a scenario."""
    try:
        return msgspec.convert(read_yaml(text), Scenario, dec_hook=_read_value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{file}:{mark.line + 1}" if mark is not None else file
        raise InvalidRequest(f"{at}: {error.problem}") from error
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at ")
        line, words = _line_of(text, where.strip("`"), said)
        raise InvalidRequest(f"{file}:{line}: {said[0].lower()}{said[1:]}{words}") from error


def _read_value(kind: type, value: Any) -> Any:
    if kind is Seconds:
        return _seconds(value)
    if kind is Size:
        try:
            parse_bytes(value)
        except (InvalidRequest, TypeError, AttributeError) as error:
            raise ValueError(f"{value!r} is no amount of bytes; write it as 4GiB") from error
        return Size(value)
    raise AssertionError(f"a scenario has a field of type {kind}, which nobody reads")


def _seconds(value: Any) -> Seconds:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return Seconds(value)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd])\s*", str(value))
    if match is None:
        raise ValueError(f"{value!r} is no length of time; write it as 90s, 20m, 4h or 7d")
    return Seconds(float(match[1]) * _UNITS[match[2]])


def _line_of(text: str, path: str, said: str) -> tuple[int, str]:
    """Return the line that a path such as $.arrivals[0].batch means, and the path in words."""
    node = yaml.compose(text, Loader=_Loader)
    steps = re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", path)
    unknown = re.search(r"unknown field `([^`]+)`", said)
    if unknown is not None:
        steps.append((unknown[1], ""))
    line = 1
    for key, index in steps:
        if isinstance(node, yaml.SequenceNode) and index:
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode) and key:
            found = [pair for pair in node.value if pair[0].value == key]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
    shown = path.removeprefix("$").removeprefix(".")
    return line, f", at {shown}" if shown and "key" not in shown else ""
