"""The constraints of the ledger as the engine takes them: a set of rules with a generation.

Loaded with the roster and kept current by events, so that fleet and rules are of one view. A rule
that this process cannot read (a later release wrote it, or a resource it names is gone) lets no VM
of its scope be placed until somebody looks: what is unknown never looks like permission. A kind
that is unknown counts as hard, a scope that cannot be read as all VMs of the rule's project. Only a
rule that is known to be soft refuses nobody: one that cannot be read prefers no host.
"""

import logging
import re
from collections.abc import Mapping

import msgspec
from sqlalchemy import Connection

from roost.base.errors import InvalidRequest, RoostError
from roost.ledger.capacity import RUN, claim_id
from roost.ledger.changes import CONSTRAINTS, CONSTRAINTS_GENERATION, Changes
from roost.ledger.rows import ConstraintRow
from roost.ledger.statements import find_rows
from roost.ledger.tables import constraints
from roost.ledger.transaction import constraints_generation
from roost.model.rules import Rule, RuleScope, RuleSet
from roost.placement.engine import Engine

log = logging.getLogger("roost.rules")

_selector = msgspec.json.Decoder(dict[str, str])
#: What stands for a rule that cannot be read.
NEVER = "false"
HARD, SOFT = "hard", "soft"
#: What reading a rule that a later release wrote may raise.
_UNREADABLE = (RoostError, msgspec.MsgspecError)
_TIME = re.compile(r"\b(hour|minute|weekday)\b")


class Rulebook:
    """All constraints that this process has heard of, and their generation."""

    def __init__(self) -> None:
        self.rows: dict[str, ConstraintRow] = {}
        self.generation = 0
        self.unreadable: dict[str, str] = {}  # ids, with what is wrong

    def load(self, connection: Connection) -> None:
        """Read all constraints from one view."""
        self.rows = {
            row["id"]: ConstraintRow(**row) for row in find_rows(connection, constraints, {})
        }
        self.generation = constraints_generation(connection)

    def follow(self, changes: Changes) -> bool:
        """Apply one event; say whether anything is different."""
        generation = changes.value(CONSTRAINTS_GENERATION)
        if generation is None:
            return False
        self.generation = generation
        for key, row in changes.of(CONSTRAINTS).items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        return True

    def bind(self, engine: Engine, clock: Mapping[str, int] | None = None) -> None:
        """Give an engine the rules that hold."""
        self.unreadable = {}
        rows = self._holding()
        try:
            rules = [rule_of(row) for row in rows]
            engine.set_rules(RuleSet(tuple(rules), self.generation), clock)
        except _UNREADABLE:
            readable = [self._readable(engine, row, clock) for row in rows]
            engine.set_rules(RuleSet(tuple(readable), self.generation), clock)

    @property
    def reads_time(self) -> bool:
        """Say whether some rule that holds may read the time; binding one in vain hurts nobody."""
        return any(_TIME.search(row.expression) for row in self._holding())

    def _holding(self) -> list[ConstraintRow]:
        return [row for _, row in sorted(self.rows.items()) if row.enabled]

    def _readable(
        self, engine: Engine, row: ConstraintRow, clock: Mapping[str, int] | None
    ) -> Rule:
        """Return a rule, or what stands for it when it cannot be read."""
        try:
            rule = rule_of(row)
            engine.set_rules(RuleSet((rule,), self.generation), clock)
        except _UNREADABLE as error:
            log.error("rule %s cannot be read: %s", row.id, error)
            soft = row.kind == SOFT
            meanwhile = "it prefers no host" if soft else "nobody passes it"
            self.unreadable[row.id] = f"{meanwhile}: {error}"
            return Rule(row.id, NEVER, 0 if soft else None, scope=_scope_as_read(row))
        return rule


def rule_of(row: ConstraintRow) -> Rule:
    """Return a constraint as the engine takes it; raises what `_UNREADABLE` lists."""
    if row.kind not in (HARD, SOFT):
        raise InvalidRequest(f"kind {row.kind!r} of rule {row.id!r} is not known here")
    weight = None if row.kind == HARD else row.weight
    return Rule(row.id, row.expression, weight, row.priority, _scope(row))


def _scope(row: ConstraintRow) -> RuleScope:
    labels = _selector.decode(row.selector) if row.selector else {}
    return RuleScope.with_labels(row.project, claim_id(row.vm, RUN) if row.vm else "", labels)


def _scope_as_read(row: ConstraintRow) -> RuleScope:
    """Return a rule's scope, as wide as it can be where its selector cannot be read."""
    try:
        return _scope(row)
    except _UNREADABLE:
        return RuleScope(row.project, claim_id(row.vm, RUN) if row.vm else "")
