"""What could be lifted so that a batch fits: hard rules, hard groups, constraints of the VMs.

Amounts, devices, NUMA cells and the state of hosts are not among them: no decision of an owner or
operator lifts those.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roost.fleet.layout import BoolArray
from roost.model.constraints import Constraints, Toleration
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupSpec
from roost.model.reasons import Reason
from roost.placement.engine import Engine
from roost.placement.solver.problem import VMClass
from roost.placement.solver.program import Lifts
from roost.placement.verdicts import judge_hosts

RULE, GROUP, CONSTRAINT = "rule", "group", "constraint"

#: Constraints of a VM by the reason they refuse hosts for: what they are called, and without them.
_OWN: dict[
    Reason, tuple[Callable[[Constraints], str], Callable[[Constraints], Constraints]]
] = {
    Reason.NOT_PINNED: (
        lambda c: f"pinned to {', '.join(c.pinned)}", lambda c: replace(c, pinned=()),
    ),
    Reason.EXCLUDED: (
        lambda c: f"excludes {', '.join(c.excluded)}", lambda c: replace(c, excluded=()),
    ),
    Reason.LABELS: (
        lambda c: f"label {', '.join(map(str, c.labels))}", lambda c: replace(c, labels=()),
    ),
    Reason.TAINT: (
        lambda c: "taints that are not tolerated",
        lambda c: replace(c, tolerations=(Toleration(),)),
    ),
    Reason.ARCHITECTURE: (
        lambda c: f"architecture {c.architecture}", lambda c: replace(c, architecture=None),
    ),
    Reason.DRIVER: (lambda c: f"driver {c.driver}", lambda c: replace(c, driver=None)),
    Reason.CAPABILITY: (
        lambda c: f"capability {', '.join(c.capabilities)}",
        lambda c: replace(c, capabilities=()),
    ),
    Reason.ZONE: (lambda c: f"zone {', '.join(c.zones)}", lambda c: replace(c, zones=())),
    Reason.RACK: (lambda c: f"rack {', '.join(c.racks)}", lambda c: replace(c, racks=())),
    Reason.SITE: (lambda c: f"site {', '.join(c.sites)}", lambda c: replace(c, sites=())),
    Reason.PREDICATE: (lambda c: "predicate", lambda c: replace(c, predicate=None)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Restriction:
    """Something that could be lifted, by name, and which VMs of the batch it binds.

    `vms` is what they are called, as `called` says; `keys` is what tells them apart.
    """

    kind: str
    name: str
    vms: tuple[str, ...]
    keys: frozenset[str]
    reason: Reason | None = None  # of a constraint

    def lifted_from(self, request: PlaceRequest) -> PlaceRequest:
        """Return a request that this does not bind."""
        if self.kind == RULE:
            return replace(request, lifted=(*request.lifted, self.name))
        if self.kind == GROUP:
            groups = tuple(each for each in request.groups if _name(each) != self.name)
            return replace(request, groups=groups)
        if _key(request) not in self.keys:
            return request
        assert self.reason is not None
        without = _OWN[self.reason][1]
        return replace(request, constraints=without(request.constraints))


def _key(request: PlaceRequest) -> str:
    return request.key or request.name


def called(requests: Sequence[PlaceRequest]) -> list[str]:
    """Return what VMs of a batch are called: with their project where a name comes twice."""
    names = Counter(request.name for request in requests)
    return [
        f"{each.project}/{each.name}" if names[each.name] > 1 and each.project else each.name
        for each in requests
    ]


def _name(group: GroupSpec | str) -> str:
    return group if isinstance(group, str) else group.name


def without(
    requests: Sequence[PlaceRequest], restrictions: Sequence[Restriction]
) -> list[PlaceRequest]:
    """Return a batch with some restrictions lifted."""
    free = list(requests)
    for each in restrictions:
        free = [each.lifted_from(request) for request in free]
    return free


@dataclass(frozen=True, slots=True)
class Liftable:
    """Everything that binds a batch and could be lifted, and where VMs could be without it."""

    restrictions: tuple[Restriction, ...]
    lifts: Lifts
    possible: BoolArray  # [class, host]: whatever is lifted


def liftable(
    engine: Engine, requests: Sequence[PlaceRequest], classes: Sequence[VMClass]
) -> Liftable:
    """Return what could be lifted for a batch, by asking every filter about every host."""
    found: dict[tuple[object, ...], int] = {}
    made: list[Restriction] = []
    blocked: dict[tuple[int, int], BoolArray] = {}
    count = engine.fleet.hosts.count
    possible = np.zeros((len(classes), count), np.bool_)

    def number_of(key: tuple[object, ...], restriction: Restriction) -> int:
        at = found.setdefault(key, len(made))
        if at == len(made):
            made.append(restriction)
        elif restriction.keys - made[at].keys:
            before = made[at]
            vms, keys = (*before.vms, *restriction.vms), before.keys | restriction.keys
            made[at] = replace(before, vms=vms, keys=keys)
        return at

    rules: dict[str, int] = {}
    groups: dict[int, int] = {}
    told = called(requests)
    for number, vm in enumerate(classes):
        names = tuple(told[index] for index in vm.members)
        keys = frozenset(_key(requests[index]) for index in vm.members)
        verdicts = judge_hosts(engine.question(replace(vm.request, groups=())))
        fits = np.ones(len(verdicts.rows), np.bool_)
        for each, failed in zip(verdicts.filters, verdicts.failed, strict=True):
            if each.rule:
                at = number_of((RULE, each.rule), Restriction(RULE, each.rule, names, keys))
                rules[each.rule] = at
            elif each.reason in _OWN:
                name = _OWN[each.reason][0](vm.request.constraints)
                made_of = Restriction(CONSTRAINT, name, names, keys, each.reason)
                at = number_of((CONSTRAINT, number, each.reason), made_of)
            else:
                fits &= ~failed
                continue
            away = blocked.setdefault((number, at), np.zeros(count, np.bool_))
            away[verdicts.rows] |= failed
        possible[number, verdicts.rows] = fits
        for rule, _ in vm.lines:
            rules[rule] = number_of((RULE, rule), Restriction(RULE, rule, names, keys))
        for group in vm.groups:
            name = engine.fleet.groups.specs[group].name
            groups[group] = number_of((GROUP, group), Restriction(GROUP, name, names, keys))
    return Liftable(tuple(made), Lifts(len(made), blocked, rules, groups), possible)
