"""Conflicts of rules: rules that contradict each other, or that no host passes now.

Asked on a copy of the fleet, of VMs that are there and of such as nobody has created yet: each
class of them by itself, since rules may read the VM.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from roost.base.units import GIB
from roost.control.rules.contradicting import MOST_STEPS, Steps, contradictions
from roost.control.rules.demands import Demand
from roost.fleet.layout import BoolArray
from roost.model.constraints import BoundRule
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand as Amounts
from roost.model.rules import Rule, RuleScope
from roost.placement.rules.binding import covers
from roost.placement.rules.columns import HOLDS
from roost.placement.whatif import WhatIf
from roost.wire.constraints import ConflictBody

#: Conflicts that one answer names.
MOST_TOLD = 50
#: Classes of VMs that are looked at.
_MOST_CLASSES = 100

#: A rule that binds a class of VMs, and which hosts pass it.
Passed = tuple[BoundRule, BoolArray]


class Conflicts(NamedTuple):
    """Conflicts that were found, and whether all was compared that might be one."""

    found: list[ConflictBody]
    whole: bool = True

    def notes(self, whose: str = "its rules") -> list[str]:
        """Say what is not known of the conflicts of some rules."""
        if self.whole:
            return []
        return [f"{whose} were not all compared, they say too much: there may be more conflicts"]


def new_vm(scope: RuleScope) -> PlaceRequest:
    """Return a VM that nobody has created yet, as plain as a scope allows."""
    labels = tuple((term.key, term.values[0]) for term in scope.selector)
    demand = Amounts(1000, GIB, 0)
    project = scope.project or "default"
    return PlaceRequest("new-vm", demand, project=project, labels=labels, policy=scope.policy)


def in_both(one: RuleScope, other: RuleScope) -> RuleScope | None:
    """Return the scope of VMs that are in both; None where no VM is, or one alone."""
    if one.vm or other.vm:
        return None
    if "" not in (one.project, other.project) and one.project != other.project:
        return None
    if "" not in (one.policy, other.policy) and one.policy != other.policy:
        return None
    labels = {term.key: term.values[0] for term in other.selector}
    for term in one.selector:
        if labels.setdefault(term.key, term.values[0]) != term.values[0]:
            return None
    return RuleScope.with_labels(
        one.project or other.project, "", labels, one.policy or other.policy
    )


def conflicts_of(
    world: WhatIf, about: Callable[[str], bool], requests: Iterable[PlaceRequest]
) -> Conflicts:
    """Return the first conflicts of some rules that the world's rules hold already.

    `about` says of a rule's name whether it is one of them; each conflict has one of them.
    """
    requests = list(requests)
    hard = [rule for rule in world.rules.rules if rule.hard]
    bind = [rule for rule in hard if any(covers(rule, request) for request in requests)]
    steps = Steps(MOST_STEPS)
    opposed = contradictions(bind, about, steps)
    found = [_contradiction(one, other) for one, other in islice(opposed, MOST_TOLD)]
    known = {frozenset(each.rules) for each in found}
    shut_out = _without_hosts(world, about, requests, steps)
    while len(found) < MOST_TOLD and (each := next(shut_out, None)) is not None:
        if not any(other <= frozenset(each.rules) for other in known):
            known.add(frozenset(each.rules))
            found.append(each)
    return Conflicts(found, not steps.over)


def classes_under(
    world: WhatIf, rule: Rule, requests: Iterable[PlaceRequest]
) -> list[PlaceRequest]:
    """Return one VM of each class that a rule is for; of many classes the first."""
    found: dict[tuple[BoundRule, ...], PlaceRequest] = {}
    for request in requests:
        if len(found) >= _MOST_CLASSES:
            break
        if covers(rule, request):
            found.setdefault(world.terms_of(request).rules, request)
    return list(found.values())


def not_there_yet(world: WhatIf, rule: Rule) -> list[PlaceRequest]:
    """Return VMs that nobody has created yet, each for a rule and for another one's scope."""
    plain = new_vm(rule.scope)
    scopes = {other.scope: None for other in world.rules.rules if other.hard}
    both = (in_both(rule.scope, scope) for scope in scopes)
    found = {new_vm(scope): None for scope in both if scope is not None}
    found.pop(plain, None)
    return list(found)


