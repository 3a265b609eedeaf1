"""Fields that rules can read: their types, their units, and what changes them.

The checker refuses every other field; the engine compiles a rule by `changes`: what reads only a
host's attributes is computed once and kept, what reads the VM is folded to a constant, the rest is
computed for each decision. Extended resources are a fleet's own: `Fields.of` is told their names.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from roost.model.hosts import PRESSURES
from roost.model.resources import BASE_RESOURCES
from roost.rules.types import BOOL, DOUBLE, INT, STRING, Type, list_of, map_of, record


class Changes(Enum):
    """When a field may have another value than before."""

    HOST = "host"  # a host registers anew, or an operator changes its labels or taints
    AMOUNTS = "amounts"  # a claim is made or ends on the host
    MEASURED = "measured"  # the host's agent reports
    VM = "vm"  # another VM is asked for
    PROJECT = "project"  # a VM of the project comes, goes or is resized, or its quota changes
    GROUP = "group"  # a member of the group comes or goes
    FLEET = "fleet"  # anything is claimed anywhere
    TIME = "time"  # the time that is passed in moves on


@dataclass(frozen=True, slots=True)
class Field:
    """One field: dotted path, type, what changes it, unit of its numbers, meaning."""

    path: str
    type: Type
    changes: Changes
    means: str
    unit: str = ""

    @property
    def root(self) -> str:
        """Return the variable it belongs to: host, vm, project, group or fleet."""
        return self.path.partition(".")[0]


TEXTS = map_of(STRING, STRING)
#: Units of the resources every host has; extended resources are counted.
RESOURCE_UNITS = {"cpu": "millicores", "memory": "bytes", "disk": "bytes"}

#: Records of amounts: one field per resource, also read as a map with any resource's name.
_AMOUNTS = (
    ("host.total", Changes.HOST, "what the host has of {}, whatever is promised or kept back"),
    ("host.capacity", Changes.HOST, "what may be promised to VMs of {}"),
    ("host.committed", Changes.AMOUNTS, "what is promised to VMs of {}"),
    (
        "host.free",
        Changes.AMOUNTS,
        "what is left of {}: capacity less committed and less what is kept for others",
    ),
    ("host.used", Changes.MEASURED, "what is in use of {}, as measured last"),
    ("vm.demand", Changes.VM, "what the VM asks for of {}"),
    ("fleet.capacity", Changes.FLEET, "what all hosts together may promise of {}"),
    ("fleet.committed", Changes.FLEET, "what is promised on all hosts together of {}"),
    (
        "fleet.free",
        Changes.FLEET,
        "what is left on all hosts together of {}, less what is kept for others",
    ),
)

#: The same of resources that every host has; a project's other ones are not counted.
_BASE_AMOUNTS = (
    ("project.committed", Changes.PROJECT, "what the project's other VMs ask for of {}"),
    ("project.quota", Changes.PROJECT, "what all its VMs may ask for of {}; missing: no limit"),
)

_PLAIN = (
    Field("host.name", STRING, Changes.HOST, "the host's name"),
    Field("host.zone", STRING, Changes.HOST, "its zone, or an empty text"),
    Field("host.rack", STRING, Changes.HOST, "its rack, or an empty text"),
    Field("host.site", STRING, Changes.HOST, "its site, or an empty text"),
    Field("host.labels", TEXTS, Changes.HOST, "its labels"),
    Field("host.taints", list_of(record("host.taints[]")), Changes.HOST, "its taints"),
    Field("host.taints[].key", STRING, Changes.HOST, "a taint's key"),
    Field("host.taints[].value", STRING, Changes.HOST, "a taint's value, or an empty text"),
    Field("host.taints[].effect", STRING, Changes.HOST, "no-place or prefer-not"),
    Field("host.capabilities", list_of(STRING), Changes.HOST, "what it says it can do"),
    Field("host.architecture", STRING, Changes.HOST, "its processors' architecture"),
    Field("host.driver", STRING, Changes.HOST, "how its agent runs VMs"),
    Field("host.devices", list_of(record("host.devices[]")), Changes.HOST, "its devices"),
    Field("host.devices[].model", STRING, Changes.HOST, "a device's model"),
    Field("host.devices[].memory", INT, Changes.HOST, "a device's memory", "bytes"),
    Field("host.devices[].shareable", BOOL, Changes.HOST, "whether VMs may share a device"),
    Field("host.vms", INT, Changes.AMOUNTS, "VMs that have a claim on the host"),
    Field("vm.name", STRING, Changes.VM, "the VM's name"),
    Field("vm.project", STRING, Changes.VM, "its project's name"),
    Field("vm.labels", TEXTS, Changes.VM, "its labels"),
    Field("vm.priority", INT, Changes.VM, "its priority"),
    Field("vm.groups", list_of(STRING), Changes.VM, "names of its groups"),
    Field("vm.strategy", STRING, Changes.VM, "the strategy it is placed by"),
    Field("vm.restart", STRING, Changes.VM, "where it may be started again: here, elsewhere"),
    Field("vm.devices", INT, Changes.VM, "devices it asks for"),
    Field("project.name", STRING, Changes.VM, "the VM's project"),
    Field("project.vms", INT, Changes.PROJECT, "the project's other VMs, waiting ones too"),
    Field("project.most_vms", INT, Changes.PROJECT, "VMs it may have; missing: no limit"),
    Field("group.name", STRING, Changes.VM, "the VM's first group; missing without one"),
    Field("group.hosts", list_of(STRING), Changes.GROUP, "hosts that have a member"),
    Field("group.racks", list_of(STRING), Changes.GROUP, "racks that have a member"),
    Field("group.zones", list_of(STRING), Changes.GROUP, "zones that have a member"),
    Field("group.size", INT, Changes.GROUP, "members that have a host"),
    Field("fleet.hosts", INT, Changes.FLEET, "hosts that are online and open"),
    Field("fleet.vms", INT, Changes.FLEET, "VMs that have a claim"),
    Field("fleet.load", DOUBLE, Changes.FLEET, "largest committed share of a resource, 0 to 1"),
    Field("fleet.hour", INT, Changes.TIME, "hour of the day, 0 to 23, in UTC"),
    Field("fleet.minute", INT, Changes.TIME, "minute of the hour, 0 to 59"),
    Field("fleet.weekday", INT, Changes.TIME, "day of the week, 1 is Monday, 7 is Sunday"),
)


def _amounts(
    records: Iterable[tuple[str, Changes, str]], resources: Collection[str]
) -> list[Field]:
    return [
        Field(
            f"{path}.{resource}",
            INT,
            changes,
            means.format(resource),
            RESOURCE_UNITS.get(resource, ""),
        )
        for path, changes, means in records
        for resource in resources
    ]


def _pressures() -> list[Field]:
    return [
        Field(
            f"host.pressure.{name}",
            DOUBLE,
            Changes.MEASURED,
            f"share of the last 10 seconds in which a task waited for {name}",
            "percent",
        )
        for name in PRESSURES
    ]


@dataclass(frozen=True, slots=False)
class Fields:
    """All fields of a fleet by their path, and what each record holds."""

    by_path: Mapping[str, Field]

    @staticmethod
    @lru_cache(maxsize=16)
    def of(extended: tuple[str, ...] = ()) -> "Fields":
        """Return the fields of a fleet whose hosts have these extended resources."""
        fields = [
            *_PLAIN,
            *_amounts(_AMOUNTS, (*BASE_RESOURCES, *extended)),
            *_amounts(_BASE_AMOUNTS, BASE_RESOURCES),
            *_pressures(),
        ]
        return Fields({field.path: field for field in fields})

    @cached_property
    def members(self) -> Mapping[str, Mapping[str, Type]]:
        """Return the type of every member of every record, by the record's path."""
        found: dict[str, dict[str, Type]] = {"": {}}
        for path, field in self.by_path.items():
            kind = field.type
            while path:
                owner, _, name = path.rpartition(".")
                found.setdefault(owner, {})[name] = kind
                if owner.endswith("[]"):
                    break
                path, kind = owner, record(owner)
        return found


#: Records that may also be read as maps, by the name of any resource.
AMOUNT_RECORDS: Mapping[str, Changes] = {path: changes for path, changes, _ in _AMOUNTS}

#: The fields of a fleet without extended resources.
FIELDS = Fields.of()
