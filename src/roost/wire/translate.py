"""Bodies and messages to the nouns of the model: the border where text becomes amounts."""

from functools import lru_cache
from typing import Protocol

from roost.base.errors import InvalidRequest
from roost.base.units import parse_bytes, parse_cpu
from roost.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    LabelOperator,
    LabelTerm,
    NearRule,
    Preference,
    Toleration,
)
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import (
    Admin,
    Cell,
    Device,
    Health,
    HostSpec,
    Resource,
    Scope,
    Taint,
    TaintEffect,
)
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.wire.agentlink import AmountInfo, Inventory
from roost.wire.bodies import (
    AffinityBody,
    ConstraintsBody,
    DemandBody,
    DeviceBody,
    GroupBody,
    LabelTermBody,
    NearBody,
)

_RULES = {rule.label: rule for rule in GroupRule}
_SCOPES = {scope.label: scope for scope in Scope}
HEALTHS = {health.label: health for health in Health}
ADMINS = {admin.label: admin for admin in Admin}
_NO_CONSTRAINTS_BODY = ConstraintsBody()


def cores(value: int | float | str, what: str = "cpu") -> int:
    """Return an amount of cpu in millicores."""
    if isinstance(value, int):
        return value * 1000
    if isinstance(value, float):
        milli = round(value * 1000, 6)
        if milli != int(milli):
            raise InvalidRequest(f"{what} {value} is finer than a thousandth of a core")
        return int(milli)
    return parse_cpu(value, what)


def size(value: int | str, what: str) -> int:
    """Return an amount of memory or disk in bytes."""
    return value if isinstance(value, int) else parse_bytes(value, what)


@lru_cache(maxsize=8192)  # fleets are made of a few sizes, and a demand never changes
def _plain_demand(cpu: int | float | str, memory: int | str, disk: int | str) -> Demand:
    return Demand(cores(cpu), size(memory, "memory"), size(disk, "disk"))


class _Sized(Protocol):
    """A body whose amounts may be those of a flavor."""

    name: str
    demand: DemandBody | None


def demand_said(body: _Sized) -> DemandBody:
    """Return the demand of a body; one that named a flavor has been given its demand by now."""
    if body.demand is None:
        raise InvalidRequest(f"{body.name!r} says neither its demand nor a flavor", name=body.name)
    return body.demand


def demand_of(body: DemandBody) -> Demand:
    """Return the demand that a body describes."""
    if not body.gpu and not body.extended and body.numa == "any":
        return _plain_demand(body.cpu, body.memory, body.disk)
    devices = None
    if isinstance(body.gpu, DeviceBody):
        gpu = body.gpu
        memory = size(gpu.memory, "gpu memory")
        devices = DeviceDemand(gpu.count, gpu.share_milli, tuple(gpu.models), memory)
    elif body.gpu:
        devices = DeviceDemand(body.gpu)
    return Demand(
        cores(body.cpu),
        size(body.memory, "memory"),
        size(body.disk, "disk"),
        tuple(sorted(body.extended.items())) if body.extended else (),
        devices,
        NumaMode(body.numa),
    )


def label_term_of(body: LabelTermBody) -> LabelTerm:
    """Return one condition on labels."""
    return LabelTerm(body.key, LabelOperator(body.operator), tuple(body.values))


def constraints_of(body: ConstraintsBody | None) -> Constraints:
    """Return the constraints that a body describes."""
    if body is None or body == _NO_CONSTRAINTS_BODY:
        return NO_CONSTRAINTS
    return Constraints(
        labels=tuple(map(label_term_of, body.labels)),
        tolerations=tuple(Toleration(t.key, t.value) for t in body.tolerations),
        architecture=body.architecture,
        driver=body.driver,
        capabilities=tuple(body.capabilities),
        zones=tuple(body.zones),
        racks=tuple(body.racks),
        sites=tuple(body.sites),
        pinned=tuple(body.hosts),
        excluded=tuple(body.not_hosts),
        preferences=tuple(Preference(label_term_of(p), p.weight) for p in body.preferences),
        near=tuple(map(near_of, body.near)),
    )


def near_of(body: NearBody) -> NearRule:
    """Return how near something must be that is named; whose name it is, is found out later."""
    name = body.vm or body.group
    if name is None or (body.vm is not None and body.group is not None):
        raise InvalidRequest(
            "`near` names one VM or one group", hint='Maybe {"vm": "db-1", "latency": 2}.'
        )
    return NearRule(
        name,
        name,
        group=body.vm is None,
        most_us=None if body.latency is None else round(body.latency * 1000),
        least_kbit=None if body.bandwidth is None else round(body.bandwidth * 1000),
    )


def group_of(body: GroupBody | AffinityBody, name: str) -> GroupSpec:
    """Return a group's rule under its full name."""
    return GroupSpec(
        name, _RULES[body.rule], _SCOPES[body.scope], body.hard, body.max_skew, body.weight
    )


def group_spec(
    name: str, rule: str, scope: str, *, hard: bool, max_skew: int, weight: int
) -> GroupSpec:
    """Return a group's rule from its words."""
    return GroupSpec(name, _RULES[rule], _SCOPES[scope], hard, max_skew, weight)


def group_rule(name: str) -> GroupRule:
    """Return the rule of this name."""
    return _RULES[name]


def scope_named(name: str) -> Scope:
    """Return the fault domain of this name."""
    return _SCOPES[name]


def resource_of(info: AmountInfo) -> Resource:
    """Return one resource of a host."""
    return _resource(info.total, info.reserve, info.ratio_milli)


@lru_cache(maxsize=4096)  # fleets are made of a few kinds of hosts
def _resource(total: int | None, reserve: int, ratio_milli: int) -> Resource:
    return Resource(total, reserve, ratio_milli)


def host_spec(
    name: str,
    inventory: Inventory,
    *,
    labels: dict[str, str] | None = None,
    health: str = "online",
    admin: str = "open",
) -> HostSpec:
    """Return what a host registered with; an operator's labels win over the inventory's."""
    found = inventory.labels if labels is None else labels
    return HostSpec(
        name=name,
        cpu=resource_of(inventory.cpu_milli),
        memory=resource_of(inventory.memory_bytes),
        disk=resource_of(inventory.disk_bytes),
        extended=tuple(
            (resource, resource_of(info)) for resource, info in sorted(inventory.extended.items())
        ),
        zone=inventory.zone,
        rack=inventory.rack,
        site=inventory.site,
        labels=tuple(sorted(found.items())),
        taints=tuple(Taint(t.key, t.value, _effect(t.effect)) for t in inventory.taints),
        architecture=inventory.architecture,
        driver=inventory.driver,
        capabilities=tuple(inventory.capabilities),
        devices=tuple(Device(d.model, d.memory_bytes, d.shareable) for d in inventory.devices),
        cells=tuple(Cell(c.cpu_milli, c.memory_bytes) for c in inventory.cells),
        max_vms=inventory.max_vms,
        health=HEALTHS[health],
        admin=ADMINS[admin],
    )


def _effect(word: str) -> TaintEffect:
    try:
        return TaintEffect(word)
    except ValueError:
        known = ", ".join(effect.value for effect in TaintEffect)
        raise InvalidRequest(
            f"unknown taint effect {word!r}; known effects: {known}", effect=word
        ) from None
