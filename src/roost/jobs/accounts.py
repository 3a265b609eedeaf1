"""Accounts as objects: who rents, within which limits; credentials are sealed and never told."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection, or_, select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.base.units import parse_cpu
from roost.jobs.catalogue import Catalogue
from roost.ledger.schema.jobtables import account_secrets, accounts, machines, pools
from roost.ledger.schema.tables import projects
from roost.ledger.store import Store
from roost.ledger.writes.statements import Plus, count_rows, find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.roles import OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.parts.sealing import Seal
from roost.wire import jobs as w

_encode = msgspec.json.Encoder(order="sorted").encode


class Accounts(Part):
    """Accounts with providers."""

    def __init__(self, store: Store, seal: Seal, catalogue: Catalogue, untracked_s: float) -> None:
        self._store, self._seal, self._catalogue = store, seal, catalogue
        self._untracked_s = untracked_s

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        # fmt: off
        return (
            Route(method="GET", path="/api/v1/accounts", noun="accounts", verb="list",
                  call=lambda call: self.list(), roles=VIEWER, summary="List accounts",
                  reply=w.AccountPage),
            Route(method="POST", path="/api/v1/accounts", noun="accounts", verb="create",
                  call=lambda call: self.create(call.body, call.who), roles=OPERATOR,
                  summary="Make an account with a provider", body=w.CreateAccount,
                  reply=w.AccountBody, statuses=(201,), errors=("conflict", "not_found"),
                  makes=("account", "name")),
            Route(method="GET", path="/api/v1/accounts/{account}", noun="accounts", verb="get",
                  call=lambda call: self.get(call.path["account"]), roles=VIEWER,
                  summary="Show an account", reply=w.AccountBody),
            Route(method="POST", path="/api/v1/accounts/{account}/change", noun="accounts",
                  verb="change",
                  call=lambda call: self.change(call.path["account"], call.body, call.who),
                  roles=OPERATOR, summary="Change an account", body=w.ChangeAccount,
                  reply=w.AccountBody, errors=CHANGING),
            Route(method="DELETE", path="/api/v1/accounts/{account}", noun="accounts",
                  verb="delete",
                  call=lambda call: self.delete(call.path["account"], call.who),
                  roles=OPERATOR, summary="Delete an account that no pool uses",
                  statuses=(204,), errors=CHANGING),
        )
        # fmt: on

    async def list(self) -> w.AccountPage:
        """Return all accounts."""

        def question(connection: Connection) -> w.AccountPage:
            rows = find_rows(connection, accounts, {})
            return w.AccountPage(accounts=[_body(connection, row) for row in rows])

        return await self._store.read(question)

    async def get(self, name: str) -> w.AccountBody:
        """Return one account."""
        return await self._store.read(lambda c: _one(c, name))

    async def create(self, body: w.CreateAccount, who: Principal) -> w.AccountBody:
        """Make an account; its credentials are sealed before they are kept."""
        if body.provider not in self._catalogue.names():
            raise InvalidRequest(
                f"there is no provider {body.provider!r}; there are: "
                f"{', '.join(self._catalogue.names())}",
                provider=body.provider,
            )

        def change(tx: Tx) -> w.AccountBody:
            if body.project is not None and tx.find(projects, name=body.project) is None:
                raise NotFound(f"there is no project {body.project!r}", project=body.project)
            if tx.find(accounts, lock=True, name=body.name) is not None:
                raise Conflict(f"there is an account {body.name!r} already", account=body.name)
            if count_rows(tx.connection, accounts) >= w.MOST_ACCOUNTS:
                raise Conflict(f"there are {w.MOST_ACCOUNTS} accounts already")
            row = {
                "name": body.name,
                "project": body.project or "",
                "provider": body.provider,
                "options": "{}",
                "max_machines": None,
                "max_cpu_milli": None,
                "max_micro": None,
                "machines_used": 0,
                "cpu_milli_used": 0,
                "micro_used": 0,
                "version": 1,
                "created_ms": tx.at_ms,
                "changed_by": who.name,
            }
            tx.insert(accounts, row | _values(body))
            self._keep_secret(tx, body.name, body)
            tx.event("account.created", f"account/{body.name}", {}, project=body.project)
            return _one(tx.connection, body.name)

        return await self._store.write(change, who.name)

    async def change(self, name: str, body: w.ChangeAccount, who: Principal) -> w.AccountBody:
        """Change an account; providers are opened anew with what it is then."""

        def change(tx: Tx) -> w.AccountBody:
            if tx.find(accounts, lock=True, name=name) is None:
                raise NotFound(f"there is no account {name!r}", account=name)
            tx.change(
                accounts, {"name": name}, **_values(body), version=Plus(1), changed_by=who.name
            )
            self._keep_secret(tx, name, body)
            tx.event("account.changed", f"account/{name}", {})
            return _one(tx.connection, name)

        return await self._store.write(change, who.name)

    async def delete(self, name: str, who: Principal) -> None:
        """Delete an account that no pool uses, with its credentials."""

        def change(tx: Tx) -> None:
            if tx.find(accounts, lock=True, name=name) is None:
                raise NotFound(f"there is no account {name!r}", account=name)
            user = tx.row(select(pools.c.name).where(pools.c.account == name).limit(1))
            if user is not None:
                raise Conflict(f"pool {user['name']!r} rents with {name!r}", account=name)
            self._refuse_unnamed(tx, name)
            tx.remove(accounts, name=name)
            tx.remove(account_secrets, account=name)
            tx.event("account.deleted", f"account/{name}", {})

        await self._store.write(change, who.name)

    def _refuse_unnamed(self, tx: Tx, name: str) -> None:
        """Refuse while a launch that nobody heard of may still show: only the account finds it."""
        m = machines.c
        since = tx.at_ms - round(1000 * self._untracked_s)
        asked = select(m.id).where(m.account == name, m.launches > 0, m.cloud_id.is_(None))
        row = tx.row(asked.where(or_(m.ended_ms.is_(None), m.ended_ms > since)).limit(1))
        if row is not None:
            raise Conflict(
                f"{row['id']} was asked for with {name!r} and may still be made; it is looked for "
                f"until {self._untracked_s:.0f} s after its end",
                account=name,
            )

    def _keep_secret(self, tx: Tx, name: str, body: w.AccountSpecBody) -> None:
        if isinstance(body.credentials, UnsetType):
            return
        text = _encode(body.credentials).decode()
        sealed = self._seal.close(f"account/{name}", text)
        tx.remove(account_secrets, account=name)
        if body.credentials:
            tx.insert(account_secrets, {"account": name, "secret": sealed})


def _values(body: w.AccountSpecBody) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(body.options, UnsetType):
        found["options"] = _encode(body.options).decode()
    if not isinstance(body.max_machines, UnsetType):
        found["max_machines"] = body.max_machines
    if not isinstance(body.budget_micro, UnsetType):
        found["max_micro"] = body.budget_micro
    if not isinstance(body.max_cpu, UnsetType):
        cores = body.max_cpu
        found["max_cpu_milli"] = None if cores is None else parse_cpu(str(cores), "max_cpu")
    return found


def _one(connection: Connection, name: str) -> w.AccountBody:
    row = find_row(connection, accounts, {"name": name})
    if row is None:
        raise NotFound(f"there is no account {name!r}", account=name)
    return _body(connection, row)


def _body(connection: Connection, row: Mapping[str, Any]) -> w.AccountBody:
    secret = find_row(connection, account_secrets, {"account": row["name"]})
    return w.AccountBody(
        name=row["name"],
        provider=row["provider"],
        project=row["project"] or None,
        options=msgspec.json.decode(row["options"]),
        has_credentials=secret is not None,
        max_machines=row["max_machines"],
        max_cpu_milli=row["max_cpu_milli"],
        budget_micro=row["max_micro"],
        machines=row["machines_used"],
        cpu_milli=row["cpu_milli_used"],
        rate_micro=row["micro_used"],
        version=row["version"],
    )
