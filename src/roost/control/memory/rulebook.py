"""Constraints and policies of the ledger as the engine takes them: rules with a generation.

Loaded with the roster and kept current by events, so that fleet and rules are of one view. A rule
that this process cannot read (a later release wrote it, or a resource it names is gone) lets no VM
of its scope be placed until somebody looks: what is unknown never looks like permission. A kind
that is unknown counts as hard, a scope that cannot be read as all VMs of the rule's project. Only a
rule that is known to be soft refuses nobody: one that cannot be read prefers no host. A policy that
cannot be read lets none of its VMs be placed.
"""

import difflib
import logging
import re
from collections.abc import Mapping

import msgspec
from sqlalchemy import Connection, select

from roost.base.errors import InvalidRequest, NotFound, RoostError
from roost.ledger.claims.capacity import RUN, claim_id
from roost.ledger.schema.changes import (
    CONSTRAINTS,
    CONSTRAINTS_GENERATION,
    POLICIES,
    PROJECTS,
    RELAXATIONS,
    Changes,
)
from roost.ledger.schema.rows import ConstraintRow, PolicyRow, RelaxationRow
from roost.ledger.schema.tables import constraints, policies, projects, relaxations
from roost.ledger.writes.statements import find_rows
from roost.ledger.writes.transaction import constraints_generation
from roost.model.policies import choice_of, rule_id, rules_of
from roost.model.rules import Choice, Rule, RuleScope, RuleSet
from roost.placement.engine import Engine
from roost.placement.strategies import strategy_named
from roost.wire.bundles import read_bundle

log = logging.getLogger("roost.rules")

_DEFAULTS = select(projects.c.name, projects.c.policy).where(projects.c.policy.is_not(None))
_selector = msgspec.json.Decoder(dict[str, str])
#: What stands for a rule that cannot be read.
NEVER = "false"
HARD, SOFT = "hard", "soft"
#: What reading a rule that a later release wrote may raise.
_UNREADABLE = (RoostError, msgspec.MsgspecError)
_TIME = re.compile(r"\b(hour|minute|weekday)\b")


_MEASURED = re.compile(r"\b(used|pressure)\b")


def reads_measured(text: str) -> bool:
    """Say whether a condition may read what was measured; to measure in vain hurts nobody."""
    return _MEASURED.search(text) is not None


