"""Which rules bind a request, and what is left of each once its VM is known.

VMs of one class, by what the rules read of them, share the bound rules and so the compiled terms.
Rules are parsed and checked when they are set, never at a decision.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from roost.fleet.fleet import Fleet
from roost.model.constraints import NO_TERMS, BoundRule, HostRequirements
from roost.model.flow import PlaceRequest
from roost.model.resources import BASE_RESOURCES
from roost.model.rules import NO_RULES, WHOLE_WEIGHT, Rule, RuleSet
from roost.placement.rules.facts import (
    fleet_record,
    group_names,
    group_record,
    project_record,
    vm_record,
)
from roost.placement.rules.left import VMFacts, left_of
from roost.placement.rules.parts import anew
from roost.placement.rules.paths import Path, reads_once
from roost.rules.checking import Condition
from roost.rules.checking import checked as check
from roost.rules.fields import AMOUNT_RECORDS, Fields
from roost.rules.parsing import parse

#: Classes of VMs that are remembered; more of them, and all are worked out again.
_MOST_CLASSES = 8_192

#: What rules may read of a VM, and where a request has it.
_READ: Mapping[str, tuple[str, ...]] = {
    "name": ("name",),
    "project": ("project",),
    "labels": ("labels",),
    "priority": ("priority",),
    "groups": ("groups",),
    "strategy": ("strategy",),
    "restart": ("restart",),
    "devices": ("demand.devices",),
    "demand": (
        "demand.cpu_milli",
        "demand.memory_bytes",
        "demand.disk_bytes",
        "demand.extended",
    ),
}


class Bound(NamedTuple):
    """What a class of VMs asks of hosts: its terms, their number, and whether they are restless.

    Restless terms have a part that is computed for every decision.
    """

    terms: HostRequirements
    number: int
    restless: bool


@lru_cache(maxsize=16_384)
def _known(text: str) -> tuple[Condition, tuple[Path, ...]]:
    """Parse and check an expression, and return it with what it reads that is no host's."""
    expr = parse(text)
    read = reads_once(expr)
    amounts = {path[2] for path in read if len(path) == 3 and ".".join(path[:2]) in AMOUNT_RECORDS}
    found = check(expr, text, Fields.of(tuple(sorted(amounts - set(BASE_RESOURCES)))))
    return found, tuple(sorted(path for path in read if path[0] != "host"))


def checked(text: str) -> Condition:
    """Parse and check an expression; any resource may be one that some host has."""
    return _known(text)[0]


def read_besides_hosts(text: str) -> tuple[Path, ...]:
    """Return what a condition reads that is no host's, in a fixed order."""
    return _known(text)[1]


class Binder:
    """The rules of one engine, ready to be asked about requests.

    `clock` is the time as rules read it: hour, minute and weekday.
    """

    def __init__(
        self, fleet: Fleet, rules: RuleSet = NO_RULES, clock: Mapping[str, int] | None = None
    ):
        self._fleet = fleet
        self.rules = rules
        self.clock = dict(clock or {})
        self._conditions = [(rule, checked(rule.expression)) for rule in rules.rules]
        self.binds = bool(rules.rules)
        #: Whether some rule reads what projects have: then VMs are counted as they are placed.
        self.reads_projects = any(
            path[0] == "project" and path != ("project", "name")
            for _, each in self._conditions
            for path in read_besides_hosts(each.text)
        )
        # What no VM changes is worked out here, and not at the first decision.
        nobody = VMFacts({}, "", [], {})
        for _, each in self._conditions:
            if not read_besides_hosts(each.text):
                left_of(each, (), nobody)
        self._classes: dict[str, Callable[[PlaceRequest], Hashable]] = {}  # by project
        self._policies = frozenset(rule.scope.policy for rule in rules.rules if rule.scope.policy)
        self._named = frozenset(rule.scope.vm for rule in rules.rules if rule.scope.vm)
        self._plain: dict[Hashable, Bound] = {}  # VMs that ask for amounts alone
        self._others: dict[Hashable, Bound] = {}

    def forget(self) -> None:
        """Forget what classes of VMs ask for: their terms have other numbers now."""
        self._plain.clear()
        self._others.clear()

    def _class_of(self, project: str) -> Callable[[PlaceRequest], Hashable]:
        """Return, and remember, how the class of a project's VM is read from its request."""
        class_of = attrgetter(*self._told_apart(project))
        if len(self._classes) >= _MOST_CLASSES:
            self._classes.clear()
        self._classes[project] = class_of
        return class_of

    def _told_apart(self, project: str) -> list[str]:
        """Return what tells VMs of a project apart: what the rules that may bind them read."""
        fields = set()
        for rule, each in self._conditions:
            if rule.scope.project in ("", project):
                for path in read_besides_hosts(each.text):
                    if path[0] == "vm":
                        fields.add(path[1] if len(path) > 1 else "")
                    elif path[0] in ("project", "group"):
                        fields.add("groups")
                if rule.scope.selector:
                    fields.add("labels")
        read = [_READ[name] for name in _READ if name in fields or "" in fields]
        return [each for attributes in read for each in attributes] or ["project"]

    def bound(self, request: PlaceRequest, default_strategy: str) -> Bound:
        """Return what a request asks of hosts together with the rules that bind it."""
        class_of = self._classes.get(request.project) or self._class_of(request.project)
        key: Hashable = (request.project, class_of(request))
        if request.policy in self._policies:
            key = (request.policy, key)
        known = self._plain
        special = request.lifted or request.relaxed
        if self._named or special or request.terms is not NO_TERMS:
            names = self._named & {request.key, request.name}
            key = (key, request.terms, request.lifted, request.relaxed, names)
            known = self._others
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST_CLASSES:
                known.clear()
            terms = self._terms(request, request.strategy or default_strategy)
            number = 0 if terms is NO_TERMS else self._fleet.terms.number(terms)
            found = known[key] = Bound(terms, number, anew(terms))
        return found

    def _terms(self, request: PlaceRequest, strategy: str) -> HostRequirements:
        bound = []
        vm, groups = vm_record(request, strategy), group_names(request)
        facts = VMFacts(vm, request.project, groups, self.clock)
        for rule, each in self._conditions:
            if rule.name not in request.lifted and covers(rule, request):
                left = left_of(each, read_besides_hosts(each.text), facts)
                if left is not None:
                    text, parts = left
                    weight = rule.weight
                    if weight is None and rule.name in request.relaxed:
                        weight = WHOLE_WEIGHT
                    bound.append(BoundRule(rule.name, text, weight, rule.priority, parts))
        if not bound:
            return request.terms
        terms = request.terms
        return replace(terms, rules=tuple(bound))

    def known(self, request: PlaceRequest) -> dict[str, object]:
        """Return what a decision knows besides hosts and what was folded into the rules."""
        if not self._conditions:
            return {}
        return {
            "fleet": fleet_record(self._fleet, self.clock),
            "group": group_record(self._fleet, request),
            "project": project_record(self._fleet, request),
        }


def covers(rule: Rule, request: PlaceRequest) -> bool:
    """Say whether a rule is for the VM of a request."""
    scope = rule.scope
    if scope.project and scope.project != request.project:
        return False
    if scope.policy and scope.policy != request.policy:
        return False
    if scope.vm and scope.vm not in (request.key, request.name):
        return False
    if scope.selector:
        labels = dict(request.labels)
        return all(term.matches(labels) for term in scope.selector)
    return True
