"""Judge the present fleet by rules: those that hold (check), or one that is only tried (dry run).

The same engine on a copy of the fleet answers both, in a thread: nothing else waits. A VM is judged
where it is as if it were placed there now, so rules about what is free see the host without it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from roost.base.timestamps import timestamp
from roost.control.memory.oneatatime import OneAtATime
from roost.control.memory.roster import Roster
from roost.control.rules.conflicts import (
    Conflicts,
    classes_under,
    conflicts_of,
    new_vm,
    not_there_yet,
)
from roost.control.rules.repairing import MOST_REPAIRED, Repairs
from roost.control.vms.lookup import vm_row
from roost.control.vms.requests import request_of
from roost.control.vms.ruling import wrong_part
from roost.ledger.claims.capacity import RUN, claim_id
from roost.ledger.schema.rows import ViolationRow, VMRow
from roost.ledger.schema.tables import violations, vms
from roost.ledger.store import Store
from roost.ledger.upkeep.fold import Pages
from roost.ledger.writes.statements import find_rows
from roost.model.constraints import BoundRule
from roost.model.flow import PlaceRequest
from roost.model.rules import Rule, RuleSet
from roost.parts.access import Principal
from roost.placement.rules.binding import covers
from roost.placement.rules.columns import HOLDS
from roost.placement.whatif import WhatIf
from roost.wire.constraints import (
    MOST_NAMED,
    CheckConstraints,
    ClassBody,
    ConstraintDryRunBody,
    ViolationBody,
    ViolationsBody,
)

_PLACED = Pages(list(vms.c), [vms.c.id], vms.c.host.is_not(None), vms.c.desired != "absent")
#: A VM and the rule that it breaks.
Key = tuple[str, str]
#: Classes of VMs that one answer tells.
_MOST_CLASSES = 100
#: What is left of a rule for VMs of which it asks nothing.
_ANYWHERE = "true"


@dataclass(frozen=True, slots=True)
class Placed:
    """A VM that has a host, as it asks for one now."""

    vm: VMRow
    request: PlaceRequest
    row: int  # of its host


class Judge:
    """Asks rules about the VMs that have a host."""

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster
        self._long = OneAtATime("questions about rules")

    async def vm_named(self, ref: str | None, project: str | None, who: Principal) -> str:
        """Return the key in the fleet of the VM that a rule is for, or nothing."""
        if ref is None:
            return ""
        vm = await self._store.read(lambda connection: vm_row(connection, ref, project, who))
        return claim_id(vm.id, RUN)

    async def check(self, asked: CheckConstraints, who: Principal) -> ViolationsBody:
        """Say which VMs the hard rules that hold find in the wrong place."""
        project = who.project or asked.project
        since = {key: row.changed_ms for key, row in self._roster.rulebook.rows.items()}
        async with self._long.turn():
            requests = await requests_of_placed(self._store, self._roster, project)
            world = WhatIf.like(self._roster.engine)
            found = await asyncio.to_thread(
                _check, world, requests, asked.rule, since, repairs=MOST_REPAIRED
            )
        kept = await self._store.read(kept_violations) if found.total else {}
        for each in found.violations:
            row, entry = kept.get((each.vm, each.rule)), self._roster.entry(each.host)
            if row is not None and entry is not None and row.host == entry.number:
                each.since = timestamp(row.since_ms)
        return found

    async def violations(self, most: int) -> list[ViolationBody]:
        """Return the VMs of all projects that are in the wrong place, so many at most."""
        async with self._long.turn(refusable=False):
            requests = await requests_of_placed(self._store, self._roster)
            world = WhatIf.like(self._roster.engine)
            found = await asyncio.to_thread(_check, world, requests, None, {}, most)
        return found.violations

    async def dry_run(
        self, rule: Rule, project: str | None, who: Principal, *, hard: bool = True
    ) -> ConstraintDryRunBody:
        """Say what one rule would say of the fleet as it is, and what it does not go with."""
        async with self._long.turn():
            requests = await requests_of_placed(self._store, self._roster, who.project or project)
            world = WhatIf.like(self._roster.engine)
            return await asyncio.to_thread(_dry_run, world, requests, rule, hard)


def kept_violations(connection: Connection) -> dict[Key, ViolationRow]:
    """Return the violations that are kept, by VM and rule."""
    rows = [ViolationRow(**row) for row in find_rows(connection, violations, {})]
    return {(row.vm, row.constraint_id): row for row in rows}


async def requests_of_placed(
    store: Store, roster: Roster, project: str | None = None
) -> list[tuple[VMRow, PlaceRequest]]:
    """Return what the VMs that have a host ask for now; all of them, or those of a project."""

    def question(connection: Connection) -> list[tuple[VMRow, PlaceRequest]]:
        found = []
        for page in _PLACED.read(connection):
            rows = [VMRow(**row._asdict()) for row in page]
            if project is not None:
                rows = [row for row in rows if row.project == project]
            specs = roster.specs.read(connection, rows)
            found += [
                (row, request_of(row, roster, spec))
                for row in rows
                if (spec := specs.get(row.id)) is not None
            ]
        return found

    return await store.read(question)


def _check(
    world: WhatIf,
    requests: Sequence[tuple[VMRow, PlaceRequest]],
    only: str | None,
    since: dict[str, int],
    most: int = MOST_NAMED,
    repairs: int = 0,
) -> ViolationsBody:
    found: list[ViolationBody] = []
    total = 0
    repairer = Repairs(world, requests)
    for placed in placed_in(world, requests):
        terms = world.terms_of(placed.request)
        for bound in terms.rules:
            if not bound.hard or only not in (None, bound.name):
                continue
            wrong = wrong_part(world, placed.request, bound)
            if wrong is None:
                continue
            total += 1
            if len(found) < most:
                found.append(violation(world, placed, bound.name, wrong, since))
                if len(found) <= repairs:
                    repairer.add_to(found[-1], (placed.vm, placed.request), bound)
    return ViolationsBody(total=total, violations=found, repaired=min(len(found), repairs))


def _dry_run(
    world: WhatIf, requests: Sequence[tuple[VMRow, PlaceRequest]], rule: Rule, hard: bool
) -> ConstraintDryRunBody:
    others = world.rules
    world.set_rules(RuleSet((rule,), others.generation), world.clock)
    rows = world.fleet.present_rows()
    members: dict[str, list[str]] = defaultdict(list)
    passing: dict[str, int] = {}
    wrongly: list[ViolationBody] = []
    violated = count = 0

    def judge_class(request: PlaceRequest) -> tuple[str, BoundRule | None]:
        """Return what is left of the rule for a VM; count the hosts that pass, once."""
        terms = world.terms_of(request)
        bound = next((each for each in terms.rules if each.name == rule.name), None)
        asks = bound.text if bound is not None else _ANYWHERE
        if asks not in passing:
            columns = world.question(request).rules
            whole = len(rows) if bound is None else (columns.rule(bound, rows) == HOLDS).sum()
            passing[asks] = int(whole)
        return asks, bound

    for placed in placed_in(world, requests):
        if not covers(rule, placed.request):
            continue
        count += 1
        asks, bound = judge_class(placed.request)
        members[asks].append(placed.vm.name)
        wrong = wrong_part(world, placed.request, bound) if bound is not None else None
        if wrong is not None:
            violated += 1
            if len(wrongly) < MOST_NAMED:
                wrongly.append(violation(world, placed, rule.name, wrong, {}))
    if not rule.scope.vm:
        judge_class(new_vm(rule.scope))
    classes = [
        ClassBody(
            asks=asks,
            vms=len(members[asks]),
            example=members[asks][0] if members[asks] else "",
            hosts=hosts,
        )
        for asks, hosts in passing.items()
    ]
    classes.sort(key=lambda each: (each.hosts, -each.vms))
    shut_out = [each for each in classes if not each.hosts] if len(rows) else []
    binding, conflicts = Conflicts([]), Conflicts([])
    if hard:
        beside = tuple(each for each in others.rules if each.name != rule.name)
        world.set_rules(replace(others, rules=(*beside, rule)), world.clock)
        binding, conflicts = _conflicts(world, rule, [request for _, request in requests])
    return ConstraintDryRunBody(
        hosts=len(rows),
        vms=count,
        classes=classes[:_MOST_CLASSES],
        violated=violated,
        violations=wrongly,
        locks_out=hard and bool(shut_out or binding.found),
        says=[
            *_sentences(len(rows), shut_out),
            *(each.says for each in conflicts.found[:5]),
            *conflicts.notes("the rules"),
            *_who_moves(count, violated, hard),
        ],
        conflicts=conflicts.found,
    )


def _conflicts(
    world: WhatIf, rule: Rule, requests: Sequence[PlaceRequest]
) -> tuple[Conflicts, Conflicts]:
    """Return a rule's conflicts with others: for VMs that it is for now, and for all there may be.

    Now are the VMs that have a host, and one that is as plain as the rule's scope allows; there may
    also be one that another rule is for, too. What the rule alone refuses is told of its classes.
    """

    def found(vms: Sequence[PlaceRequest]) -> Conflicts:
        some = conflicts_of(world, lambda name: name == rule.name, vms)
        return some._replace(found=[e for e in some.found if e.kind != "unsatisfied"])

    new = [] if rule.scope.vm else [new_vm(rule.scope)]
    binding = found(classes_under(world, rule, [*new, *requests]))
    known = {frozenset(each.rules) for each in binding.found}
    more = found(not_there_yet(world, rule))
    new_ones = [each for each in more.found if frozenset(each.rules) not in known]
    return binding, Conflicts([*binding.found, *new_ones], binding.whole and more.whole)


def _sentences(hosts: int, shut_out: Sequence[ClassBody]) -> list[str]:
    said = []
    for each in shut_out[:5]:
        whom = "a VM that is new"
        if each.vms:
            more = f" and {each.vms - 1} VMs like it" if each.vms > 1 else ""
            whom = f"VM {each.example!r}{more}"
        said.append(f"none of {hosts} hosts passes for {whom}: {each.asks}")
    return said


def _who_moves(count: int, violated: int, hard: bool) -> list[str]:
    if not count:
        return ["it is for no VM that has a host now"]
    if violated:
        stay = "; they stay where they are" if hard else ""
        return [f"{violated} of {count} VMs would be in the wrong place{stay}"]
    return ["every VM that it is for is where it may be"]


def placed_in(world: WhatIf, requests: Iterable[tuple[VMRow, PlaceRequest]]) -> Iterable[Placed]:
    """Yield the VMs that have their place in this world, too."""
    columns = world.fleet.vms
    for vm, request in requests:
        number = columns.numbers.get(request.key)
        if number is not None:
            yield Placed(vm, request, int(columns.host[number]))


def violation(
    world: WhatIf, placed: Placed, rule: str, part: str, since: dict[str, int]
) -> ViolationBody:
    """Return a VM in the wrong place as users see it."""
    vm = placed.vm
    return ViolationBody(
        vm=vm.id,
        name=vm.name,
        project=vm.project,
        host=world.fleet.hosts.spec(placed.row).name,
        rule=rule,
        part=part,
        rule_since=timestamp(since[rule]) if rule in since else "",
    )
