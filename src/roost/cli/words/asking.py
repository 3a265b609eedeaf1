"""Requests as people type them, turned into the bodies that the API takes.

The words are read by the same code as those of a fleet file (`roost.wire.text.requestwords`), so an
option means the same to a server as to a file, and a mistake is found before anything is sent.
"""

from collections.abc import Sequence
from typing import Any

from roost.base.errors import InvalidRequest
from roost.base.units import exact_cpu
from roost.model.constraints import Constraints, LabelTerm
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupSpec
from roost.model.resources import Demand
from roost.wire import bodies
from roost.wire.text.requestwords import parse_request, read_group
from roost.wire.text.words import cut


def vm_fields(request: PlaceRequest) -> dict[str, Any]:
    """Return the fields of `CreateVM`, and of the questions that take the same, for a request."""
    if request.seed is not None:
        raise InvalidRequest(
            "a server draws its own seeds; --seed is for --fleet FILE",
            hint="Maybe leave --seed out.",
        )
    fields: dict[str, Any] = {
        "name": request.name,
        "demand": demand_body(request.demand),
        "groups": [_group(each) for each in request.groups],
        "strategy": request.strategy,
        "priority": request.priority,
    }
    if request.project:
        fields["project"] = request.project
    constraints = _constraints(request.constraints)
    if constraints != bodies.ConstraintsBody():
        fields["constraints"] = constraints
    return fields


def constraints_said(words: Sequence[tuple[str, str]]) -> bodies.ConstraintsBody:
    """Return the constraints that options state, which are all that they are about."""
    least = (("cpu", "1"), ("memory", "1MiB"))
    return _constraints(parse_request((*least, *words), "vm").constraints)


def demand_body(demand: Demand) -> bodies.DemandBody:
    """Return the amounts of a request."""
    devices = demand.devices
    return bodies.DemandBody(
        cpu=exact_cpu(demand.cpu_milli),
        memory=demand.memory_bytes,
        disk=demand.disk_bytes,
        gpu=0
        if devices is None
        else bodies.DeviceBody(
            count=devices.count,
            share_milli=devices.milli,
            models=list(devices.models),
            memory=devices.memory_bytes,
        ),
        extended=dict(demand.extended),
        numa=demand.numa.value,
    )


def _group(group: GroupSpec | str) -> str | bodies.GroupBody:
    if isinstance(group, str):
        return group
    return bodies.GroupBody(
        name=group.name,
        rule=group.rule.label,  # type: ignore[arg-type]
        scope=group.scope.label,  # type: ignore[arg-type]
        hard=group.hard,
        max_skew=group.max_skew,
        weight=group.weight,
    )


def _constraints(asked: Constraints) -> bodies.ConstraintsBody:
    return bodies.ConstraintsBody(
        labels=[bodies.LabelTermBody(**_term(term)) for term in asked.labels],
        tolerations=[
            bodies.TolerationBody(key=each.key, value=each.value) for each in asked.tolerations
        ],
        architecture=asked.architecture,
        driver=asked.driver,
        capabilities=list(asked.capabilities),
        zones=list(asked.zones),
        racks=list(asked.racks),
        sites=list(asked.sites),
        hosts=list(asked.pinned),
        not_hosts=list(asked.excluded),
        preferences=[
            bodies.PreferenceBody(**_term(each.term), weight=each.weight)
            for each in asked.preferences
        ],
        near=[
            bodies.NearBody(
                vm=None if each.group else each.name,
                group=each.name if each.group else None,
                latency=None if each.most_us is None else each.most_us / 1000,
                bandwidth=None if each.least_kbit is None else each.least_kbit / 1000,
            )
            for each in asked.near
        ],
    )


def _term(term: LabelTerm) -> dict[str, Any]:
    return {"key": term.key, "operator": term.operator.value, "values": list(term.values)}


def read_labels(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return the labels that KEY=VALUE texts describe."""
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InvalidRequest(
                f"{option} {pair!r} is not KEY=VALUE", hint=f"Maybe {option} {pair or 'tier'}=gold?"
            )
        if key in labels:
            raise InvalidRequest(f"{option}: label {key!r} is given twice")
        labels[key] = value
    return labels


def read_affinity(text: str) -> bodies.AffinityBody:
    """Return the rule that a text such as "app=web anti-affinity host" describes."""
    words = cut(text)
    if len(words) < 2:
        raise InvalidRequest(
            f"--affinity {text!r} is not LABEL=VALUE[,...] RULE [SCOPE]",
            hint="Maybe --affinity 'app=web anti-affinity host'?",
        )
    labels = read_labels(words[0].text.split(","), "--affinity")
    group = read_group(words)
    return bodies.AffinityBody(
        selector=labels,
        rule=group.rule.label,  # type: ignore[arg-type]
        scope=group.scope.label,  # type: ignore[arg-type]
        hard=group.hard,
        max_skew=group.max_skew,
        weight=group.weight,
    )
