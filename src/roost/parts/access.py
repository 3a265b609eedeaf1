"""Who may speak: API tokens, one-time join tokens and the credentials of agents.

A token is roost_ID_SECRET; the ledger keeps the SHA-256 of the secret, which is random and long, so
nothing slower is needed. Known tokens are answered from memory until an event says that one has
changed. Ids that are not known are looked up together, one query at a time, and remembered when
they do not exist: a flood of bad tokens costs neither a query each nor memory without end.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, or_, select

from roost.base.clock import Clock
from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RoostError,
    Unauthorized,
)
from roost.base.ids import IdSource
from roost.base.timestamps import timestamp
from roost.ledger.schema.changes import TOKENS, Changes
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import counters, projects, tokens
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.parts.tokenroutes import token_routes
from roost.wire.bodies import (
    DEFAULT_PROJECT,
    CreateJoinToken,
    CreateToken,
    JoinBody,
    JoinedBody,
    TokenBody,
    TokenPage,
)

#: Ids that are known not to exist; the oldest are forgotten first.
MOST_ABSENT = 10_000
#: Ids that one query asks for.
MOST_ASKED = 500
#: No id or secret is longer; what is longer is no token.
_LONGEST = 128
#: How tokens of roost begin.
_OWN = "roost_"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: viewer, operator, admin, member (of `project`), agent (of `host`) or join."""

    name: str
    role: str
    project: str | None = None
    host: str | None = None

    @property
    def home(self) -> str:
        """Return the project of what a caller makes and names none for."""
        return self.project or DEFAULT_PROJECT


class ForeignTokens(Protocol):
    """Authenticates bearer tokens that somebody else makes."""

    def principal(self, bearer: str) -> Principal | None:
        """Return whose token this is, if it was verified before and is still good."""

    async def check(self, bearer: str) -> Principal:
        """Verify a token and return whose it is; raises Unauthorized."""


@dataclass(frozen=True, slots=True)
class _Known:
    id: str
    hash: str
    expires_ms: int | None
    who: Principal


