"""Try a policy on copies of the fleet, in a thread: its conflicts, and what it would do.

One trial at a time, since each copies the whole fleet. The same engine answers as for creates.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from roost.control.memory.oneatatime import OneAtATime
from roost.control.memory.roster import Roster
from roost.control.policies.recorded import Recorded, last_requests, spread_anew, under
from roost.control.policies.replaying import Changed, compare, take_out
from roost.control.rules.conflicts import conflicts_of, new_vm
from roost.control.rules.judging import placed_in, requests_of_placed, violation
from roost.control.vms.ruling import wrong_part
from roost.ledger.schema.rows import VMRow
from roost.ledger.store import Store
from roost.model.flow import PlaceRequest
from roost.model.policies import Bundle, choice_of, rule_id, rules_of
from roost.model.rules import RuleScope, RuleSet
from roost.placement.whatif import WhatIf
from roost.wire.constraints import ConflictBody, ViolationBody
from roost.wire.policies import MOST_NAMED, MovedBody, PolicyDryRunBody

_NOTHING = Bundle()
VMs = Sequence[tuple[VMRow, PlaceRequest]]


class Examined(NamedTuple):
    """What is wrong with a policy, and what is worth knowing of it."""

    conflicts: list[ConflictBody]
    notes: list[str]


class Trial:
    """Tries policies on copies of the fleet."""

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster
        self._long = OneAtATime("trials of policies")

    async def examine(self, policy: str, bundle: Bundle) -> Examined:
        """Return the conflicts of a policy as it would be."""
        async with self._long.turn():
            vms = await requests_of_placed(self._store, self._roster)
            world, of_policy = WhatIf.like(self._roster.engine), _rules_of(policy)

            def ask() -> Examined:
                world.set_rules(with_policy(world.rules, policy, bundle), world.clock)
                mine = [
                    new_vm(RuleScope(policy=policy)),
                    *(r for _, r in vms if r.policy == policy),
                ]
                notes = overcommit_notes(world, bundle)
                conflicts = conflicts_of(world, of_policy, mine)
                return Examined(conflicts.found, [*notes, *conflicts.notes()])

            return await asyncio.to_thread(ask)

    async def dry_run(
        self, policy: str, present: Bundle, bundle: Bundle, project: str | None, most: int
    ) -> PolicyDryRunBody:
        """Take past requests again as the policy is and as it would be, and judge today's VMs."""
        async with self._long.turn():
            vms = await requests_of_placed(self._store, self._roster)
            record = await self._store.read(
                lambda connection: last_requests(connection, self._roster.groups, most)
            )
            before = WhatIf.like(self._roster.engine)
            return await asyncio.to_thread(
                tried, before, vms, record, policy, bundle, project, present
            )


def _rules_of(policy: str) -> Callable[[str], bool]:
    """Return what says of a rule's name whether it is one of a policy."""
    mine = rule_id(policy, "")
    return lambda name: name.startswith(mine)


def with_policy(rules: RuleSet, policy: str, bundle: Bundle) -> RuleSet:
    """Return all rules with those of one policy replaced by what it would say."""
    mine = rule_id(policy, "")
    others = [rule for rule in rules.rules if not rule.name.startswith(mine)]
    choices = {**rules.choices, policy: choice_of(bundle)}
    return RuleSet((*others, *rules_of(policy, bundle)), rules.generation, choices)


def tried(
    before: WhatIf,
    vms: VMs,
    record: Sequence[Recorded],
    policy: str,
    bundle: Bundle,
    project: str | None,
    present: Bundle = _NOTHING,
) -> PolicyDryRunBody:
    """Return what a policy would do to a record of requests and to the VMs of a world."""
    rules, spread = with_policy(before.rules, policy, bundle), bundle.spread

    def as_is(request: PlaceRequest) -> PlaceRequest:
        return spread_anew(request, present.spread) if request.policy == policy else request

    def as_tried(request: PlaceRequest) -> PlaceRequest:
        if request.project == project:
            request = under(request, policy)
        return spread_anew(request, spread) if request.policy == policy else request

    now = WhatIf.like(before)
    now.set_rules(rules, before.clock)
    mine = [as_tried(request) for _, request in vms]
    plain = new_vm(RuleScope(project or "", policy=policy))
    mine = [plain, *(each for each in mine if each.policy == policy)]
    conflicts = conflicts_of(now, _rules_of(policy), mine)
    violated, violations = _violations(before, now, vms, as_tried)
    take_out(before, record)
    after = WhatIf.like(before)
    after.set_rules(rules, before.clock)
    changed = compare(before, after, record, as_is, as_tried)
    requests = [each.request for each in record if each.request is not None]
    affected = sum(policy == each.policy or project == each.project for each in requests)
    elsewhere = sum(bool(each.before and each.after) for each in changed)
    refused = sum(not each.after for each in changed)
    admitted = sum(not each.before for each in changed)
    return PolicyDryRunBody(
        replayed=len(requests),
        under=affected,
        elsewhere=elsewhere,
        refused=refused,
        admitted=admitted,
        requests=[_moved(each) for each in changed[:MOST_NAMED]],
        violated=violated,
        violations=violations,
        conflicts=conflicts.found,
        says=[
            *(each.says for each in conflicts.found[:5]),
            *conflicts.notes(),
            *_sentences(len(requests), affected, elsewhere, refused, admitted, violated),
        ],
    )


def _violations(
    before: WhatIf, now: WhatIf, vms: VMs, as_tried: Callable[[PlaceRequest], PlaceRequest]
) -> tuple[int, list[ViolationBody]]:
    """Return the VMs that hard rules would find in the wrong place and do not yet, with a count."""
    found: list[ViolationBody] = []
    total = 0
    for placed in placed_in(now, vms):
        tried_as = as_tried(placed.request)
        held = {each.name: each.text for each in before.terms_of(placed.request).rules}
        for bound in now.terms_of(tried_as).rules:
            if not bound.hard or held.get(bound.name) == bound.text:
                continue  # it says the same as before
            wrong = wrong_part(now, tried_as, bound)
            if wrong is None or _was_wrong(before, placed.request, bound.name):
                continue
            total += 1
            if len(found) < MOST_NAMED:
                found.append(violation(now, placed, bound.name, wrong, {}))
    return total, found


def _was_wrong(before: WhatIf, request: PlaceRequest, rule: str) -> bool:
    """Say whether a rule of this name finds a VM in the wrong place as it is."""
    bound = next((each for each in before.terms_of(request).rules if each.name == rule), None)
    return bound is not None and bound.hard and wrong_part(before, request, bound) is not None


def _moved(changed: Changed) -> MovedBody:
    request = changed.request
    return MovedBody(
        vm=changed.vm,
        name=request.name,
        project=request.project,
        before=changed.before or None,
        after=changed.after or None,
        why=changed.why,
    )


def _sentences(
    replayed: int, affected: int, elsewhere: int, refused: int, admitted: int, violated: int
) -> list[str]:
    said = [f"{affected} of the last {replayed} requests are under the policy"]
    if refused:
        said.append(f"{refused} requests would be refused")
    if elsewhere:
        said.append(f"{elsewhere} requests would be placed elsewhere")
    if admitted:
        said.append(f"{admitted} requests that are refused would get a host")
    if not (refused or elsewhere or admitted):
        said.append("every request would get the host that it gets without the change")
    if violated:
        said.append(f"{violated} VMs would be in the wrong place; they stay where they are")
    else:
        said.append("no VM would be newly in the wrong place")
    return said


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
