"""Twins of rules: the plain interpreter on plain values, host by host.

What a rule says of a host is `roost.rules.evaluating` on the expression as it was written. What a
soft rule charges is worked out from what is left of it once the VM is known, as its meaning says.
"""

from functools import lru_cache
from math import ceil

from roost.model.flow import PlaceRequest
from roost.model.rules import Rule
from roost.placement.rules.folding import TRUE, conjuncts, fold, with_fields
from roost.placement.rules.parts import is_kept
from roost.rules.checking import Condition, condition
from roost.rules.evaluating import evaluate, judge
from roost.rules.fields import Fields
from roost.rules.syntax import Binary, Expr, Logical, Unary
from roost.rules.values import Trouble
from tests.naive.fleet import Ask, Row

EXTENDED = ("licences", "ports")


@lru_cache(maxsize=1000)
def checked(text: str) -> Condition:
    """Parse and check an expression once."""
    return condition(text, Fields.of(EXTENDED))


def conditions(ask: Ask) -> list[tuple[Rule, Condition]]:
    """Return the rules that are for this VM."""
    return [
        (rule, checked(rule.expression))
        for rule in ask.facts.rules.rules
        if rule.name not in ask.request.lifted and is_for(rule, ask.request)
    ]


def is_for(rule: Rule, request: PlaceRequest) -> bool:
    """Say whether a rule's scope has this VM."""
    labels = dict(request.labels)
    return (
        rule.scope.project in ("", request.project)
        and rule.scope.vm in ("", request.name, request.key)
        and all(term.matches(labels) for term in rule.scope.selector)
    )


def vm_facts(request: PlaceRequest) -> dict[str, object]:
    """Return the VM as rules read it."""
    return {
        "name": request.name,
        "project": request.project,
        "labels": dict(request.labels),
        "priority": request.priority,
        "groups": [each if isinstance(each, str) else each.name for each in request.groups],
        "strategy": request.strategy or "least_loaded",
        "devices": request.demand.devices.count if request.demand.devices else 0,
        "demand": dict(request.demand.amounts()),
    }


def host_facts(row: Row) -> dict[str, object]:
    """Return a host as rules read it."""
    spec = row.spec
    has = [
        name
        for name, resource in spec.resources()
        if name in ("cpu", "memory", "disk") or resource.total != 0
    ]
    return {
        "name": spec.name,
        "zone": spec.zone,
        "rack": spec.rack,
        "site": spec.site,
        "labels": dict(spec.labels),
        "taints": [
            {"key": each.key, "value": each.value, "effect": str(each.effect)}
            for each in spec.taints
        ],
        "capabilities": list(spec.capabilities),
        "architecture": spec.architecture,
        "driver": spec.driver,
        "devices": [
            {"model": each.model, "memory": each.memory_bytes, "shareable": each.shareable}
            for each in spec.devices
        ],
        "capacity": {name: row.capacity[name] for name in has},
        "committed": {name: row.committed.get(name, 0) for name in has},
        "free": {name: row.free(name) for name in has},
        "used": dict(row.used),
        "pressure": {},
        "vms": row.vms,
    }


def bindings(row: Row, ask: Ask) -> dict[str, object]:
    """Return everything a rule may read."""
    return {
        "host": host_facts(row),
        "vm": vm_facts(ask.request),
        "project": ask.facts.project,
        "group": ask.facts.group,
        "fleet": ask.facts.fleet,
    }


def verdicts(row: Row, ask: Ask) -> list[bool | Trouble]:
    """Return what every hard rule says of a host."""
    if row.number not in ask.verdicts:
        hard = [each for rule, each in conditions(ask) if rule.hard]
        known = bindings(row, ask) if hard else {}
        ask.verdicts[row.number] = [judge(each, known) for each in hard]
    return ask.verdicts[row.number]


def rules_hold(row: Row, ask: Ask) -> bool:
    """No hard rule says no."""
    return not any(found is False for found in verdicts(row, ask))


def rules_without_error(row: Row, ask: Ask) -> bool:
    """No hard rule ends in an error."""
    return not any(isinstance(found, Trouble) for found in verdicts(row, ask))


def left_of(each: Condition, ask: Ask) -> Expr:
    """Return what is left of a rule once the VM is known."""
    fields = {("fleet", name): value for name, value in ask.facts.clock.items()}
    fields["project", "name"] = ask.request.project
    if ask.groups:
        fields["group", "name"] = ask.groups[0].name
    return fold(with_fields(each.expr, fields), {"vm": vm_facts(ask.request)})


def attributes_allow(row: Row, ask: Ask) -> bool:
    """Every part of a hard rule that only attributes decide holds."""
    known = bindings(row, ask)
    return all(
        evaluate(part, known, each.patterns) is True
        for rule, each in conditions(ask)
        if rule.hard
        for part in conjuncts(left_of(each, ask))
        if is_kept(part)
    )


# Soft rules


def soft_left(ask: Ask) -> list[tuple[Rule, Condition, Expr]]:
    """Return the soft rules that bind a VM, and what is left of each."""
    found = []
    for rule, each in conditions(ask):
        left = left_of(each, ask)
        if not rule.hard and left != TRUE:
            found.append((rule, each, left))
    return found


def soft_penalties(rows: list[Row], ask: Ask) -> dict[int, int]:
    """Return what soft rules charge every host, in hundredths of a score."""
    soft = soft_left(ask)
    if not soft:
        return dict.fromkeys((row.number for row in rows), 0)
    charged: dict[int, dict[int, int]] = {}
    for row in rows:
        levels = charged[row.number] = {rule.priority: 0 for rule, _, _ in soft}
        known = {
            "host": host_facts(row),
            "group": ask.facts.group,
            "fleet": ask.facts.fleet,
            "project": ask.facts.project,
        }
        for rule, each, left in soft:
            short = shortfall(fold(left, {k: known[k] for k in known if k != "host"}), known, each)
            levels[rule.priority] += -(-rule.weight * short // 10_000)
    high = sorted({rule.priority for rule, _, _ in soft} - {0}, reverse=True)
    orders = {number: tuple(levels[p] for p in high) for number, levels in charged.items()}
    ranks = {order: rank for rank, order in enumerate(sorted(set(orders.values())))}
    return {
        number: charged[number].get(0, 0) + 2**19 * ranks[order] for number, order in orders.items()
    }


def shortfall(expr: Expr, known: dict[str, object], each: Condition) -> int:
    """Return how far a host is from satisfying an expression, in thousandths."""
    if isinstance(expr, Logical):
        terms = [shortfall(term, known, each) for term in expr.terms]
        return -(-sum(terms) // len(terms)) if expr.operator == "&&" else min(terms)
    if evaluate(expr, known, each.patterns) is True:
        return 0
    if isinstance(expr, Unary) or not isinstance(expr, Binary):
        return 1000
    left = evaluate(expr.left, known, each.patterns)
    right = evaluate(expr.right, known, each.patterns)
    numbers = all(
        isinstance(side, int | float) and not isinstance(side, bool) for side in (left, right)
    )
    if expr.operator not in ("<", "<=", ">", ">=") or not numbers:
        return 1000
    gap = right - left if expr.operator in (">", ">=") else left - right
    return min(max(ceil(1000 * (gap / max(abs(left), abs(right), 1))), 1), 1000)
