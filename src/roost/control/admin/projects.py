"""Projects and their quotas.

What a project uses is counted by the claims themselves, in the statement that takes them; here only
limits are set. A limit below what is in use is accepted: nothing that exists is touched, and
nothing new fits until enough is gone.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import Connection, select, text

from roost.base.errors import Conflict, NotFound
from roost.control.admin.projectchecks import check_projects
from roost.control.admin.projectroutes import project_routes
from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.tables import projects, tokens
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.idempotency import use_key
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.bodies import (
    CreateProject,
    LimitBody,
    ProjectBody,
    ProjectPage,
    QuotaBody,
    SetQuota,
)
from roost.wire.translate import cores, size

#: Where requests go that name no project; it is always there.
DEFAULT = "default"

_encode = msgspec.json.Encoder(order="sorted").encode
_body = msgspec.json.Decoder(ProjectBody)
# SQLite and PostgreSQL spell this alike. Losing a race must not raise: with SQLite an error would
# fail everybody who shares the commit.
_QUOTAS = [f"{name}_quota" for name in LIMITS]
_INSERT = text(
    f"INSERT INTO projects ({', '.join(['name', *_QUOTAS, *(f'{name}_used' for name in LIMITS)])}) "
    f"VALUES (:name, {', '.join(f':{quota}' for quota in _QUOTAS)}, "
    f"{', '.join('0' * len(LIMITS))}) ON CONFLICT DO NOTHING"
)


class Projects(Part):
    """Projects with their quotas: listed, created, limited, deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return project_routes(self)

    def examine(self, connection: Connection, found: Examination) -> None:
        """See whether what projects use is what their VMs ask for."""
        check_projects(connection, found)

    async def list(self, who: Principal) -> ProjectPage:
        """Return the projects that the caller may see."""
        query = select(projects).order_by(projects.c.name)
        if who.role == "member":
            query = query.where(projects.c.name == who.project)

        def question(connection: Connection) -> ProjectPage:
            rows = connection.execute(query).mappings()
            return ProjectPage(projects=[project_body(dict(row)) for row in rows])

        return await self._store.read(question)

    async def get(self, name: str, who: Principal) -> ProjectBody:
        """Return one project."""
        if who.role == "member" and name != who.project:
            raise _unknown(name)

        def question(connection: Connection) -> dict[str, Any] | None:
            row = connection.execute(select(projects).where(projects.c.name == name)).mappings()
            found = row.first()
            return None if found is None else dict(found)

        found = await self._store.read(question)
        if found is None:
            raise _unknown(name)
        return project_body(found)

    async def create(
        self, body: CreateProject, who: Principal, key: str | None = None
    ) -> ProjectBody:
        """Create a project; the same idempotency key and body repeat the first answer."""
        row = {"name": body.name, **_quota(body.quota)}
        answer = project_body({**row, **{f"{limit}_used": 0 for limit in LIMITS}})
        scope, digest = f"project:{who.name}", sha256(_encode(body)).hexdigest()
        said = _encode(answer).decode()

        def change(tx: Tx) -> ProjectBody:
            if (earlier := use_key(tx, scope, key, digest, said)) is not None:
                return _body.decode(earlier)
            if tx.connection.execute(_INSERT, row).rowcount != 1:
                raise Conflict(f"there is a project {body.name!r} already", project=body.name)
            tx.event(
                "project.created",
                f"project/{body.name}",
                {"projects": {body.name: row}},
                project=body.name,
            )
            return answer

        return await self._store.write(change, who.name)

    async def set_quota(self, name: str, body: SetQuota, who: Principal) -> ProjectBody:
        """Replace a project's limits."""
        limits = _quota(body.quota)

        def change(tx: Tx) -> ProjectBody:
            row = tx.update(projects, projects.c.name == name, **limits)
            if row is None:
                raise _unknown(name)
            changed = {"name": name, **limits, "policy": row["policy"]}
            tx.event(
                "project.quota", f"project/{name}", {"projects": {name: changed}}, project=name
            )
            return project_body(row)

        return await self._store.write(change, who.name)

    async def delete(self, name: str, who: Principal) -> None:
        """Remove a project without VMs, and with it its members' tokens.

        A token that outlived its project would open the next one of the same name. Groups stay, and
        are deleted like groups of any other project.
        """
        if name == DEFAULT:
            raise Conflict(f"the project {DEFAULT!r} is always there", project=name)

        def change(tx: Tx) -> None:
            if not tx.delete(projects, projects.c.name == name, projects.c.vms_used == 0):
                found = tx.row(select(projects.c.vms_used).where(projects.c.name == name))
                if found is None:
                    raise _unknown(name)
                raise Conflict(
                    f"the project {name!r} still has {found['vms_used']} VMs",
                    project=name,
                    vms=found["vms_used"],
                )
            revoked = tx.rows(select(tokens.c.id).where(tokens.c.project == name))
            tx.delete(tokens, tokens.c.project == name)
            tx.event(
                "project.deleted",
                f"project/{name}",
                {
                    "projects": {name: None},
                    "tokens": dict.fromkeys(row["id"] for row in revoked),
                },
                project=name,
            )

        await self._store.write(change, who.name)


def _quota(body: QuotaBody) -> dict[str, int | None]:
    return {
        "cpu_milli_quota": None if body.cpu is None else cores(body.cpu, "cpu quota"),
        "memory_bytes_quota": None if body.memory is None else size(body.memory, "memory quota"),
        "disk_bytes_quota": None if body.disk is None else size(body.disk, "disk quota"),
        "vms_quota": body.vms,
    }


def project_body(row: dict[str, Any]) -> ProjectBody:
    """Return a project as users see it."""
    limits = {
        limit: LimitBody(used=row[f"{limit}_used"], quota=row[f"{limit}_quota"]) for limit in LIMITS
    }
    return ProjectBody(name=row["name"], **limits, policy=row.get("policy"))


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no project {name!r}", project=name)
