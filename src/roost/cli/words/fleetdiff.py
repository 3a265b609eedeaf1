"""What `roost apply` would do: wanted things compared with those that are there.

Compared is what can be changed. Of a VM that differs in something that cannot, the plan says so and
leaves it alone. Nothing here asks a server.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import UnsetType

from roost.base.errors import InvalidRequest
from roost.base.timestamps import read_timestamp
from roost.base.units import exact_cpu, format_bytes, format_cpu, parse_bytes, parse_cpu
from roost.cli.words.applyfile import WantedFleet, WantedHost
from roost.cli.words.binding import BINDING, binding, in_words, same
from roost.cli.words.selecting import Selector
from roost.model.resources import Demand
from roost.wire.bodies import (
    OWN_PROJECT,
    BootBody,
    ConstraintsBody,
    CreateVM,
    GroupBody,
    HostBody,
    NicBody,
    ProjectBody,
    QuotaBody,
    ResizeVM,
    SetHost,
    SetVM,
    VMBody,
)
from roost.wire.flavors import ChangeFlavor, CreateFlavor, FlavorBody
from roost.wire.groups import CreateGroup, GroupSummary, SetGroupRule
from roost.wire.hostsettings import CONDITION
from roost.wire.spectext import plain_constraints
from roost.wire.translate import constraints_of, demand_of

_RULE = ("rule", "scope", "hard", "max_skew", "weight")
#: Constraints that can be set, or that name other VMs, whose names change.
_SET_OR_NEAR = ("hosts", "not_hosts", "near", *BINDING)


class Step(NamedTuple):
    """One thing to do: what it is about, what is done, what of it, and the call's argument."""

    kind: str
    name: str
    project: str
    action: str  # create, change, delete, stays
    what: str = ""
    body: Any = None


@dataclass(slots=True)
class FleetNow:
    """What is there."""

    projects: dict[str, ProjectBody]
    flavors: dict[str, FlavorBody]
    hosts: dict[str, HostBody]
    groups: dict[tuple[str, str], GroupSummary]
    vms: dict[tuple[str, str], VMBody]
    own: str = "default"  # the project of what names none


@dataclass(slots=True)
class Plan:
    """The steps in the order in which they are done, and how many things are as wanted."""

    steps: list[Step] = field(default_factory=list)
    unchanged: int = 0

    @property
    def deleted(self) -> int:
        """Return how many VMs would be deleted."""
        return sum(step.action == "delete" for step in self.steps)

    def add(self, step: Step | None) -> None:
        """Take a step, or count a thing that is as it is wanted."""
        if step is None:
            self.unchanged += 1
        else:
            self.steps.append(step)


def plan_of(wanted: WantedFleet, now: FleetNow, prune: Selector | None = None) -> Plan:
    """Return what has to be done."""
    plan = Plan()
    for project in wanted.projects:
        plan.add(_project(project.name, project.quota, now.projects.get(project.name)))
    for flavor in wanted.flavors:
        plan.add(_flavor(flavor, now.flavors.get(flavor.name)))
    for host in wanted.hosts:
        plan.add(_host(host, now.hosts.get(host.name)))
    for group in wanted.groups:
        owner = group.project or now.own
        plan.add(_group(group, owner, now.groups.get((owner, group.name))))
    sizes = {name: demand_of(each.demand) for name, each in now.flavors.items()}
    sizes |= {each.name: demand_of(each.demand) for each in wanted.flavors}
    named: set[tuple[str, str]] = set()
    for vm in wanted.vms:
        key = (now.own if vm.project == OWN_PROJECT else vm.project, vm.name)
        named.add(key)
        _vm(plan, vm, key[0], now.vms.get(key), sizes)
    if prune is not None:
        # Files are about the projects that they name, whoever else uses the same labels.
        about = {project for project, _ in named} | {each.name for each in wanted.projects}
        about |= {each.project or now.own for each in wanted.groups}
        about = about or {now.own}
        for key, there in now.vms.items():
            if key in named or there.state == "deleting" or there.project not in about:
                continue
            if prune.matches(there.labels):
                what = f"no file names it, and it has {prune.text}"
                plan.add(Step("vm", there.name, there.project, "delete", what, there.id))
    return plan


