"""Hard rules that relax: for a VM that has waited so long, one turns soft, durably and said.

Since when a VM waits under such a rule, and that it is relaxed for it, are rows that only the
queue's process writes; whichever process gives the VM a host, the queue's or the one that has made
room for it, deletes them with that. So a placement under a relaxed rule is exact: the row is there
before it is decided, and the commit compares the rules' generation and its own lease. A rule that
was changed is waited for anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from roost.base.timestamps import timestamp
from roost.control.memory.roster import Roster
from roost.control.memory.rulebook import rule_of
from roost.control.vms.requests import request_of
from roost.ledger.schema.rows import Changes, ConstraintRow, RelaxationRow, VMRow
from roost.ledger.schema.tables import relaxations, vms
from roost.ledger.writes.transaction import Tx
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.placement.rules.binding import covers

#: Rows that one look changes, so that a long queue does not stop the process.
_PIECE = 500
_KINDS = {
    "begin": "vm.rule_wait_begun",
    "relax": "vm.rules_relaxed",
    "end": "vm.rule_wait_ended",
}


@dataclass(slots=True)
class Plan:
    """What is to be different: waits that begin, rules that relax, waits that end."""

    begin: list[RelaxationRow] = field(default_factory=list)
    relax: list[RelaxationRow] = field(default_factory=list)
    end: list[RelaxationRow] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.begin or self.relax or self.end)


def plan(
    waiting: Mapping[str, PlaceRequest],
    rules: Iterable[ConstraintRow],
    known: Mapping[str, Mapping[str, RelaxationRow]],
    now_ms: int,
) -> Plan:
    """Compare who waits under which rule that relaxes with what is known of it."""
    made, wanted = Plan(), set()
    for row in rules:
        assert row.relax_after_s is not None
        rule = rule_of(row)
        for vm, request in waiting.items():
            if not covers(rule, request):
                continue
            wanted.add((vm, row.id))
            has = known.get(vm, {}).get(row.id)
            if has is None or has.version != row.version:
                made.begin.append(
                    RelaxationRow(vm=vm, constraint_id=row.id, version=row.version, since_ms=now_ms)
                )
            elif has.relaxed_ms is None and now_ms - has.since_ms >= 1000 * row.relax_after_s:
                made.relax.append(has)
    made.end = [
        has
        for vm, found in known.items()
        for rule_id, has in found.items()
        if (vm, rule_id) not in wanted
    ]
    made.begin, made.relax, made.end = made.begin[:_PIECE], made.relax[:_PIECE], made.end[:_PIECE]
    return made


class Planning:
    """Plans for the VMs that wait; compares nothing again while nothing can be different."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._seen: tuple[int, int] | None = None  # rules and VMs of which nothing was to be done
        self._due_ms: int | None = None  # when one of them has waited long enough

    def plan(self, now_ms: int) -> Plan:
        """Return what is to be different for the VMs that wait now."""
        roster, book = self._roster, self._roster.rulebook
        seen = (book.generation, roster.wait_changes)
        if seen == self._seen and (self._due_ms is None or now_ms < self._due_ms):
            return Plan()
        rules = book.relaxing()
        made = Plan()
        if rules or book.relaxations:
            unreadable = roster.specs.unreadable
            waits = [vm for vm in roster.waiting.values() if rules and vm.id not in unreadable]
            waiting = {vm.id: request_of(vm, roster) for vm in waits}
            made = plan(waiting, rules, book.relaxations, now_ms)
        self._seen = None if made else seen
        self._due_ms = _next_due(rules, book.relaxations)
        return made


def _next_due(
    rules: Iterable[ConstraintRow], known: Mapping[str, Mapping[str, RelaxationRow]]
) -> int | None:
    """Return when the next rule relaxes for somebody; None: as things are, never."""
    after = {row.id: 1000 * (row.relax_after_s or 0) for row in rules}
    moments = (
        row.since_ms + after[row.constraint_id]
        for found in known.values()
        for row in found.values()
        if row.relaxed_ms is None and row.constraint_id in after
    )
    return min(moments, default=None)