class Access(Part):
    """API tokens: issued, revoked, and checked against the ledger with a cache."""

    follows = (TOKENS,)

    def __init__(self, store: Store, clock: Clock, ids: IdSource) -> None:
        self._store, self._clock, self._ids = store, clock, ids
        self._known: dict[str, _Known] = {}  # by id
        self._bearers: dict[str, _Known] = {}  # by the whole text; only ones that were right
        self._bearer_of: dict[str, str] = {}
        self._absent: dict[str, None] = {}
        self._asked: dict[str, asyncio.Future[_Known | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._moved = 0  # grows with every change of a token
        self.foreign: ForeignTokens | None = None  # tokens that are not roost's own

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return token_routes(self)

    # Who is it

    def principal(self, bearer: str) -> Principal | None:
        """Return the principal of a token if the cache knows it, without asking the ledger."""
        known = self._bearers.get(bearer)
        if known is None and self.foreign is not None:
            return self.foreign.principal(bearer)
        return known.who if known is not None and self._valid(known) else None

    async def check(self, bearer: str) -> Principal:
        """Return the principal that a token authenticates; raises Unauthorized."""
        if self.foreign is not None and bearer.count(".") == 2 and not bearer.startswith(_OWN):
            return await self.foreign.check(bearer)
        token_id, secret = _parts(bearer)
        known = self._known.get(token_id)
        if known is None and token_id not in self._absent:
            known = await self._look_up(token_id)
        if known is None or not compare_digest(known.hash, _hash(secret)):
            raise Unauthorized("the token is not known")
        if not self._valid(known):
            raise Unauthorized("the token has expired")
        if self._known.get(token_id) is known:  # nothing has happened to it meanwhile
            self._bearers[bearer] = known
            self._bearer_of[token_id] = bearer
        return known.who

    def _valid(self, known: _Known) -> bool:
        return known.expires_ms is None or self._clock.wall_ms() < known.expires_ms

    async def _look_up(self, token_id: str) -> _Known | None:
        future = self._asked.get(token_id)
        if future is None:
            future = self._asked[token_id] = asyncio.get_running_loop().create_future()
            # Whoever waits may be cancelled; the error then belongs to nobody.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return await asyncio.shield(future)

    async def _ask(self) -> None:
        """Look up the tokens that wait, in batches, until none waits."""
        while self._asked:
            some = dict(list(self._asked.items())[:MOST_ASKED])
            moved = self._moved
            try:
                found = await self._store.read(lambda c: _find(c, list(some)))  # noqa: B023
            except BaseException as error:
                for token_id in some:
                    self._asked.pop(token_id).set_exception(error)
                if isinstance(error, RoostError):
                    continue
                raise
            for token_id in some:
                # A token that changed while we read must be read again next time.
                if moved == self._moved:
                    self._remember(token_id, found.get(token_id))
                self._asked.pop(token_id).set_result(found.get(token_id))

    def _remember(self, token_id: str, known: _Known | None) -> None:
        if known is not None:
            self._known[token_id] = known
            return
        self._absent[token_id] = None
        if len(self._absent) > MOST_ABSENT:
            del self._absent[next(iter(self._absent))]

    # Following the events

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to what this part remembers."""
        if changed := changes.of(TOKENS):
            self._forget(changed)

    def _forget(self, token_ids: Iterable[str]) -> None:
        for token_id in token_ids:
            self._moved += 1
            self._known.pop(token_id, None)
            self._absent.pop(token_id, None)
            bearer = self._bearer_of.pop(token_id, None)
            if bearer is not None:
                del self._bearers[bearer]

    # Tokens of the API

    async def create_token(self, body: CreateToken, who: Principal) -> TokenBody:
        """Make a token; its text is in the answer and nowhere else."""
        if (body.role == "member") != (body.project is not None):
            raise InvalidRequest(
                f"a token with the role {body.role} "
                + ("needs a project" if body.role == "member" else "has no project"),
                role=body.role,
            )
        made = self._make("api", body.name, body.role, body.expires_in_s, project=body.project)

        def change(tx: Tx) -> None:
            if body.project is not None:
                # Locked, so that the project cannot be deleted while it gets a member.
                found = select(projects.c.name).where(projects.c.name == body.project)
                if tx.row(found.with_for_update()) is None:
                    raise NotFound(f"there is no project {body.project!r}", project=body.project)
            _insert(tx, made.row)

        await self._store.write(change, who.name)
        return made.body()

    async def list_tokens(self) -> TokenPage:
        """Return all tokens, without their secrets."""

        def question(connection: Connection) -> list[TokenBody]:
            rows = connection.execute(select(tokens).order_by(tokens.c.id)).mappings()
            return [_token_body(dict(row)) for row in rows]

        return TokenPage(tokens=await self._store.read(question))

    async def delete_token(self, token_id: str, who: Principal) -> None:
        """Revoke a token; the last one that can make others stays."""

        def change(tx: Tx) -> None:
            # All of them locked: of two that delete the last two, one must see what the other did.
            query = select(tokens.c.id).where(*_admins(tx.at_ms)).order_by(tokens.c.id)
            admins = {row["id"] for row in tx.rows(query.with_for_update())}
            if admins == {token_id}:
                raise Conflict(
                    "this is the last admin token; without it nobody could make another",
                    hint="Maybe make a new admin token first.",
                    token=token_id,
                )
            if not tx.delete(tokens, tokens.c.id == token_id):
                raise NotFound(f"there is no token {token_id!r}", token=token_id)
            tx.event("token.deleted", f"token/{token_id}", {"tokens": {token_id: None}})

        await self._store.write(change, who.name)

    async def ensure_admin(self, keep: Callable[[str], None] | None = None) -> str | None:
        """Make the first admin token when there is none; return its text, or None.

        It is kept before it is committed: a process killed in between leaves a text that opens
        nothing and is replaced by the next start, never a token that nobody knows.
        """
        made = self._make("api", "admin", "admin", None)

        def change(tx: Tx) -> bool:
            _one_at_a_time(tx)
            if tx.row(select(tokens.c.id).where(*_admins(tx.at_ms)).limit(1)) is not None:
                return False
            _insert(tx, made.row)
            if keep is not None:
                keep(made.text)
            return True

        return made.text if await self._store.write(change) else None

    # Agents

    async def create_join_token(self, body: CreateJoinToken, who: Principal) -> TokenBody:
        """Make a one-time token with which one agent joins."""
        name = f"join/{body.host}" if body.host is not None else "join"
        made = self._make("join", name, "join", body.expires_in_s, host=body.host)
        await self._store.write(lambda tx: _insert(tx, made.row), who.name)
        return made.body()

    async def join(self, body: JoinBody, bearer: str) -> JoinedBody:
        """Trade a join token for the credential of one host's agent; an older one is revoked.

        Both happen in one transaction, so of two that join with the same token one is refused.
        """
        token_id, secret = _parts(bearer)
        made = self._make("agent", f"agent/{body.host}", "agent", None, host=body.host)

        def change(tx: Tx) -> None:
            _one_at_a_time(tx)
            found = tx.row(select(tokens).where(tokens.c.id == token_id))
            if (
                found is None
                or not compare_digest(found["hash"], _hash(secret))
                or found["kind"] != "join"
            ):
                raise Unauthorized("the join token is not known; it works once")
            if found["expires_ms"] is not None and found["expires_ms"] <= tx.at_ms:
                raise Unauthorized("the join token has expired")
            if found["host"] not in (None, body.host):
                raise Forbidden(
                    f"the join token is for the host {found['host']!r}, not {body.host!r}",
                    host=body.host,
                )
            if tx.delete(tokens, tokens.c.id == token_id, tokens.c.kind == "join") != 1:
                raise Unauthorized("the join token is not known; it works once")
            old = select(tokens.c.id).where(tokens.c.kind == "agent", tokens.c.host == body.host)
            gone = [token_id, *(row["id"] for row in tx.rows(old))]
            tx.delete(tokens, tokens.c.kind == "agent", tokens.c.host == body.host)
            row = tx.insert(tokens, made.row)
            tx.event(
                "agent.joined",
                f"host/{body.host}",
                {"tokens": {**dict.fromkeys(gone), row["id"]: public(row)}},
            )

        await self._store.write(change, f"agent/{body.host}")
        return JoinedBody(host=body.host, credential=made.text)

    def prepare(
        self, kind: str, name: str, role: str, *, host: str, expires_in_s: int | None = None
    ) -> tuple[dict[str, Any], str]:
        """Return the row of a new token of a machine, not kept yet, and the token's text."""
        made = self._make(kind, name, role, expires_in_s, host=host)
        return made.row, made.text

    def _make(
        self,
        kind: str,
        name: str,
        role: str,
        expires_in_s: int | None,
        *,
        project: str | None = None,
        host: str | None = None,
    ) -> "_Made":
        now, token_id, secret = self._clock.wall_ms(), self._ids.new("tok"), self._ids.secret()
        row = {
            "id": token_id,
            "kind": kind,
            "name": name,
            "role": role,
            "project": project,
            "host": host,
            "hash": _hash(secret),
            "created_ms": now,
            "expires_ms": None if expires_in_s is None else now + 1000 * expires_in_s,
        }
        return _Made(row, f"roost_{token_id}_{secret}")


@dataclass(frozen=True, slots=True)
class _Made:
    row: dict[str, Any]
    text: str

    def body(self) -> TokenBody:
        return _token_body(self.row, self.text)


def _parts(bearer: str) -> tuple[str, str]:
    parts = bearer.split("_") if len(bearer) <= _LONGEST else []
    if len(parts) != 3 or parts[0] != "roost" or not parts[1] or not parts[2]:
        raise Unauthorized(
            "this is no token of roost", hint="Maybe it was cut off; it looks like roost_ID_SECRET."
        )
    return parts[1], parts[2]


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _find(connection: Connection, token_ids: list[str]) -> dict[str, _Known]:
    rows = connection.execute(select(tokens).where(tokens.c.id.in_(token_ids)))
    return {
        row.id: _Known(
            row.id, row.hash, row.expires_ms, Principal(row.name, row.role, row.project, row.host)
        )
        for row in rows
    }


def _admins(now_ms: int) -> tuple[ColumnElement[bool], ...]:
    return (
        tokens.c.kind == "api",
        tokens.c.role == "admin",
        or_(tokens.c.expires_ms.is_(None), tokens.c.expires_ms > now_ms),
    )


def _one_at_a_time(tx: Tx) -> None:
    """Serialise transactions that decide by rows which do not exist yet."""
    tx.row(select(counters.c.value).where(counters.c.name == "hosts").with_for_update())


def public(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a token's row as events show it: without the hash."""
    return {name: value for name, value in row.items() if name != "hash"}


def _insert(tx: Tx, row: dict[str, Any]) -> None:
    tx.insert(tokens, row)
    tx.event("token.created", f"token/{row['id']}", {"tokens": {row["id"]: public(row)}})


def insert_token(tx: Tx, row: dict[str, Any]) -> None:
    """Insert a token that was prepared (`Access.prepare`), with its event."""
    _insert(tx, row)


def revoke_tokens(tx: Tx, host: str, kinds: Sequence[str]) -> None:
    """Revoke the tokens of these kinds that belong to a host or machine."""
    query = select(tokens.c.id).where(tokens.c.host == host, tokens.c.kind.in_(kinds))
    gone = [row["id"] for row in tx.rows(query.order_by(tokens.c.id))]
    if gone:
        tx.delete(tokens, tokens.c.id.in_(gone))
        tx.event("token.deleted", f"host/{host}", {"tokens": dict.fromkeys(gone)})


def token_parts(bearer: str) -> tuple[str, str]:
    """Return the id of a token and the hash of its secret; raises Unauthorized."""
    token_id, secret = _parts(bearer)
    return token_id, _hash(secret)


def _token_body(row: Mapping[str, Any], secret: str | None = None) -> TokenBody:
    expires = row["expires_ms"]
    return TokenBody(
        id=row["id"],
        name=row["name"],
        role=row["role"],
        project=row["project"],
        created_at=timestamp(row["created_ms"]),
        expires_at=None if expires is None else timestamp(expires),
        secret=secret,
    )