class Rulebook:
    """All constraints that this process has heard of, and their generation."""

    def __init__(self) -> None:
        self.rows: dict[str, ConstraintRow] = {}
        self.policies: dict[str, PolicyRow] = {}
        self.defaults: dict[str, str] = {}  # the policy of VMs that name none, by project
        self.generation = 0
        self.unreadable: dict[str, str] = {}  # ids, with what is wrong
        self.relaxations: dict[str, dict[str, RelaxationRow]] = {}  # by VM and rule

    def load(self, connection: Connection) -> None:
        """Read all constraints from one view."""
        self.rows = {
            row["id"]: ConstraintRow(**row) for row in find_rows(connection, constraints, {})
        }
        self.policies = {
            row["name"]: PolicyRow(**row) for row in find_rows(connection, policies, {})
        }
        self.defaults = dict(connection.execute(_DEFAULTS).all())
        self.generation = constraints_generation(connection)
        for found in find_rows(connection, relaxations, {}):
            self._put_relaxation(RelaxationRow(**found))

    def follow(self, changes: Changes) -> bool:
        """Apply one event; say whether anything is different."""
        for project, changed in changes.of(PROJECTS).items():
            self.defaults.pop(project, None)
            if changed is not None and changed.policy is not None:
                self.defaults[project] = changed.policy
        generation = changes.value(CONSTRAINTS_GENERATION)
        if generation is None:
            return False
        self.generation = generation
        for key, row in changes.of(CONSTRAINTS).items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        for name, policy in changes.of(POLICIES).items():
            if policy is None:
                self.policies.pop(name, None)
            else:
                self.policies[name] = policy
        return True

    def policy_of(self, name: str | None, project: str) -> PolicyRow | None:
        """Return the policy of a VM that names this one, or none; NotFound if it is not known."""
        name = name or self.defaults.get(project)
        if name is None:
            return None
        found = self.policies.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.policies, n=1)
            raise NotFound(
                f"there is no policy {name!r}",
                policy=name,
                hint=f"Maybe {close[0]!r}?" if close else None,
            )
        return found

    def preemption_of(self, policy: str) -> str | None:
        """Return what a policy says about displacing others; None leaves it to the class."""
        row = self.policies.get(policy)
        if row is None:
            return None
        try:
            return read_bundle(row.bundle).preemption
        except msgspec.MsgspecError:
            return "never"

    def follow_relaxations(self, changes: Changes) -> bool:
        """Apply what one event says about VMs that wait; say whether a rule has relaxed."""
        relaxed = False
        for key, row in changes.of(RELAXATIONS).items():
            vm, _, rule = key.partition("|")
            if row is not None:
                self._put_relaxation(row)
                relaxed = relaxed or row.relaxed_ms is not None
            elif (of_vm := self.relaxations.get(vm)) is not None:
                of_vm.pop(rule, None)
                if not of_vm:
                    del self.relaxations[vm]
        return relaxed

    def _put_relaxation(self, row: RelaxationRow) -> None:
        self.relaxations.setdefault(row.vm, {})[row.constraint_id] = row

    def relaxing(self) -> list[ConstraintRow]:
        """Return the hard rules that hold and relax for VMs that wait."""
        return [
            row
            for row in self._holding()
            if row.relax_after_s is not None and row.kind == HARD and row.id not in self.unreadable
        ]

    @property
    def has_hard(self) -> bool:
        """Say whether any rule that holds may refuse hosts."""
        return bool(self.policies) or any(row.kind != SOFT for row in self._holding())

    def relaxed_for(self, vm: str) -> tuple[str, ...]:
        """Return the rules that are soft for a VM that waits, as they are now."""
        return tuple(
            sorted(
                each.constraint_id
                for each in self.relaxations.get(vm, {}).values()
                if each.relaxed_ms is not None
                and (row := self.rows.get(each.constraint_id)) is not None
                and row.version == each.version
            )
        )

    def bind(self, engine: Engine, clock: Mapping[str, int] | None = None) -> None:
        """Give an engine the rules that hold."""
        self.unreadable = {}
        rows = self._holding()
        choices, of_policies = self._policies()
        try:
            rules = [rule_of(row) for row in rows] + of_policies
            engine.set_rules(RuleSet(tuple(rules), self.generation, choices), clock)
        except _UNREADABLE:
            readable = [self._readable(engine, row, clock) for row in rows]
            readable += [self._tried(engine, rule, clock) for rule in of_policies]
            engine.set_rules(RuleSet(tuple(readable), self.generation, choices), clock)

    def _policies(self) -> tuple[dict[str, Choice], list[Rule]]:
        """Return the choices of all policies, and their rules."""
        choices: dict[str, Choice] = {}
        rules: list[Rule] = []
        for name, row in sorted(self.policies.items()):
            choices[name] = Choice()
            try:
                bundle = read_bundle(row.bundle)
                choice = choice_of(bundle)
                if choice.strategy is not None:
                    strategy_named(choice.strategy)
                rules += rules_of(name, bundle)
                choices[name] = choice
            except _UNREADABLE as error:
                log.error("policy %s cannot be read: %s", name, error)
                key = rule_id(name, "unreadable")
                self.unreadable[key] = f"none of its VMs is placed: {error}"
                rules.append(Rule(key, NEVER, scope=RuleScope(policy=name)))
        return choices, rules

    def _tried(self, engine: Engine, rule: Rule, clock: Mapping[str, int] | None) -> Rule:
        """Return a rule of a policy, or what stands for it when it cannot be read."""
        try:
            engine.set_rules(RuleSet((rule,), self.generation), clock)
        except _UNREADABLE as error:
            return self._stands_for(rule.name, error, rule.scope, soft=not rule.hard)
        return rule

    @property
    def reads_time(self) -> bool:
        """Say whether some rule that holds may read the time; binding one in vain hurts nobody."""
        texts = [row.expression for row in self._holding()]
        texts += [row.bundle for row in self.policies.values()]
        return any(_TIME.search(text) for text in texts)

    @property
    def reads_measured(self) -> bool:
        """Say whether some rule that holds may read what was measured on hosts."""
        texts = [row.expression for row in self._holding()]
        texts += [row.bundle for row in self.policies.values()]
        return any(reads_measured(text) for text in texts)

    def _holding(self) -> list[ConstraintRow]:
        return [row for _, row in sorted(self.rows.items()) if row.holds]

    def _readable(
        self, engine: Engine, row: ConstraintRow, clock: Mapping[str, int] | None
    ) -> Rule:
        """Return a rule, or what stands for it when it cannot be read."""
        try:
            rule = rule_of(row)
            engine.set_rules(RuleSet((rule,), self.generation), clock)
        except _UNREADABLE as error:
            return self._stands_for(row.id, error, _scope_as_read(row), soft=row.kind == SOFT)
        return rule

    def _stands_for(self, name: str, error: Exception, scope: RuleScope, *, soft: bool) -> Rule:
        """Note a rule that cannot be read, and return what stands for it."""
        log.error("rule %s cannot be read: %s", name, error)
        meanwhile = "it prefers no host" if soft else "nobody passes it"
        self.unreadable[name] = f"{meanwhile}: {error}"
        return Rule(name, NEVER, 0 if soft else None, scope=scope)


def rule_of(row: ConstraintRow) -> Rule:
    """Return a constraint as the engine takes it; raises what `_UNREADABLE` lists."""
    if row.kind not in (HARD, SOFT):
        raise InvalidRequest(f"kind {row.kind!r} of rule {row.id!r} is not known here")
    weight = None if row.kind == HARD else row.weight
    return Rule(row.id, row.expression, weight, row.priority, _scope(row))


def _scope(row: ConstraintRow) -> RuleScope:
    labels = _selector.decode(row.selector) if row.selector else {}
    vm = claim_id(row.vm, RUN) if row.vm else ""
    return RuleScope.with_labels(row.project, vm, labels, row.policy or "")


def _scope_as_read(row: ConstraintRow) -> RuleScope:
    """Return a rule's scope, as wide as it can be where its selector cannot be read."""
    try:
        return _scope(row)
    except _UNREADABLE:
        vm = claim_id(row.vm, RUN) if row.vm else ""
        return RuleScope(row.project, vm, policy=row.policy or "")