def _project(name: str, quota: QuotaBody, now: ProjectBody | None) -> Step | None:
    if now is None:
        return Step("project", name, "", "create", "", quota)
    wanted = {
        "cpu": None if quota.cpu is None else _cores(quota.cpu),
        "memory": None if quota.memory is None else _bytes(quota.memory, "memory"),
        "disk": None if quota.disk is None else _bytes(quota.disk, "disk"),
        "vms": quota.vms,
    }
    has = {
        "cpu": now.cpu_milli.quota,
        "memory": now.memory_bytes.quota,
        "disk": now.disk_bytes.quota,
        "vms": now.vms.quota,
    }
    what = _differences(wanted, has)
    return Step("project", name, "", "change", f"quota: {what}", quota) if what else None


def _flavor(wanted: CreateFlavor, now: FlavorBody | None) -> Step | None:
    if now is None:
        return Step("flavor", wanted.name, "", "create", "", wanted)
    size, had = demand_of(wanted.demand), demand_of(now.demand)
    what = _sizes(size, had)
    if size != had and not what:
        what = "devices, NUMA or extended resources"
    if wanted.description != now.description:
        what = f"{what}, description" if what else "description"
    change = ChangeFlavor(demand=wanted.demand, description=wanted.description)
    return Step("flavor", wanted.name, "", "change", what, change) if what else None


def _host(wanted: WantedHost, now: HostBody | None) -> Step | None:
    if now is None:
        return Step("host", wanted.name, "", "stays", "there is no such host")
    given: dict[str, Any] = {}
    parts: list[str] = []
    for name in ("labels", "taints", "overcommit", "reserve"):
        value = getattr(wanted, name)
        if isinstance(value, UnsetType):
            continue
        if value is None:
            if _is_set(name, now):
                given[name] = None
                parts.append(f"{name}: as its agent says")
            continue
        new, old = _host_value(name, value), _host_value(name, _now_value(name, now))
        if new != old or (value and not _is_set(name, now)):
            given[name] = value
            parts.append(f"{name}: {_shown(old)} -> {_shown(new)}")
    if not given:
        return None
    return Step("host", wanted.name, "", "change", "; ".join(parts), SetHost(**given))


def _is_set(name: str, now: HostBody) -> bool:
    return any(each.partition(".")[0] == name for each in now.overridden)


def _now_value(name: str, now: HostBody) -> Any:
    if name == "taints":  # but for what the agent sees of its host, which nobody sets
        return [each for each in now.taints if not each["key"].startswith(CONDITION)]
    if name == "labels":
        return now.labels
    found: dict[str, Any] = getattr(now, name)
    kept = {key: each for key, each in found.items() if f"{name}.{key}" in now.overridden}
    if name == "reserve" and "cpu" in kept:  # told in millicores
        kept["cpu"] = f"{kept['cpu']}m"
    return kept


def _host_value(name: str, value: Any) -> Any:
    """Return a setting in the form in which two of them are compared."""
    if name == "taints":
        plain = [each if isinstance(each, dict) else msgspec.structs.asdict(each) for each in value]
        return sorted(f"{t['key']}={t['value']}:{t['effect']}" for t in plain)
    if name == "reserve":
        return {
            key: _cores(amount) if key == "cpu" else _bytes(amount, key)
            for key, amount in value.items()
        }
    if name == "overcommit":
        return {key: float(ratio) for key, ratio in value.items()}
    return dict(value)


