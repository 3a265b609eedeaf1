"""The claim path: many creates in one transaction, each kept or turned away by itself.

A proposal is a VM that the engine has placed in memory. The transaction compares every value that
the placement depended on in the statement that takes it: amounts and quotas by value, host shape,
group membership, label rules and constraints by generation. A proposal that lost is `STALE` and is
placed anew by whoever made it; the others of the batch are kept. Rows are locked in one order
everywhere: vms, hosts, host counters, projects, label rules, groups, and the event counter, which
has the constraints' generation, last.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from roost.ledger.claims.capacity import ProjectUse, Promised
from roost.ledger.schema.amounts import Amounts
from roost.ledger.schema.rows import Changes, ClaimRow, Event, SpecRow, VMRow
from roost.model.vm import NewSpec

_encode = msgspec.json.Encoder().encode

#: The version of the spec that a create writes.
FIRST = 1


class Verdict(Enum):
    """The outcome of a proposal: kept, or why it was turned away."""

    KEPT = "kept"
    STALE = "stale"  # a host, group or label rule has moved on: place it again
    NAME_TAKEN = "name_taken"
    NO_PROJECT = "no_project"
    QUOTA = "quota"
    REPLAYED = "replayed"  # the idempotency key was used for the same body
    KEY_REUSED = "key_reused"  # ... for another body


@dataclass(slots=True)
class Proposal:
    """One VM to create, with everything that its placement depended on."""

    vm: VMRow
    spec: NewSpec
    claim: ClaimRow | None = None  # None: it waits in the queue
    host_generation: int = 0
    counters: tuple[tuple[str, int], ...] = ()
    groups: tuple[tuple[str, int], ...] = ()  # (id, the generation that was seen)
    rules: int | None = None  # generation of the label rules; None: the VM has no labels
    constraints: int | None = None  # generation of the constraints; None: it is not placed
    answer: str = ""  # of the decision, JSON; empty: not recorded
    key: tuple[str, str, str] | None = None  # idempotency scope, key, digest of the body
    #: What its host has promised once all of the batch is kept; None: no rule has read it.
    host_after: Promised | None = None
    #: The same of its project.
    project_after: ProjectUse | None = None

    @property
    def reads_amounts(self) -> bool:
        """Say whether a rule has read what its host or its project has promised."""
        return self.host_after is not None or self.project_after is not None


@dataclass(slots=True)
class Outcome:
    """The verdict on a proposal, and what the caller needs to know beside it."""

    verdict: Verdict
    detail: str = ""  # the answer of a replay; what was stale
    quota: dict[str, Any] = field(default_factory=dict)


KEPT = Outcome(Verdict.KEPT)


class NotAll(Exception):
    """Some of a batch that must stand or fall together were turned away."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__("not all were kept")
        self.outcomes = outcomes


def refuse_some(outcomes: list[Outcome]) -> None:
    """Leave the transaction unless every proposal was kept."""
    if any(outcome is not KEPT for outcome in outcomes):
        raise NotAll(outcomes)


def separable(proposals: Sequence[Proposal]) -> bool:
    """Say whether a batch may be tried as a whole: counters, groups and holds are asked singly."""
    return len(_constraints_seen(proposals)) <= 1 and all(
        not p.counters
        and not p.groups
        and p.rules is None
        and not p.reads_amounts
        and not is_special(p)
        for p in proposals
    )


def is_special(proposal: Proposal) -> bool:
    """Say whether a proposal's claim ends or draws on a hold: its host is settled with it."""
    return proposal.claim is not None and proposal.claim.is_special


def coming_to(host: int, kept: Iterable[Proposal]) -> list[ClaimRow]:
    """Return the claims of proposals that end or draw on a hold on a host."""
    return [p.claim for p in kept if p.claim is not None and p.claim.host == host and is_special(p)]


