"""Constraints as objects: list, show, create, change, delete, try without writing, check.

A constraint holds for whatever is placed from the moment it is committed, by whichever process. A
VM that it finds in the wrong place stays where it is: `check` lists it. A hard rule that leaves
some VMs without any host is refused unless somebody says that this is meant (`force`).
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection

from roost.analysis.store import SeriesStore
from roost.base.clock import Clock
from roost.base.errors import Conflict
from roost.control.memory.follower import Follower
from roost.control.memory.roster import Roster
from roost.control.memory.rulebook import reads_measured
from roost.control.rules import measuring, switching, writing
from roost.control.rules.judging import Judge
from roost.control.rules.measuring import MeasuredHosts
from roost.control.rules.reading import constraint_row, detail, id_of, listed
from roost.control.rules.routes import constraint_routes
from roost.control.rules.timezones import time_in
from roost.control.vms.lookup import require_projects
from roost.ledger.schema.rows import ConstraintRow
from roost.ledger.schema.tables import constraints
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.ledger.writes.transaction import Tx
from roost.model.resources import BASE_RESOURCES
from roost.model.rules import Rule
from roost.parts.access import Principal
from roost.parts.idempotency import find_keys, use_key
from roost.parts.part import Loop, Part
from roost.parts.routes import Route
from roost.rules.fields import Fields
from roost.wire.constraints import (
    ChangeConstraint,
    CheckConstraints,
    ConflictBody,
    ConstraintDetail,
    ConstraintDryRunBody,
    ConstraintPage,
    CreateConstraint,
    DryRunConstraint,
    ListConstraints,
    RuleFields,
    ViolationsBody,
)

#: How often this process looks whether it is another minute.
_TICK_S = 5.0
#: What a body says about when a rule holds, and what makes a changed rule begin anew.
_TIMING = ("when", "until", "time_zone", "dwell_s")
_SWITCHES = frozenset({"applies_when", "applies_until", "time_zone", "enabled"})
_encode = msgspec.json.Encoder(order="sorted").encode


class Constraints(Part):
    """Constraints as objects: listed, created, changed, tried, checked, deleted."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        clock: Clock,
        series: SeriesStore,
        pressure_bounds: Mapping[str, float] | None = None,
    ) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._clock = clock
        self.judge = Judge(store, roster)
        self._measured = MeasuredHosts(series, roster, clock, pressure_bounds)

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return constraint_routes(self)

    # The time, as rules read it

    def load(self, connection: Connection) -> None:
        """Tell rules what time it is, when the process starts."""
        self._set_clock()

    def loops(self) -> Sequence[Loop]:
        """Return the loops that tell rules what time it is, and what hosts use."""
        return (Loop(self._tick, _TICK_S), Loop(self._measured.look, measuring.LOOK_S))

    async def _tick(self) -> None:
        self._set_clock()

    def _set_clock(self) -> None:
        """Bind rules that read the time anew when it is another minute; it is UTC."""
        now = time_in(self._clock.wall_ms())
        if now != self._roster.rule_clock:
            self._roster.rule_clock = now
            if self._roster.rulebook.reads_time:
                self._roster.bind_rules()

    # Reading

    async def list(self, asked: ListConstraints, who: Principal) -> ConstraintPage:
        """Return constraints in the order of their ids: the fleet's, and those of projects."""
        return await self._store.read(lambda connection: listed(connection, asked, who))

    async def get(self, name: str, project: str | None, who: Principal) -> ConstraintDetail:
        """Return one constraint with its versions."""

        def question(connection: Connection) -> ConstraintDetail:
            return detail(connection, constraint_row(connection, name, project, who))

        return await self._store.read(question)

    async def check(self, asked: CheckConstraints, who: Principal) -> ViolationsBody:
        """Say which VMs hard rules find in the wrong place now; what is named must exist."""
        await self._know_project(asked.project, who)
        if asked.rule is not None:
            project, _, name = asked.rule.rpartition("/")
            await self._store.read(lambda found: constraint_row(found, name, project or None, who))
        await self._follower.catch_up()
        return await self.judge.check(asked, who)

    async def dry_run(self, body: DryRunConstraint, who: Principal) -> ConstraintDryRunBody:
        """Say what a constraint would mean for the fleet as it is; nothing is written."""
        writing.require_may_try(who, body.project)
        await self._know_project(body.project, who)
        text, _ = writing.read_expression(body.expression, self._fields())
        await self._follower.catch_up()
        vm = await self.judge.vm_named(body.vm, body.project, who)
        rule = writing.rule_to_try(body, text, vm)
        await self._measure_for(text)
        timing = switching.timing(_timing_in(body), None, self._fields())
        holds = switching.begins_active(timing, self._roster.fleet, self._clock.wall_ms())
        tried = await self.judge.dry_run(rule, body.project, who, hard=body.kind == "hard")
        return msgspec.structs.replace(tried, holds_now=holds)

    async def _know_project(self, project: str | None, who: Principal) -> None:
        """Refuse a project that is not there; a member's own always is."""
        if project is not None and who.project is None:
            await self._store.read(lambda connection: require_projects(connection, [project]))

    # Changing

    async def create(
        self, body: CreateConstraint, who: Principal, key: str | None = None
    ) -> ConstraintDetail:
        """Make a constraint; the same key with the same body gives the first answer."""
        writing.require_may_change(who, body.project)
        text, form = writing.read_expression(body.expression, self._fields())
        scope, digest = f"constraint:{who.project or who.name}", sha256(_encode(body)).hexdigest()
        if key is not None:
            # Before it is tried: the fleet may be such by now that the same rule would be refused.
            used = (await find_keys(self._store, [(scope, key)])).get((scope, key))
            if used is not None and used.digest == digest:
                return await self._store.read(lambda found: _made_before(found, used.answer))
        conflicts: Sequence[ConflictBody] = ()
        if body.enabled and body.kind == "hard" and not body.force:
            vm = await self.judge.vm_named(body.vm, body.project, who)
            rule = writing.rule_to_try(body, text, vm)
            conflicts = await self._refuse_lock_out(rule, body.project, who)
        made, now = id_of(body.name, body.project), self._clock.wall_ms()
        timing = switching.timing(_timing_in(body), None, self._fields())

        def change(tx: Tx) -> ConstraintDetail:
            if use_key(tx, scope, key, digest, made) is None:
                row = writing.new_row(
                    tx, made, body.name, body.project, body, text, form, who, now, timing
                )
                if row.applies_when is not None:
                    row.active = switching.begins_active(timing, self._roster.fleet, now)
                writing.insert(tx, row)
            return _made_before(tx.connection, made)

        found = await self._store.write(change, who.name)
        return msgspec.structs.replace(found, conflicts=[*conflicts])

    async def change(
        self, name: str, project: str | None, body: ChangeConstraint, who: Principal
    ) -> ConstraintDetail:
        """Give a constraint other values, as a new version; what was left out stays."""
        found, now = await self.get(name, project, who), self._clock.wall_ms()
        writing.require_may_change(who, project)
        values = self._values(body)
        conflicts: Sequence[ConflictBody] = ()
        if not body.force:
            rule = writing.changed_rule(found, values)
            if rule is not None:
                conflicts = await self._refuse_lock_out(rule, project, who)

        def change(tx: Tx) -> ConstraintDetail:
            row = constraint_row(tx.connection, name, project, who, lock=True)
            if body.version not in (row.version, msgspec.UNSET):
                raise Conflict(
                    f"rule {row.id!r} is at version {row.version}, not {body.version}",
                    hint="Maybe look at it again, then change it.",
                    rule=row.id,
                    version=row.version,
                )
            new = dict(values)
            if not isinstance(body.expires_in_s, UnsetType):
                new["expires_ms"] = writing.expires_ms(now, body.expires_in_s)
            elif values.get("enabled") and row.expires_ms is not None and row.expires_ms <= now:
                raise Conflict(
                    f"rule {row.id!r} has expired, and would be disabled again at once",
                    hint="Maybe say for how long it is to hold now, or that it does not expire.",
                    rule=row.id,
                )
            new |= switching.timing(_timing_in(body), row, self._fields())
            if new.keys() & {"kind", "relax_after_s"}:
                after_s = new.get("relax_after_s", row.relax_after_s)
                writing.relax_after(new.get("kind", row.kind), after_s)
            if all(getattr(row, field) == value for field, value in new.items()):
                return detail(tx.connection, row)
            changed = msgspec.structs.asdict(row) | new
            if changed["applies_when"] is not None and new.keys() & _SWITCHES:
                # As when it is made: what it was switched to, another condition has said.
                active = switching.begins_active(changed, self._roster.fleet, now)
                new |= {"active": active, "switched_ms": None}
            return detail(tx.connection, writing.update(tx, row, **new))

        changed = await self._store.write(change, who.name)
        return msgspec.structs.replace(changed, conflicts=[*conflicts])

    async def delete(self, name: str, project: str | None, who: Principal) -> None:
        """Delete a constraint."""

        def change(tx: Tx) -> None:
            row = constraint_row(tx.connection, name, project, who, lock=True)
            writing.require_may_change(who, project)
            writing.remove(tx, row)

        await self._store.write(change, who.name)

    def _values(self, body: ChangeConstraint) -> dict[str, Any]:
        """Return the columns that a change sets, but for when it expires."""
        values: dict[str, Any] = {}
        if not isinstance(body.expression, UnsetType):
            text, form = writing.read_expression(body.expression, self._fields())
            values |= {"expression": text, "form": form}
        if not isinstance(body.weight, UnsetType):
            values["weight"] = writing.thousandths(body.weight)
        if not isinstance(body.selector, UnsetType):
            values["selector"] = writing.selector_text(body.selector)
        for name in ("description", "kind", "priority", "enabled", "relax_after_s"):
            if not isinstance(given := getattr(body, name), UnsetType):
                values[name] = given
        return values

    async def _measure_for(self, text: str) -> None:
        """Bring what was measured to the fleet for a rule that is about to read it."""
        if reads_measured(text):
            await self._measured.refresh()

    def _fields(self) -> Fields:
        """Return what rules can read on this fleet, its own resources included."""
        names = self._roster.fleet.hosts.resources.values
        return Fields.of(tuple(names[len(BASE_RESOURCES) :]))

    async def _refuse_lock_out(
        self, rule: Rule, project: str | None, who: Principal
    ) -> Sequence[ConflictBody]:
        """Refuse a hard rule that leaves some VMs without any host; return other conflicts."""
        await self._follower.catch_up()
        await self._measure_for(rule.expression)
        tried = await self.judge.dry_run(rule, project, who)
        if tried.locks_out:
            raise Conflict(
                tried.says[0],
                hint="Maybe see what roost rule dry-run says, or use --force if it is meant.",
                rule=rule.name,
                classes=[msgspec.to_builtins(each) for each in tried.classes if not each.hosts],
                conflicts=[msgspec.to_builtins(each) for each in tried.conflicts],
            )
        return tried.conflicts


def _timing_in(body: RuleFields | ChangeConstraint) -> dict[str, Any]:
    """Return what a body says about when a rule holds; of a new rule, what is not empty."""
    given = {name: getattr(body, name) for name in _TIMING}
    nothing = None if isinstance(body, RuleFields) else msgspec.UNSET
    return {name: value for name, value in given.items() if value is not nothing}


def _made_before(connection: Connection, key: str) -> ConstraintDetail:
    """Return the constraint that an idempotency key made."""
    found = find_row(connection, constraints, {"id": key})
    if found is None:
        raise Conflict(f"the idempotency key made rule {key!r}, which was deleted since", rule=key)
    return detail(connection, ConstraintRow(**found))