def _group(wanted: CreateGroup, project: str, now: GroupSummary | None) -> Step | None:
    if now is None:
        body = msgspec.structs.replace(wanted, project=project)
        return Step("group", wanted.name, project, "create", "", body)
    differs = [name for name in _RULE if getattr(wanted, name) != getattr(now, name)]
    if not differs:
        return None
    what = ", ".join(f"{each}: {getattr(now, each)} -> {getattr(wanted, each)}" for each in differs)
    rule = SetGroupRule(**{name: getattr(wanted, name) for name in _RULE})
    return Step("group", wanted.name, project, "change", what, rule)


def _vm(
    plan: Plan, wanted: CreateVM, project: str, now: VMBody | None, sizes: dict[str, Demand]
) -> None:
    """Plan what a VM needs: to be created, or up to three changes."""
    if wanted.flavor is not None:
        if wanted.flavor not in sizes:
            raise InvalidRequest(f"VM {wanted.name!r}: there is no flavor {wanted.flavor!r}")
        size = sizes[wanted.flavor]
    else:
        assert wanted.demand is not None
        try:
            size = demand_of(wanted.demand)
        except InvalidRequest as error:
            raise InvalidRequest(f"VM {wanted.name!r}: {error.message}") from error
    if now is None:
        body = msgspec.structs.replace(wanted, project=project)
        plan.add(Step("vm", wanted.name, project, "create", "", body))
        return
    if now.state == "deleting":
        plan.add(Step("vm", wanted.name, project, "stays", "it is being deleted; apply again"))
        return
    before = len(plan.steps)
    had = Demand(now.demand.cpu_milli, now.demand.memory_bytes, now.demand.disk_bytes)

    def add(what: str, body: Any) -> None:
        plan.add(Step("vm", now.name, project, "change", what, body))

    if what := _sizes(size, had):
        resize = ResizeVM(
            cpu=exact_cpu(size.cpu_milli), memory=size.memory_bytes, disk=size.disk_bytes
        )
        add(what, resize)
    given, parts = _settings(wanted, now)
    if given:
        add("; ".join(parts), SetVM(**given))
    groups = [each.name if isinstance(each, GroupBody) else each for each in wanted.groups]
    joins, leaves = set(groups) - set(now.groups), set(now.groups) - set(groups)
    for name in sorted(joins):
        add(f"joins group {name}", ("add", name))
    for name in sorted(leaves):
        add(f"leaves group {name}", ("remove", name))
    if why := _fixed(wanted, size, now):
        plan.add(Step("vm", now.name, project, "stays", why))
    if len(plan.steps) == before:
        plan.unchanged += 1


def _settings(wanted: CreateVM, now: VMBody) -> tuple[dict[str, Any], list[str]]:
    given: dict[str, Any] = {}
    asked = wanted.constraints
    hosts = [] if asked is None else asked.hosts
    not_hosts = [] if asked is None else asked.not_hosts
    compared: list[tuple[str, Any, Any]] = [
        ("labels", wanted.labels, now.labels),
        ("hosts", hosts, now.constraints.get("hosts", [])),
        ("not_hosts", not_hosts, now.constraints.get("not_hosts", [])),
    ]
    if wanted.priority_class is None and (wanted.priority or not now.priority_class):
        compared.append(("priority", wanted.priority, now.priority))
    if wanted.restart is not None:
        compared.append(("restart", wanted.restart, now.restart))
    parts = []
    for name, new, old in compared:
        if new != old:
            given[name] = new
            parts.append(f"{name}: {_shown(old)} -> {_shown(new)}")
    said = asked or ConstraintsBody()
    bound, had = binding(msgspec.to_builtins(said)), binding(now.constraints)
    if not same(bound, had):
        given |= {field: getattr(said, name) for name, field in BINDING.items()}
        parts.append(f"constraints: {in_words(had) or 'none'} -> {in_words(bound) or 'none'}")
    return given, parts


