"""The flavors of the ledger as this process knows them: the amounts of VMs, by name."""

import difflib
from typing import Protocol, TypeVar

import msgspec
from sqlalchemy import Connection

from roost.base.errors import InvalidRequest, NotFound
from roost.ledger.schema.changes import FLAVORS, Changes
from roost.ledger.schema.rows import FlavorRow
from roost.ledger.schema.tables import flavors
from roost.ledger.writes.statements import find_rows
from roost.wire.bodies import DemandBody

_decode = msgspec.json.Decoder(DemandBody).decode


class Sized(Protocol):
    """A body whose amounts are its own or those of a flavor."""

    name: str
    demand: DemandBody | None
    flavor: str | None


B = TypeVar("B", bound=Sized)


class Flavors:
    """All flavors, kept current by events."""

    def __init__(self) -> None:
        self.rows: dict[str, FlavorRow] = {}
        self._demands: dict[str, DemandBody] = {}

    def load(self, connection: Connection) -> None:
        """Read all flavors from one view."""
        self.rows, self._demands = {}, {}
        for row in find_rows(connection, flavors, {}):
            self._put(FlavorRow(**row))

    def follow(self, changes: Changes) -> None:
        """Apply one event."""
        for name, row in changes.of(FLAVORS).items():
            if row is not None:
                self._put(row)
            elif self.rows.pop(name, None) is not None:
                del self._demands[name]

    def _put(self, row: FlavorRow) -> None:
        self.rows[row.name], self._demands[row.name] = row, _decode(row.demand)

    def unknown(self, name: str) -> NotFound:
        """Return the error of a name that no flavor has, with the closest there is."""
        close = difflib.get_close_matches(name, sorted(self.rows), n=1)
        hint = f"Maybe {close[0]!r}?" if close else None
        return NotFound(f"no flavor {name!r}", flavor=name, hint=hint)

    def sized(self, body: B) -> B:
        """Return a body with the demand of the flavor that it names."""
        if body.flavor is None:
            if body.demand is None:
                raise InvalidRequest(
                    f"{body.name!r} says neither its demand nor a flavor", name=body.name
                )
            return body
        if body.demand is not None:
            raise InvalidRequest(
                f"{body.name!r} says its demand and the flavor {body.flavor!r}: one of them is "
                "enough",
                name=body.name,
                flavor=body.flavor,
            )
        demand = self._demands.get(body.flavor)
        if demand is None:
            # Of the body: what the path of the request names is there.
            missing = self.unknown(body.flavor)
            raise InvalidRequest(missing.message, hint=missing.hint, flavor=body.flavor)
        return msgspec.structs.replace(body, demand=demand)  # type: ignore[type-var]  # a body is a Struct
