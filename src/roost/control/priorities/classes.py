"""Priority classes as objects: list, show, create, change, delete.

A class gives its VMs their priority at the create, and says whom they may displace when there is no
room. The value of a class never changes, so a VM's priority is that of its class for as long as
there is one; whom it may displace is asked when there is no room. Only an administrator makes
classes: they order everybody's VMs.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection, func, select

from roost.base.errors import Conflict, Forbidden
from roost.base.timestamps import timestamp
from roost.control.groups.defining import lock_rules
from roost.control.memory.roster import Roster
from roost.control.priorities.routes import class_routes
from roost.ledger.schema.rows import Changes, PriorityClassRow
from roost.ledger.schema.tables import priority_classes, vm_specs
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.statements import count_rows, find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.idempotency import use_key
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.priorities import (
    MOST_CLASSES,
    ChangePriorityClass,
    CreatePriorityClass,
    PriorityClassBody,
    PriorityClassPage,
)

_encode = msgspec.json.Encoder(order="sorted").encode


class Priorities(Part):
    """Priority classes as objects: listed, created, changed, deleted."""

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return class_routes(self)

    async def list(self) -> PriorityClassPage:
        """Return all classes, the most important first."""

        def question(connection: Connection) -> PriorityClassPage:
            rows = [PriorityClassRow(**row) for row in find_rows(connection, priority_classes, {})]
            rows.sort(key=lambda row: (-row.value, row.name))
            return PriorityClassPage(classes=[_body(row) for row in rows])

        return await self._store.read(question)

    async def get(self, name: str) -> PriorityClassBody:
        """Return one class."""

        def question(connection: Connection) -> PriorityClassBody | None:
            found = find_row(connection, priority_classes, {"name": name})
            return None if found is None else _body(PriorityClassRow(**found))

        return await self._store.read(question) or _body(self._roster.classes.named(name))

    async def create(
        self, body: CreatePriorityClass, who: Principal, key: str | None = None
    ) -> PriorityClassBody:
        """Make a class; the same key with the same body gives the first answer."""
        _require_admin(who)
        scope, digest = f"priority:{who.name}", sha256(_encode(body)).hexdigest()

        def change(tx: Tx) -> PriorityClassBody:
            _refuse_beside_older(tx)
            lock_rules(tx)
            if use_key(tx, scope, key, digest, body.name) is None:
                return _body(_insert(tx, body, who))
            found = tx.find(priority_classes, name=body.name)
            if found is None:
                raise Conflict(
                    f"the idempotency key made priority class {body.name!r}, which was deleted "
                    "since",
                    priority_class=body.name,
                )
            return _body(PriorityClassRow(**found))

        return await self._store.write(change, who.name)

    async def change(
        self, name: str, body: ChangePriorityClass, who: Principal
    ) -> PriorityClassBody:
        """Change whom a class displaces, whether it is the default, or its description."""
        _require_admin(who)
        given = (
            ("preempts", body.preempts),
            ("is_default", body.default),
            ("description", body.description),
        )
        values: dict[str, Any] = {k: v for k, v in given if not isinstance(v, UnsetType)}

        def change(tx: Tx) -> PriorityClassBody:
            _refuse_beside_older(tx)
            lock_rules(tx)
            row = self._locked(tx, name)
            if all(getattr(row, key) == value for key, value in values.items()):
                return _body(row)
            changes: Changes = {"priority_classes": {}}
            if values.get("is_default"):
                _take_default(tx, changes)
            by = {"changed_ms": tx.at_ms, "changed_by": who.name}
            found = tx.change(priority_classes, {"name": name}, **values, **by)
            assert found is not None
            changes["priority_classes"][name] = found
            tx.event("priority_class.changed", f"priority_class/{name}", changes)
            return _body(PriorityClassRow(**found))

        return await self._store.write(change, who.name)

    async def delete(self, name: str, who: Principal, *, force: bool = False) -> None:
        """Delete a class; one that VMs have only by force: they keep their priority."""
        _require_admin(who)

        def change(tx: Tx) -> None:
            _refuse_beside_older(tx)
            lock_rules(tx)
            self._locked(tx, name)
            used = _vms_with(tx.connection, name)
            if used and not force:
                raise Conflict(
                    f"{used} VMs have the priority class {name!r}",
                    priority_class=name,
                    vms=used,
                    hint="Maybe delete it with force: they keep their priority and displace "
                    "nobody.",
                )
            tx.remove(priority_classes, name=name)
            changes: Changes = {"priority_classes": {name: None}}
            tx.event("priority_class.deleted", f"priority_class/{name}", changes)

        await self._store.write(change, who.name)

    def _locked(self, tx: Tx, name: str) -> PriorityClassRow:
        found = tx.find(priority_classes, lock=True, name=name)
        if found is None:
            return self._roster.classes.named(name)  # mostly says what there is instead
        return PriorityClassRow(**found)


def _require_admin(who: Principal) -> None:
    if who.role != "admin":
        raise Forbidden("only an administrator changes priority classes")


def _refuse_beside_older(tx: Tx) -> None:
    """Refuse while processes may be there that know no classes and would displace nobody."""
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "priority classes cannot be changed while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def _insert(tx: Tx, body: CreatePriorityClass, who: Principal) -> PriorityClassRow:
    if tx.find(priority_classes, name=body.name) is not None:
        raise Conflict(f"there is a priority class {body.name!r} already", priority_class=body.name)
    if count_rows(tx.connection, priority_classes) >= MOST_CLASSES:
        raise Conflict(f"there are {MOST_CLASSES} priority classes already")
    changes: Changes = {"priority_classes": {}}
    if body.default:
        _take_default(tx, changes)
    row = PriorityClassRow(
        name=body.name,
        value=body.value,
        preempts=body.preempts,
        is_default=body.default,
        description=body.description,
        created_ms=tx.at_ms,
        created_by=who.name,
        changed_ms=tx.at_ms,
        changed_by=who.name,
    )
    tx.insert(priority_classes, msgspec.structs.asdict(row))
    changes["priority_classes"][row.name] = row
    tx.event("priority_class.created", f"priority_class/{row.name}", changes)
    return row


def _take_default(tx: Tx, changes: Changes) -> None:
    """Let the class that is the default now be it no more."""
    for row in tx.find_all(priority_classes, is_default=True):
        changed = tx.change(priority_classes, {"name": row["name"]}, is_default=False)
        changes["priority_classes"][row["name"]] = changed


def _vms_with(connection: Connection, name: str) -> int:
    """Return how many VMs have a class; a name is text that needs no escape in JSON."""
    said = vm_specs.c.spec.contains(f'"priority_class":"{name}"', autoescape=True)
    return int(connection.execute(select(func.count()).where(said)).scalar_one())


def _body(row: PriorityClassRow) -> PriorityClassBody:
    return PriorityClassBody(
        name=row.name,
        value=row.value,
        preempts=row.preempts,
        default=row.is_default,
        description=row.description,
        created_at=timestamp(row.created_ms),
        created_by=row.created_by,
        changed_at=timestamp(row.changed_ms),
        changed_by=row.changed_by,
    )