def _fixed(wanted: CreateVM, size: Demand, now: VMBody) -> str:
    """Return what differs and can only be had by a new VM."""
    found = []
    gpus = 0 if size.devices is None else size.devices.count
    if gpus != now.demand.gpu:
        found.append(f"gpu {now.demand.gpu}, wanted {gpus}")
    if dict(size.extended) != now.demand.extended:
        found.append("extended resources")
    for name in ("strategy", "policy", "priority_class", "reservation"):
        new, old = getattr(wanted, name), getattr(now, name)
        if new is not None and new != old:
            found.append(f"{name} {old or 'none'}, wanted {new}")
    if wanted.until is not None and _moment(wanted.until) != _moment(now.until):
        found.append(f"until {now.until or 'none'}, wanted {wanted.until}")
    found.extend(_constraints(wanted.constraints, now.constraints))
    if wanted.boot is not None:
        found.extend(_boot(wanted.boot, now.boot or BootBody()))
    if wanted.nics and not _same_nics(wanted.nics, now.nics):
        found.append("nics")
    return f"cannot be changed: {'; '.join(found)}" if found else ""


def _constraints(wanted: ConstraintsBody | None, now: dict[str, Any]) -> list[str]:
    """Return which constraints differ; one that neither names is the same on both sides."""
    asked = plain_constraints(constraints_of(wanted))
    told = (name for name in ConstraintsBody.__struct_fields__ if name not in _SET_OR_NEAR)
    return [
        f"constraints.{name}"
        for name in told
        if _unordered(asked.get(name)) != _unordered(now.get(name))
    ]


def _unordered(value: Any) -> Any:
    """Return a constraint in the form in which two of them are compared: their order is nothing."""
    return sorted(map(_canonical, value)) if isinstance(value, list) else value


def _canonical(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _boot(wanted: BootBody, now: BootBody) -> Iterator[str]:
    """Give what a VM boots otherwise; where the bytes are fetched from does not matter."""
    for name in ("image", "kernel", "initrd"):
        new, old = getattr(wanted, name), getattr(now, name)
        if (new and new.digest) != (old and old.digest):
            yield name
    if wanted.cmdline != now.cmdline:
        yield f"cmdline {now.cmdline or 'none'!r}, wanted {wanted.cmdline or 'none'!r}"


def _same_nics(wanted: list[NicBody], now: list[NicBody]) -> bool:
    """Say whether network cards are as wanted; an address that is not said may be any."""
    return len(wanted) == len(now) and all(
        new == (old if new.mac else msgspec.structs.replace(old, mac=""))
        for new, old in zip(wanted, now, strict=True)
    )


def _moment(text: str | None) -> int | None:
    return None if text is None else read_timestamp(text, "until")


# Amounts


def _sizes(new: Demand, old: Demand) -> str:
    parts = []
    for name, read in (("cpu", format_cpu), ("memory", format_bytes), ("disk", format_bytes)):
        of = "cpu_milli" if name == "cpu" else f"{name}_bytes"
        if getattr(new, of) != getattr(old, of):
            parts.append(f"{name}: {read(getattr(old, of))} -> {read(getattr(new, of))}")
    return ", ".join(parts)


def _differences(new: dict[str, int | None], old: dict[str, int | None]) -> str:
    shown: dict[str, Callable[[int], str]] = {"cpu": format_cpu, "vms": str}
    parts = []
    for name, value in new.items():
        if value != old[name]:
            read = shown.get(name, format_bytes)
            said = ("none" if each is None else read(each) for each in (old[name], value))
            parts.append(f"{name} {' -> '.join(said)}")
    return ", ".join(parts)


def _cores(value: float | str) -> int:
    return parse_cpu(str(value))


def _bytes(value: int | str, what: str) -> int:
    return value if isinstance(value, int) else parse_bytes(value, what)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={each}" for key, each in sorted(value.items())) or "none"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value)) or "none"
    return str(value)


def too_many(plan: Plan, vms: int) -> bool:
    """Say whether a plan would delete more than a tenth of the VMs that there are."""
    return plan.deleted * 10 > vms
