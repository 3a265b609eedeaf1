"""Flavors as objects: list, show, create, change, delete.

A flavor gives a VM its amounts when it is created; the VM's spec keeps the amounts and the name. So
a change of a flavor, or its end, is for VMs to come: those that are there keep what they have. Only
an administrator makes flavors: everybody's VMs are made of them.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection

from roost.base.errors import Conflict, Forbidden
from roost.base.timestamps import timestamp
from roost.control.flavors.routes import flavor_routes
from roost.control.groups.defining import lock_rules
from roost.control.memory.roster import Roster
from roost.ledger.schema.rows import Changes, FlavorRow
from roost.ledger.schema.tables import flavors
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.statements import count_rows, find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.idempotency import use_key
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.bodies import DemandBody
from roost.wire.flavors import MOST_FLAVORS, ChangeFlavor, CreateFlavor, FlavorBody, FlavorPage
from roost.wire.translate import demand_of

_encode = msgspec.json.Encoder(order="sorted").encode
_demand = msgspec.json.Decoder(DemandBody).decode


class FlavorAdmin(Part):
    """Flavors as objects: listed, created, changed, deleted."""

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return flavor_routes(self)

    async def list(self) -> FlavorPage:
        """Return all flavors by name."""

        def question(connection: Connection) -> FlavorPage:
            rows = [FlavorRow(**row) for row in find_rows(connection, flavors, {})]
            rows.sort(key=lambda row: row.name)
            return FlavorPage(flavors=[_body(row) for row in rows])

        return await self._store.read(question)

    async def get(self, name: str) -> FlavorBody:
        """Return one flavor."""

        def question(connection: Connection) -> FlavorBody | None:
            found = find_row(connection, flavors, {"name": name})
            return None if found is None else _body(FlavorRow(**found))

        found = await self._store.read(question)
        if found is None:
            raise self._roster.flavors.unknown(name)
        return found

    async def create(
        self, body: CreateFlavor, who: Principal, key: str | None = None
    ) -> FlavorBody:
        """Make a flavor; the same key with the same body gives the first answer."""
        _require_admin(who)
        demand_of(body.demand)  # refuses what makes no sense
        scope, digest = f"flavor:{who.name}", sha256(_encode(body)).hexdigest()

        def change(tx: Tx) -> FlavorBody:
            _refuse_beside_older(tx)
            lock_rules(tx)  # two processes may make the same one
            if use_key(tx, scope, key, digest, body.name) is None:
                return _body(_insert(tx, body, who))
            found = tx.find(flavors, name=body.name)
            if found is None:
                raise Conflict(
                    f"the idempotency key made flavor {body.name!r}, which was deleted since",
                    flavor=body.name,
                )
            return _body(FlavorRow(**found))

        return await self._store.write(change, who.name)

    async def change(self, name: str, body: ChangeFlavor, who: Principal) -> FlavorBody:
        """Change the amounts or the description of a flavor; VMs that are there keep theirs."""
        _require_admin(who)
        values: dict[str, Any] = {}
        if not isinstance(body.demand, UnsetType):
            demand_of(body.demand)
            values["demand"] = _text(body.demand)
        if not isinstance(body.description, UnsetType):
            values["description"] = body.description

        def change(tx: Tx) -> FlavorBody:
            _refuse_beside_older(tx)
            lock_rules(tx)  # two processes may make the same one
            row = self._locked(tx, name)
            if all(getattr(row, each) == value for each, value in values.items()):
                return _body(row)
            by = {"changed_ms": tx.at_ms, "changed_by": who.name}
            found = tx.change(flavors, {"name": name}, **values, **by)
            assert found is not None
            changed = FlavorRow(**found)
            tx.event("flavor.changed", f"flavor/{name}", {"flavors": {name: changed}})
            return _body(changed)

        return await self._store.write(change, who.name)

    async def delete(self, name: str, who: Principal) -> None:
        """Delete a flavor; VMs that were created with it keep their amounts."""
        _require_admin(who)

        def change(tx: Tx) -> None:
            _refuse_beside_older(tx)
            lock_rules(tx)  # two processes may make the same one
            self._locked(tx, name)
            tx.remove(flavors, name=name)
            changes: Changes = {"flavors": {name: None}}
            tx.event("flavor.deleted", f"flavor/{name}", changes)

        await self._store.write(change, who.name)

    def _locked(self, tx: Tx, name: str) -> FlavorRow:
        found = tx.find(flavors, lock=True, name=name)
        if found is None:
            raise self._roster.flavors.unknown(name)
        return FlavorRow(**found)


def _require_admin(who: Principal) -> None:
    if who.role != "admin":
        raise Forbidden("only an administrator changes flavors")


def _refuse_beside_older(tx: Tx) -> None:
    """Refuse while processes may be there that cannot fold the events of flavors."""
    if release_before_may_be_here(tx.connection):
        raise Conflict(
            "flavors cannot be changed while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def _insert(tx: Tx, body: CreateFlavor, who: Principal) -> FlavorRow:
    if tx.find(flavors, name=body.name) is not None:
        raise Conflict(f"there is a flavor {body.name!r} already", flavor=body.name)
    if count_rows(tx.connection, flavors) >= MOST_FLAVORS:
        raise Conflict(f"there are {MOST_FLAVORS} flavors already")
    row = FlavorRow(
        name=body.name,
        demand=_text(body.demand),
        description=body.description,
        created_ms=tx.at_ms,
        created_by=who.name,
        changed_ms=tx.at_ms,
        changed_by=who.name,
    )
    tx.insert(flavors, msgspec.structs.asdict(row))
    tx.event("flavor.created", f"flavor/{row.name}", {"flavors": {row.name: row}})
    return row


def _text(demand: DemandBody) -> str:
    return _encode(demand).decode()


def _body(row: FlavorRow) -> FlavorBody:
    demand = _demand(row.demand)
    amounts = demand_of(demand)
    devices = amounts.devices
    return FlavorBody(
        name=row.name,
        demand=demand,
        cpu_milli=amounts.cpu_milli,
        memory_bytes=amounts.memory_bytes,
        disk_bytes=amounts.disk_bytes,
        gpu=0 if devices is None else devices.count,
        description=row.description,
        created_at=timestamp(row.created_ms),
        created_by=row.created_by,
        changed_at=timestamp(row.changed_ms),
        changed_by=row.changed_by,
    )
