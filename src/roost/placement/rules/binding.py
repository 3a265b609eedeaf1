"""Which rules bind a request, and what is left of each once its VM is known.

VMs of one class, by what the rules read of them, share the bound rules and so the compiled terms.
Rules are parsed and checked when they are set, never at a decision.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any

from roost.fleet.fleet import Fleet
from roost.model.constraints import BoundRule, HostRequirements
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
from roost.placement.rules.folding import TRUE, fold, with_fields
from roost.placement.rules.parts import Parts, parts_of
from roost.placement.rules.paths import Path, reads
from roost.rules.checking import Condition, condition
from roost.rules.fields import AMOUNT_RECORDS, Fields
from roost.rules.parsing import parse
from roost.rules.printing import write

#: Classes of VMs that are remembered; more of them, and all are worked out again.
_MOST_CLASSES = 65_536

#: What rules may read of a VM, and where a request has it.
_READ: Mapping[str, Callable[[PlaceRequest], Hashable]] = {
    "name": lambda request: request.name,
    "project": lambda request: request.project,
    "labels": lambda request: request.labels,
    "priority": lambda request: request.priority,
    "groups": lambda request: request.groups,
    "strategy": lambda request: request.strategy,
    "restart": lambda request: request.restart,
    "devices": lambda request: request.demand.devices,
    "demand": lambda request: request.demand.amounts(),
}


@lru_cache(maxsize=16_384)
def checked(text: str) -> Condition:
    """Parse and check an expression; any resource may be one that some host has."""
    amounts = {
        path[2]
        for path in reads(parse(text))
        if len(path) == 3 and ".".join(path[:2]) in AMOUNT_RECORDS
    }
    return condition(text, Fields.of(tuple(sorted(amounts - set(BASE_RESOURCES)))))


@lru_cache(maxsize=16_384)
def _parts(whole: Any, text: str, patterns: tuple[tuple[str, Any], ...]) -> Parts:
    return parts_of(whole, dict(patterns))


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
        paths = frozenset().union(*(reads(each.expr) for _, each in self._conditions))
        self._getters = self._class_of(paths)
        self._named = frozenset(rule.scope.vm for rule in rules.rules if rule.scope.vm)
        self._classes: dict[Hashable, HostRequirements] = {}
        self._last: PlaceRequest | None = None
        self._last_terms: HostRequirements | None = None

    def _class_of(self, paths: frozenset[Path]) -> tuple[Callable[[PlaceRequest], Hashable], ...]:
        """Return what tells classes of VMs apart: what rules or their scopes read."""
        fields = {path[1] if len(path) > 1 else "" for path in paths if path[0] == "vm"}
        if any(path[0] in ("project", "group") for path in paths):
            fields |= {"project", "groups"}
        if any(rule.scope.project for rule in self.rules.rules):
            fields.add("project")
        if any(rule.scope.selector for rule in self.rules.rules):
            fields.add("labels")
        return tuple(getter for name, getter in _READ.items() if name in fields or "" in fields)

    def terms(self, request: PlaceRequest, strategy: str) -> HostRequirements:
        """Return what a request asks of hosts together with the rules that bind it."""
        if not self._conditions:
            return request.terms
        if request is self._last and self._last_terms is not None:
            return self._last_terms
        key: list[Hashable] = [getter(request) for getter in self._getters]
        key += (request.terms, request.lifted, request.softened)
        if self._named:
            key += (each if each in self._named else "" for each in (request.key, request.name))
        found = self._classes.get(tuple(key))
        if found is None:
            if len(self._classes) >= _MOST_CLASSES:
                self._classes.clear()
            found = self._classes[tuple(key)] = self._bound(request, strategy)
        self._last, self._last_terms = request, found
        return found

    def _bound(self, request: PlaceRequest, strategy: str) -> HostRequirements:
        bound = []
        for rule, each in self._conditions:
            if rule.name not in request.lifted and covers(rule, request):
                left = self._left(each, request, strategy)
                if left is not None:
                    weight = rule.weight
                    if weight is None and rule.name in request.softened:
                        weight = WHOLE_WEIGHT
                    text, parts = left
                    bound.append(BoundRule(rule.name, text, weight, rule.priority, parts))
        if not bound:
            return request.terms
        terms = request.terms
        return HostRequirements(terms.devices, terms.numa, terms.constraints, tuple(bound))

    def _left(
        self, each: Condition, request: PlaceRequest, strategy: str
    ) -> tuple[str, Parts] | None:
        """Return what is left of a condition for this VM, None if it holds on every host."""
        fields: dict[Path, object] = {("fleet", name): value for name, value in self.clock.items()}
        fields["project", "name"] = request.project
        if request.groups:
            fields["group", "name"] = group_names(request)[0]
        known = {"vm": vm_record(request, strategy)}
        whole = fold(with_fields(each.expr, fields), known)
        if whole == TRUE:
            return None
        text = write(whole)
        return text, _parts(whole, text, tuple(each.patterns.items()))

    def known(self, request: PlaceRequest) -> dict[str, object]:
        """Return what a decision knows besides hosts and what was folded into the rules."""
        if not self._conditions:
            return {}
        return {
            "fleet": fleet_record(self._fleet, self.clock),
            "group": group_record(self._fleet, request),
            "project": project_record(request),
        }


def covers(rule: Rule, request: PlaceRequest) -> bool:
    """Say whether a rule is for the VM of a request."""
    scope = rule.scope
    if scope.project and scope.project != request.project:
        return False
    if scope.vm and scope.vm not in (request.key, request.name):
        return False
    if scope.selector:
        labels = dict(request.labels)
        return all(term.matches(labels) for term in scope.selector)
    return True