def charging_counters(proposals: Sequence[Proposal], alive: Iterable[int]) -> list[int]:
    """Return who asks for counters, those first whose claims end or draw on a hold.

    Their hosts hold less already, as if they had what they draw: it is not for others before them.
    """
    asking = [index for index in alive if proposals[index].counters]
    return sorted(asking, key=lambda index: not is_special(proposals[index]))


def special_hosts(proposals: Sequence[Proposal], alive: Iterable[int]) -> list[int]:
    """Return the hosts that are settled with their claims, in ascending order."""
    found = (proposals[index].claim for index in alive if is_special(proposals[index]))
    return sorted({claim.host for claim in found if claim is not None})


def constraints_seen(proposals: Sequence[Proposal]) -> int | None:
    """Return the generation of constraints that a separable batch was placed under."""
    return next(iter(_constraints_seen(proposals)), None)


def _constraints_seen(proposals: Sequence[Proposal]) -> set[int]:
    return {p.constraints for p in proposals if p.constraints is not None}


#: No host ever has it.
NO_GENERATION = -1


@dataclass(slots=True)
class HostCharge:
    """What a batch asks of one host together."""

    generation: int
    proposals: list[int] = field(default_factory=list)
    claims: list[ClaimRow] = field(default_factory=list)

    def row(self, host: int) -> tuple[int, ...]:
        """Return the charge as a row of `CHARGE_HOSTS`."""
        claims = self.claims
        if len(claims) == 1:
            return (host, self.generation, *claims[0].amounts, 1)
        amounts = Amounts.total([claim.amounts for claim in claims])
        return (host, self.generation, *amounts, len(claims))


def charges(proposals: Sequence[Proposal], alive: Iterable[int]) -> dict[int, HostCharge]:
    """Sum up what the proposals ask of each host, in ascending order of hosts."""
    found: dict[int, HostCharge] = {}
    for index in alive:
        proposal = proposals[index]
        claim = proposal.claim
        if claim is None:
            continue
        charge = found.get(claim.host)
        if charge is None:
            charge = found[claim.host] = HostCharge(proposal.host_generation)
        elif charge.generation != proposal.host_generation:
            charge.generation = NO_GENERATION  # they saw different hosts: one after the other
        charge.proposals.append(index)
        charge.claims.append(claim)
    return dict(sorted(found.items()))


def host_row(proposal: Proposal) -> tuple[int, ...]:
    """Return what one proposal asks of its host, as a row of `CHARGE_HOSTS`."""
    assert proposal.claim is not None
    return HostCharge(proposal.host_generation, claims=[proposal.claim]).row(proposal.claim.host)


def project_row(
    project: str, proposals: Sequence[Proposal], asking: Sequence[int]
) -> tuple[str | int, ...]:
    """Return what proposals ask of a project together, as a row of `CHARGE_PROJECTS`."""
    amounts = Amounts.total([proposals[index].vm.amounts for index in asking])
    return (project, *amounts, len(asking))


def quota_charges(proposals: Sequence[Proposal], alive: Iterable[int]) -> dict[str, list[int]]:
    """Return the proposals of each project, in ascending order of projects."""
    found: dict[str, list[int]] = defaultdict(list)
    for index in alive:
        found[proposals[index].vm.project].append(index)
    return dict(sorted(found.items()))