def _contradiction(one: Demand, other: Demand) -> ConflictBody:
    if one.rule == other.rule:
        says = f"rule {one.rule!r} contradicts itself: {one.part} and {other.part}"
        return ConflictBody(
            kind="contradiction", rules=[one.rule], parts=[one.part, other.part], says=says
        )
    says = f"rules {one.rule!r} and {other.rule!r} contradict each other: {one.part}, {other.part}"
    return ConflictBody(
        kind="contradiction",
        rules=[one.rule, other.rule],
        parts=[one.part, other.part],
        says=says,
    )


def _without_hosts(
    world: WhatIf, about: Callable[[str], bool], requests: Sequence[PlaceRequest], steps: Steps
) -> Iterator[ConflictBody]:
    """Yield rules, and sets of rules, that no host passes for a class of VMs.

    A step is a rule on up to a thousand hosts, or a pair of rules there.
    """
    rows = world.fleet.present_rows()
    if not len(rows):
        return
    seen: set[tuple[BoundRule, ...]] = set()
    cost = 1 + len(rows) // 1000
    for request in requests:
        bound = [each for each in world.terms_of(request).rules if each.hard]
        kind = tuple(bound)
        if kind in seen or len(seen) >= _MOST_CLASSES or not any(about(each.name) for each in kind):
            continue
        seen.add(kind)
        if not steps.take(len(bound) * cost):
            return
        columns = world.question(request).rules
        passes = [(each, columns.rule(each, rows) == HOLDS) for each in bound]
        for each, hosts in passes:
            if about(each.name) and not hosts.any():
                says = f"none of {len(rows)} hosts passes rule {each.name!r} for {request.name!r}"
                yield ConflictBody(
                    kind="unsatisfied",
                    rules=[each.name],
                    parts=[each.text],
                    says=f"{says}: {each.text}",
                )
        passable = [(each, hosts) for each, hosts in passes if hosts.any()]
        if _all_pass(passable, len(rows)).any():
            continue
        pairs = False
        for one, other in _pairs(passable, about):
            if not steps.take(cost):
                return
            if not (one[1] & other[1]).any():
                pairs = True
                yield _no_host([one, other], len(rows), request)
        if not pairs and _all_pass([e for e in passable if not about(e[0].name)], len(rows)).any():
            together = _minimal(passable, len(rows), steps, cost)
            if together is None:
                return
            yield _no_host(together, len(rows), request)


def _pairs(
    passes: Sequence[Passed], about: Callable[[str], bool]
) -> Iterator[tuple[Passed, Passed]]:
    """Yield all pairs of which one is what this is about."""
    mine = [about(each.name) for each, _ in passes]
    asked = [at for at, own in enumerate(mine) if own]
    for at, one in enumerate(passes):
        others = range(at + 1, len(passes)) if mine[at] else (each for each in asked if each > at)
        for other in others:
            yield one, passes[other]


def _all_pass(passes: Sequence[Passed], count: int) -> BoolArray:
    """Return which hosts pass all of some rules."""
    found = np.ones(count, np.bool_)
    for _, hosts in passes:
        found &= hosts
    return found


def _minimal(passes: Sequence[Passed], count: int, steps: Steps, cost: int) -> list[Passed] | None:
    """Return rules that no host passes together, none of which could be left out.

    Rules are added until no host is left: the last one is needed, and what comes after it is not.
    Then the same with the needed ones first, until they are enough. None when it takes too long.
    """
    needed: list[Passed] = []
    rest = list(passes)
    while (left := _all_pass(needed, count)).any():
        for at, (_, hosts) in enumerate(rest):
            if not steps.take(cost):
                return None
            left &= hosts
            if not left.any():
                needed.append(rest[at])
                rest = rest[:at]
                break
    order = {each.name: at for at, (each, _) in enumerate(passes)}
    return sorted(needed, key=lambda each: order[each[0].name])


def _no_host(passes: Sequence[Passed], count: int, request: PlaceRequest) -> ConflictBody:
    """Return the conflict of rules of which each has hosts, and all together none."""
    names, parts = [each.name for each, _ in passes], [each.text for each, _ in passes]
    all_of = "both" if len(names) == 2 else "all of"
    told = ", ".join(map(repr, names[:-1]))
    says = f"none of {count} hosts passes {all_of} {told} and {names[-1]!r} for {request.name!r}"
    return ConflictBody(
        kind="no_host", rules=names, parts=parts, says=f"{says}: {', '.join(parts)}"
    )
