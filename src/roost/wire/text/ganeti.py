"""Import of Ganeti's htools text format (`hscan`, `hbal -t`), for fleets that live there today.

Blocks between blank lines: groups, nodes, instances, cluster tags, policies. What becomes what:

    node group            zone (the group's name); hosts of an unallocable group are cordoned
    node                  host; role Y or O: offline, D: draining; `?` is an unknown total
    node_mem              reserve of memory
    free_mem, free_disk   when less is free than total minus instances, the rest is reserved too,
                          so disks of DRBD secondaries stay taken
    tag of a node         label of that name with the value "true"
    vcpu ratio            overcommit of cpu, from the group's policy, else the cluster's, else 4
    instance              VM on its primary node; only plain and drbd disks are on that host
    htools:iextags:PREFIX instances with an equal tag "PREFIX:..." form an anti-affinity group

Sizes are MiB. Files written by hand forget the blank line before the policies: from the fourth
block on, a line with "|" is a policy (the last for a name counts) and any other line is a tag.
Later fields (spindles, speeds) have no counterpart and are skipped.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from roost.base.units import MIB, parse_count, parse_cpu
from roost.model.description import FleetDescription, PlacedVM
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Health, HostSpec, Resource
from roost.model.resources import Demand
from roost.wire.text.fleetfile import read_text
from roost.wire.text.words import Piece, Place, choose, suggest

_ROLES = {
    "N": (Health.ONLINE, Admin.OPEN),
    "M": (Health.ONLINE, Admin.OPEN),
    "C": (Health.ONLINE, Admin.OPEN),
    "R": (Health.ONLINE, Admin.OPEN),
    "D": (Health.ONLINE, Admin.DRAINING),
    "Y": (Health.OFFLINE, Admin.OPEN),
    "O": (Health.OFFLINE, Admin.OPEN),
}
_ALLOCATION = {
    "preferred": Admin.OPEN,
    "last_resort": Admin.OPEN,
    "unallocable": Admin.CORDONED,
}
_LOCAL_DISKS = ("plain", "drbd")
_EXCLUSION = "htools:iextags:"
_DEFAULT_VCPU_RATIO_MILLI = 4000  # Ganeti's own, when the file has no policy


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    admin: Admin


@dataclass(slots=True)
class _Instance:
    vm: PlacedVM
    secondary: str
    tags: tuple[str, ...]


class _Local:
    """What instances take on each node: memory and disk of primaries, disk of secondaries."""

    def __init__(self, instances: Iterable[_Instance]) -> None:
        self.memory: Counter[str] = Counter()
        self.disk: Counter[str] = Counter()
        self.secondary_disk: Counter[str] = Counter()
        for instance in instances:
            demand = instance.vm.demand
            self.memory[instance.vm.host] += demand.memory_bytes
            self.disk[instance.vm.host] += demand.disk_bytes
            self.secondary_disk[instance.secondary] += demand.disk_bytes


def parse(text: str, file: str = "<text>") -> FleetDescription:
    """Return the fleet that a Ganeti text file describes."""
    blocks = _blocks(text, file)
    groups = dict(_group(fields) for fields in blocks[0])
    tags, ratios = _tags_and_ratios(line for block in blocks[3:] for line in block)
    nodes = {_name(fields, "node", 9): fields for fields in blocks[1]}
    if len(nodes) < len(blocks[1]):
        raise _repeated(fields[0] for fields in blocks[1]).error("a node is listed twice")
    instances = [_instance(fields, nodes) for fields in blocks[2]]
    if len({instance.vm.name for instance in instances}) < len(instances):
        raise _repeated(fields[0] for fields in blocks[2]).error("an instance is listed twice")
    exclusive = tuple(
        f"{tag.removeprefix(_EXCLUSION)}:" for tag in tags if tag.startswith(_EXCLUSION)
    )
    local = _Local(instances)
    hosts = [_host(fields, groups, ratios, local) for fields in nodes.values()]
    members = [_exclusion_groups(instance, exclusive) for instance in instances]
    return FleetDescription(
        hosts=tuple(sorted(hosts, key=lambda host: host.name)),
        groups=tuple(
            GroupSpec(name, GroupRule.ANTI_AFFINITY)
            for name in sorted({name for names in members for name in names})
        ),
        vms=tuple(
            PlacedVM(instance.vm.name, instance.vm.host, instance.vm.demand, groups=names)
            for instance, names in zip(instances, members, strict=True)
        ),
    )


def load(path: Path | str) -> FleetDescription:
    """Read a Ganeti text file."""
    return parse(read_text(path), str(path))


def _blocks(text: str, file: str) -> list[list[list[Piece]]]:
    """Return lines cut at "|", by block; at least three blocks, however short the file."""
    blocks: list[list[list[Piece]]] = [[]]
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.removesuffix("\r")
        if content.strip():
            span = range(1, len(content) + 2)
            blocks[-1].append(Piece(content, content, span, Place(file, number)).split("|"))
        else:
            blocks.append([])
    return blocks + [[] for _ in range(3 - len(blocks))]


def _name(fields: list[Piece], what: str, least: int) -> str:
    if len(fields) < least:
        raise fields[-1].error(f"a {what} has at least {least} fields; here are {len(fields)}")
    if not fields[0].text:
        raise fields[0].error(f"a {what} needs a name")
    return fields[0].text


def _repeated(names: Iterable[Piece]) -> Piece:
    """Return the first name that was seen before."""
    seen: set[str] = set()
    for name in names:
        if name.text in seen:
            return name
        seen.add(name.text)
    raise AssertionError("no name is repeated")


def _group(fields: list[Piece]) -> tuple[str, _Group]:
    name = _name(fields, "group", 3)
    admin = choose(fields[2], "allocation policy", _ALLOCATION)
    return fields[1].text, _Group(name, admin)


def _tags_and_ratios(lines: Iterable[list[Piece]]) -> tuple[list[str], dict[str, int]]:
    """Return the cluster's tags and the vcpu ratio by group, "" for the whole cluster."""
    tags: list[str] = []
    ratios: dict[str, int] = {}
    for fields in lines:
        if len(fields) == 1:
            tags.append(fields[0].text)
        elif len(fields) >= 5:
            ratios[fields[0].text] = fields[4].convert(parse_cpu, "vcpu ratio")
        else:
            raise fields[-1].error(f"a policy has at least 5 fields; here are {len(fields)}")
    return tags, ratios


