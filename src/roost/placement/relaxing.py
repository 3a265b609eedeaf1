"""A request with one rule lifted, for every rule it has: where a smallest fix is looked for."""

from collections.abc import Iterator
from dataclasses import replace

from roost.model.constraints import Constraints, Toleration
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupSpec
from roost.model.hosts import TaintEffect
from roost.model.resources import NumaMode
from roost.placement.nearness import is_bound
from roost.placement.question import Question


def relaxations(
    question: Question, request: PlaceRequest, alone: frozenset[str]
) -> Iterator[tuple[str, PlaceRequest]]:
    """Yield (rule, request without it) for every hard rule of a request.

    Of the rules that others have set, only those which are all that keeps some host away: `alone`.
    """
    for bound in question.terms.rules:
        if bound.name in alone:
            lifted = (*request.lifted, bound.name)
            yield bound.name, replace(request, lifted=lifted)
    for rule, constraints in _without_constraints(question, request.constraints):
        yield rule, replace(request, constraints=constraints)
    for group in request.groups:
        spec = _spec(question, group)
        if spec is not None and spec.hard:
            rest = tuple(each for each in request.groups if each is not group)
            rule = f"{spec.rule.label} of group {spec.name} over {spec.scope.label}s"
            yield rule, replace(request, groups=rest)
    for talk in request.talks:
        if is_bound(talk):
            free = replace(talk, most_us=None, least_kbit=None)
            talks = tuple(free if each is talk else each for each in request.talks)
            yield f"how near to {talk.name}", replace(request, talks=talks)
    demand = request.demand
    if demand.numa is not NumaMode.ANY:
        yield (
            f"numa {demand.numa.value}",
            replace(request, demand=replace(demand, numa=NumaMode.ANY)),
        )
    if demand.devices is not None and demand.devices.models:
        models = ", ".join(demand.devices.models)
        devices = replace(demand.devices, models=())
        yield f"device model {models}", replace(request, demand=replace(demand, devices=devices))


def _spec(question: Question, group: GroupSpec | str) -> GroupSpec | None:
    if isinstance(group, GroupSpec):
        return group
    number = question.fleet.groups.find(group)
    return question.fleet.groups.specs[number] if number >= 0 else None


def _known(question: Question, name: str) -> str:
    """Return a host's name; of one that is not there with that, since it may be mistyped."""
    return name if name in question.fleet.hosts.rows else f"{name} (no such host)"


def _without_constraints(
    question: Question, constraints: Constraints
) -> Iterator[tuple[str, Constraints]]:
    for term in constraints.labels:
        rest = tuple(each for each in constraints.labels if each is not term)
        yield f"label {term}", replace(constraints, labels=rest)
    for key, value in _untolerated(question, constraints):
        tolerations = (*constraints.tolerations, Toleration(key, value))
        yield f"taint {key}={value}", replace(constraints, tolerations=tolerations)
    if constraints.architecture is not None:
        yield f"architecture {constraints.architecture}", replace(constraints, architecture=None)
    if constraints.driver is not None:
        yield f"driver {constraints.driver}", replace(constraints, driver=None)
    for capability in constraints.capabilities:
        kept = tuple(each for each in constraints.capabilities if each != capability)
        yield f"capability {capability}", replace(constraints, capabilities=kept)
    if constraints.zones:
        yield f"zone {', '.join(constraints.zones)}", replace(constraints, zones=())
    if constraints.racks:
        yield f"rack {', '.join(constraints.racks)}", replace(constraints, racks=())
    if constraints.sites:
        yield f"site {', '.join(constraints.sites)}", replace(constraints, sites=())
    if constraints.pinned:
        named = ", ".join(_known(question, each) for each in constraints.pinned)
        yield f"pinned to {named}", replace(constraints, pinned=())
    if constraints.excluded:
        yield f"excludes {', '.join(constraints.excluded)}", replace(constraints, excluded=())
    if constraints.predicate is not None:
        yield f"predicate {constraints.predicate.name}", replace(constraints, predicate=None)


def _untolerated(question: Question, constraints: Constraints) -> list[tuple[str, str]]:
    taints = {
        (taint.key, taint.value)
        for taints in question.fleet.hosts.taint_sets.values
        for taint in taints
        if taint.effect is TaintEffect.NO_PLACE
        and not any(each.covers(taint.key, taint.value) for each in constraints.tolerations)
    }
    return sorted(taints)
