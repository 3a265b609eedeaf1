"""Job kinds as objects: what is always the same about some jobs, and which parameters they take."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.jobs.rows import plain, spec_of, stored
from roost.jobs.schemas import check_schema
from roost.jobs.submitting import spec_from
from roost.ledger.schema.jobtables import job_kinds
from roost.ledger.schema.tables import projects
from roost.ledger.store import Store
from roost.ledger.writes.statements import count_rows, find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import jobs as w


class JobKinds(Part):
    """Kinds of jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        # fmt: off
        return (
            Route(method="GET", path="/api/v1/job-kinds", noun="job_kinds", verb="list",
                  call=lambda call: self.list(call.who), roles=VIEWER | MEMBER,
                  summary="List job kinds", reply=w.JobKindPage),
            Route(method="POST", path="/api/v1/job-kinds", noun="job_kinds", verb="create",
                  call=lambda call: self.create(call.body, call.who), roles=OPERATOR | MEMBER,
                  summary="Make a job kind", body=w.CreateJobKind, reply=w.JobKindBody,
                  statuses=(201,), errors=("conflict", "not_found"), makes=("kind", "name")),
            Route(method="GET", path="/api/v1/job-kinds/{kind}", noun="job_kinds", verb="get",
                  call=lambda call: self.get(call.path["kind"], call.who),
                  roles=VIEWER | MEMBER, summary="Show a job kind", reply=w.JobKindBody),
            Route(method="DELETE", path="/api/v1/job-kinds/{kind}", noun="job_kinds",
                  verb="delete", call=lambda call: self.delete(call.path["kind"], call.who),
                  roles=OPERATOR | MEMBER, summary="Delete a job kind; its jobs stay",
                  statuses=(204,), errors=CHANGING),
        )
        # fmt: on

    async def list(self, who: Principal) -> w.JobKindPage:
        """Return all kinds that the caller may use."""

        def question(connection: Connection) -> w.JobKindPage:
            rows = find_rows(connection, job_kinds, {})
            return w.JobKindPage(kinds=[_body(row) for row in rows if _may_see(row, who)])

        return await self._store.read(question)

    async def get(self, name: str, who: Principal) -> w.JobKindBody:
        """Return one kind."""
        return await self._store.read(lambda c: _body(_row(c, name, who)))

    async def create(self, body: w.CreateJobKind, who: Principal) -> w.JobKindBody:
        """Make a kind; a member's belongs to its project."""
        project = who.project if who.project is not None else body.project
        if who.project is not None and body.project not in (None, who.project):
            raise NotFound(f"there is no project {body.project!r}", project=body.project)
        spec = spec_from(body, None)
        if not spec.command and not spec.image:
            raise InvalidRequest("a job kind needs a command or an image")
        schema = check_schema(body.parameters_schema)

        def change(tx: Tx) -> w.JobKindBody:
            if project is not None and tx.find(projects, name=project) is None:
                raise NotFound(f"there is no project {project!r}", project=project)
            if tx.find(job_kinds, lock=True, name=body.name) is not None:
                raise Conflict(f"there is a job kind {body.name!r} already", kind=body.name)
            if count_rows(tx.connection, job_kinds) >= w.MOST_KINDS:
                raise Conflict(f"there are {w.MOST_KINDS} job kinds already")
            row = {
                "name": body.name,
                "project": project or "",
                "description": body.description,
                "spec": stored(spec),
                "parameters_schema": schema,
                "version": 1,
                "changed_ms": tx.at_ms,
                "changed_by": who.name,
            }
            tx.insert(job_kinds, row)
            tx.event("job_kind.created", f"job-kind/{body.name}", {}, project=project)
            return _body(row)

        return await self._store.write(change, who.name)

    async def delete(self, name: str, who: Principal) -> None:
        """Delete a kind; jobs that were made from it go on."""

        def change(tx: Tx) -> None:
            row = _row(tx.connection, name, who)
            if who.project is not None and row["project"] != who.project:
                raise NotFound(f"there is no job kind {name!r} of yours", kind=name)
            tx.remove(job_kinds, name=name)
            tx.event("job_kind.deleted", f"job-kind/{name}", {})

        await self._store.write(change, who.name)


def _may_see(row: Mapping[str, Any], who: Principal) -> bool:
    return who.project is None or row["project"] in ("", who.project)


def _row(connection: Connection, name: str, who: Principal) -> dict[str, Any]:
    row = find_row(connection, job_kinds, {"name": name})
    if row is None or not _may_see(row, who):
        raise NotFound(f"there is no job kind {name!r}", kind=name)
    return row


def _body(row: Mapping[str, Any]) -> w.JobKindBody:
    return w.JobKindBody(
        name=row["name"],
        project=row["project"] or None,
        description=row["description"],
        spec=plain(spec_of(row["spec"])),
        parameters_schema=msgspec.json.decode(row["parameters_schema"]),
        version=row["version"],
        changed_at=timestamp(row["changed_ms"]),
        changed_by=row["changed_by"],
    )