def group_charges(proposals: Sequence[Proposal]) -> dict[str, list[int]]:
    """Return the proposals that join each group, turned away or not, in ascending order.

    A VM that waits in the queue is a member already but is nowhere, so it depends on nothing.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for index, proposal in enumerate(proposals):
        if proposal.groups and proposal.claim is not None:
            for group, _ in proposal.groups:
                found[group].append(index)
    return dict(sorted(found.items()))


def joined_groups(proposals: Sequence[Proposal]) -> list[str]:
    """Return the groups that anybody would be in, also who waits, in ascending order."""
    return sorted({group for proposal in proposals for group, _ in proposal.groups})


def outpaced(
    proposals: Sequence[Proposal],
    alive: Iterable[int],
    asking: dict[str, list[int]],
    current: dict[str, int],
    spread: Iterable[str],
) -> list[int]:
    """Return those of the living whose groups are not as they saw them, or are gone.

    In a hard spread group the places of later members rest on those of earlier ones in the same
    batch: when one of them is turned away, the others must be placed again too.
    """
    living = set(alive)
    fallen = [
        index
        for index in sorted(living)
        if any(
            group not in current or (current[group] != seen and proposals[index].claim is not None)
            for group, seen in proposals[index].groups
        )
    ]
    living.difference_update(fallen)
    watched = [asking[group] for group in spread if group in asking]
    moved = True
    while moved:
        moved = False
        for members in watched:
            left = [index for index in members if index in living]
            if left and len(left) < len(members):
                living.difference_update(left)
                fallen += left
                moved = True
    return fallen


def reconsidered(proposals: Sequence[Proposal], outcomes: list[Outcome]) -> list[Outcome]:
    """Make stale the refusals that were caused by a proposal of the same batch which then lost.

    A name, or a key, that was taken only for a moment is no reason: whoever wanted it tries again.
    """
    if all(outcome is KEPT for outcome in outcomes):
        return outcomes
    both = list(zip((proposal.vm for proposal in proposals), outcomes, strict=True))
    lost = {vm.id for vm, outcome in both if outcome is not KEPT}
    passing = (Verdict.STALE, Verdict.QUOTA, Verdict.NO_PROJECT)
    names = {(vm.project, vm.name) for vm, outcome in both if outcome.verdict in passing}
    names -= {(vm.project, vm.name) for vm, outcome in both if outcome is KEPT}
    found = []
    for vm, outcome in both:
        if outcome.verdict in (Verdict.REPLAYED, Verdict.KEY_REUSED) and outcome.detail in lost:
            found.append(Outcome(Verdict.STALE, "idempotency key"))
        elif outcome.verdict is Verdict.NAME_TAKEN and (vm.project, vm.name) in names:
            found.append(Outcome(Verdict.STALE, "name"))
        else:
            found.append(outcome)
    return found


def created_events(
    proposals: Sequence[Proposal],
    outcomes: Sequence[Outcome],
    generations: dict[str, int],
    at_ms: int,
    actors: Sequence[str],
    tx: str,
) -> list[Event]:
    """Return one event for each VM that was kept."""
    events = []
    for proposal, outcome, actor in zip(proposals, outcomes, actors, strict=True):
        if outcome is not KEPT:
            continue
        vm, claim = proposal.vm, proposal.claim
        spec = SpecRow(proposal.spec.text)
        changes: Changes = {"vms": {vm.id: vm}, "vm_specs": {f"{vm.id}|{FIRST}": spec}}
        if claim is not None:
            changes["claims"] = {claim.id: claim}
        if proposal.groups:
            changes["members"] = {f"{group}|{vm.id}": {} for group, _ in proposal.groups}
            changes["group_generations"] = {
                group: generations[group] for group, _ in proposal.groups if group in generations
            }
        events.append(
            Event(
                seq=0,
                at_ms=at_ms,
                actor=actor,
                kind="vm.created" if claim is not None else "vm.queued",
                subject=f"vm/{vm.id}",
                project=vm.project,
                changes=_encode(changes).decode(),
                note="",
                tx=tx,
                rows=changes,
                created={vm.id: proposal.spec},
            )
        )
    return events


def spec_rows(kept: Iterable[Proposal]) -> list[tuple[str, int, str]]:
    """Return the rows of vm_specs that creates write."""
    return [(p.vm.id, FIRST, p.spec.text) for p in kept]


def user_data_rows(kept: Iterable[Proposal]) -> list[tuple[str, str]]:
    """Return the rows of vm_user_data that creates write."""
    return [(p.vm.id, p.spec.user_data) for p in kept if p.spec.user_data]
