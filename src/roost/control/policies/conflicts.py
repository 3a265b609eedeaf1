"""Conflicts of a policy: rules that contradict each other, or that no host passes now.

Asked on a copy of the fleet of a VM that is new, as plain as can be, and of the VMs that are there
under the policy: each class of them by itself, since rules may read the VM.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from roost.base.units import GIB
from roost.control.policies.contradicting import MOST_STEPS, Steps, contradictions
from roost.control.policies.demands import Demand
from roost.fleet.layout import BoolArray
from roost.model.constraints import BoundRule
from roost.model.flow import PlaceRequest
from roost.model.policies import Bundle, rule_id
from roost.model.resources import Demand as Amounts
from roost.placement.rules.binding import covers
from roost.placement.rules.columns import HOLDS
from roost.placement.whatif import WhatIf
from roost.wire.policies import ConflictBody

#: Conflicts that one answer names.
MOST_TOLD = 50
#: Classes of VMs that are looked at.
_MOST_CLASSES = 100


class Conflicts(NamedTuple):
    """Conflicts that were found, and whether all was compared that might be one."""

    found: list[ConflictBody]
    whole: bool = True

    def notes(self) -> list[str]:
        """Say what is not known of the conflicts of a policy."""
        if self.whole:
            return []
        return ["its rules were not all compared, they say too much: there may be more conflicts"]


def new_vm(policy: str, project: str | None) -> PlaceRequest:
    """Return a VM that nobody has created yet, as plain as can be."""
    demand = Amounts(1000, GIB, 0)
    return PlaceRequest("new-vm", demand, project=project or "default", policy=policy)


def conflicts_of(world: WhatIf, policy: str, requests: Iterable[PlaceRequest]) -> Conflicts:
    """Return the first conflicts of a policy that the world's rules hold already."""
    requests = list(requests)
    hard = [rule for rule in world.rules.rules if rule.hard]
    bind = [rule for rule in hard if any(covers(rule, request) for request in requests)]
    mine = rule_id(policy, "")
    steps = Steps(MOST_STEPS)
    opposed = contradictions(bind, lambda name: name.startswith(mine), steps)
    found = [_contradiction(one, other) for one, other in islice(opposed, MOST_TOLD)]
    known = {frozenset(each.rules) for each in found}
    shut_out = _without_hosts(world, mine, requests, steps)
    while len(found) < MOST_TOLD and (each := next(shut_out, None)) is not None:
        if frozenset(each.rules) not in known:
            known.add(frozenset(each.rules))
            found.append(each)
    return Conflicts(found, not steps.over)


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
    world: WhatIf, mine: str, requests: Sequence[PlaceRequest], steps: Steps
) -> Iterator[ConflictBody]:
    """Yield rules, and pairs of rules, that no host passes for a class of VMs.

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
        if kind in seen or len(seen) >= _MOST_CLASSES:
            continue
        seen.add(kind)
        if not steps.take(len(bound) * cost):
            return
        columns = world.question(request).rules
        passes: list[tuple[BoundRule, BoolArray]] = [
            (each, columns.rule(each, rows) == HOLDS) for each in bound
        ]
        count = len(rows)
        for each, hosts in passes:
            if each.name.startswith(mine) and not hosts.any():
                says = f"none of {count} hosts passes rule {each.name!r} for {request.name!r}"
                yield ConflictBody(
                    kind="unsatisfied",
                    rules=[each.name],
                    parts=[each.text],
                    says=f"{says}: {each.text}",
                )
        for at, (one, hosts) in enumerate(passes):
            for other, others in passes[at + 1 :]:
                if not (one.name.startswith(mine) or other.name.startswith(mine)):
                    continue
                if not steps.take(cost):
                    return
                if hosts.any() and others.any() and not (hosts & others).any():
                    says = f"none of {count} hosts passes both {one.name!r} and {other.name!r}"
                    yield ConflictBody(
                        kind="no_host",
                        rules=[one.name, other.name],
                        parts=[one.text, other.text],
                        says=f"{says} for {request.name!r}: {one.text}, {other.text}",
                    )


def overcommit_notes(world: WhatIf, bundle: Bundle) -> list[str]:
    """Say where a policy's bound of overcommitment is above what hosts allow themselves."""
    rows, hosts = world.fleet.present_rows(), world.fleet.hosts
    notes = []
    for resource, ratio in sorted(bundle.overcommit.items()):
        column = hosts.resources.find(resource)
        lower = int((hosts.ratio[rows, column] * 100 < ratio * 1000).sum())
        if lower:
            notes.append(
                f"{lower} of {len(rows)} hosts overcommit {resource} less than {ratio / 100:g}: "
                f"their own bound holds there"
            )
    return notes