def carry_out(tx: Tx, made: Plan, now_ms: int) -> None:
    """Write what was planned, with an event for each VM and kind of change."""
    for vm, rows in _by_vm(made.begin).items():
        found = tx.find(vms, lock=True, id=vm)
        if found is None or found["pending"] is None:
            continue  # it waits no more
        for row in rows:
            tx.remove(relaxations, vm=vm, constraint_id=row.constraint_id)
            tx.insert(relaxations, {name: getattr(row, name) for name in row.__struct_fields__})
        _say(tx, "begin", vm, found["project"], {_key(row): row for row in rows})
    for vm, rows in _by_vm(made.relax).items():
        project = _project(tx, vm)
        changed = {}
        for row in rows:
            key = {"vm": vm, "constraint_id": row.constraint_id, "version": row.version}
            if (now := tx.change(relaxations, key, relaxed_ms=now_ms)) is not None:
                changed[_key(row)] = RelaxationRow(**now)
        if changed:
            names = ", ".join(each.constraint_id for each in rows)
            _say(tx, "relax", vm, project, changed, f"{names}: soft for it from now on")
    for vm, rows in _by_vm(made.end).items():
        gone = [r for r in rows if tx.remove(relaxations, vm=vm, constraint_id=r.constraint_id)]
        if gone:
            _say(tx, "end", vm, _project(tx, vm), dict.fromkeys(map(_key, gone)))


def forget(tx: Tx, vm: str, changes: Changes) -> None:
    """Delete what was noted about a VM's waiting, in the transaction that gives it a host."""
    for row in tx.find_all(relaxations, vm=vm):
        tx.remove(relaxations, vm=vm, constraint_id=row["constraint_id"])
        changes.setdefault("relaxations", {})[f"{vm}|{row['constraint_id']}"] = None


def said_of(placement: Placement) -> str:
    """Say which rules were relaxed for a placement, to be put behind where it is; or nothing."""
    return f", with {', '.join(placement.relaxed)} relaxed" if placement.relaxed else ""


def with_relaxed(roster: Roster, vm: VMRow, found: Rejection) -> Rejection:
    """Return a rejection that says which rules are relaxed for the VM, or when they will be."""
    said = []
    for row in roster.rulebook.relaxations.get(vm.id, {}).values():
        rule = roster.rulebook.rows.get(row.constraint_id)
        if rule is None or rule.relax_after_s is None or rule.version != row.version:
            continue
        if row.relaxed_ms is not None:
            said.append(f"rule {rule.id!r} is relaxed for it since {timestamp(row.relaxed_ms)}")
        elif any(reason.rule == rule.id for reason in found.reasons):
            when = timestamp(row.since_ms + 1000 * rule.relax_after_s)
            said.append(f"rule {rule.id!r} relaxes for it at {when}")
    return replace(found, message="; ".join((found.message, *said))) if said else found


def _by_vm(rows: Iterable[RelaxationRow]) -> dict[str, list[RelaxationRow]]:
    found: dict[str, list[RelaxationRow]] = {}
    for row in sorted(rows, key=lambda each: (each.vm, each.constraint_id)):
        found.setdefault(row.vm, []).append(row)
    return found


def _key(row: RelaxationRow) -> str:
    return f"{row.vm}|{row.constraint_id}"


def _project(tx: Tx, vm: str) -> str | None:
    found = tx.find(vms, id=vm)
    return None if found is None else found["project"]


def _say(
    tx: Tx, what: str, vm: str, project: str | None, changed: Mapping[str, object], note: str = ""
) -> None:
    changes: Changes = {"relaxations": dict(changed)}
    tx.event(_KINDS[what], f"vm/{vm}", changes, project=project, note=note)