def _mib(field: Piece, what: str) -> int:
    return field.convert(parse_count, what) * MIB


def _total(field: Piece, what: str) -> int | None:
    return None if field.text == "?" else _mib(field, what)


def _instance(fields: list[Piece], nodes: dict[str, list[Piece]]) -> _Instance:
    name = _name(fields, "instance", 8)
    for node in fields[6:8]:
        if node.text not in nodes and (node.text or node is fields[6]):
            raise node.error(f"unknown node {node.text!r}", suggest(node.text, nodes))
    local = len(fields) < 9 or fields[8].text in _LOCAL_DISKS
    demand = Demand(
        cpu_milli=_positive(fields[3], "vcpus") * 1000,
        memory_bytes=_positive(fields[1], "memory") * MIB,
        disk_bytes=_mib(fields[2], "disk") if local else 0,
    )
    tags = tuple(filter(None, fields[9].text.split(","))) if len(fields) > 9 else ()
    return _Instance(PlacedVM(name, fields[6].text, demand), fields[7].text, tags)


def _positive(field: Piece, what: str) -> int:
    amount = field.convert(parse_count, what)
    if amount == 0:
        raise field.error(f"{what} is zero; a VM needs some")
    return amount


def _host(
    fields: list[Piece],
    groups: dict[str, _Group],
    ratios: dict[str, int],
    local: _Local,
) -> HostSpec:
    name, total_mem, node_mem, free_mem, total_disk, free_disk, cpus, role, uuid = fields[:9]
    if uuid.text not in groups:
        raise uuid.error(f"unknown group {uuid.text!r}", suggest(uuid.text, groups))
    group = groups[uuid.text]
    health, admin = choose(role, "role", _ROLES)
    tags = fields[10].text.split(",") if len(fields) > 10 else []
    default_ratio = ratios.get("", _DEFAULT_VCPU_RATIO_MILLI)
    return HostSpec(
        name=name.text,
        cpu=Resource(
            None if cpus.text == "?" else cpus.convert(parse_count, "cpus") * 1000,
            ratio_milli=ratios.get(group.name, default_ratio),
        ),
        memory=_resource(
            total_mem, free_mem, local.memory[name.text], _total(node_mem, "node_mem") or 0
        ),
        disk=_resource(
            total_disk, free_disk, local.disk[name.text], local.secondary_disk[name.text]
        ),
        zone=group.name,
        labels=tuple((tag, "true") for tag in dict.fromkeys(filter(None, tags))),
        health=health,
        admin=admin if admin is not Admin.OPEN else group.admin,
    )


def _resource(total: Piece, free: Piece, committed: int, kept: int) -> Resource:
    """Return a resource whose reserve covers what is kept and what is missing unexplained."""
    amount, left = _total(total, "total"), _total(free, "free")
    if amount is None or left is None:
        return Resource(None, kept)
    return Resource(amount, max(kept, amount - left - committed))


def _exclusion_groups(instance: _Instance, prefixes: tuple[str, ...]) -> tuple[str, ...]:
    # dict.fromkeys: a tag that is written twice is one membership.
    return tuple(dict.fromkeys(tag for tag in instance.tags if tag.startswith(prefixes)))
