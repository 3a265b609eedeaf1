"""Submitting: a body becomes an array of jobs, checked whole and written whole.

    body + kind -> JobSpec -> pool -> fits a machine type? -> one row per job, one event

One call is one transaction, a hundred thousand jobs too. What can never run is refused here with
the nearest machine type; what can run, waits.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UnsetType
from sqlalchemy import Connection, insert, select

from roost.base.clock import Clock
from roost.base.errors import Conflict, Forbidden, InvalidRequest, NotFound
from roost.base.ids import IdSource
from roost.base.units import MIB, format_bytes, format_cpu
from roost.jobs.assigning import fill
from roost.jobs.books import free_waiting
from roost.jobs.catalogue import Catalogue, may_rent
from roost.jobs.deciding.experience import usable
from roost.jobs.logins import login_for
from roost.jobs.reading import array_detail
from roost.jobs.rented import read_experience
from roost.jobs.rows import parse_job, pool_of, spec_of, stored
from roost.jobs.schemas import check_parameters
from roost.ledger.schema.jobtables import accounts, job_arrays, job_kinds, job_links, jobs, pools
from roost.ledger.schema.tables import projects
from roost.ledger.sqlite.rows import insert_rows
from roost.ledger.sqlite.writer import raw_of
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.ledger.writes.transaction import Tx
from roost.model.job import Input, JobSpec, MachineType, Output, Pool
from roost.model.resources import Demand
from roost.parts.access import Principal
from roost.parts.idempotency import find_keys, use_key
from roost.parts.sealing import Seal
from roost.wire.jobs import ArrayDetail, JobSpecBody, SubmitJobs
from roost.wire.translate import demand_of

_encode = msgspec.json.Encoder(order="sorted").encode
#: A job that says nothing about its size.
USUAL = Demand(1000, 256 * MIB)
#: Bytes of one item, and of all items of a submission.
MOST_ITEM, MOST_ITEMS = 65_536, 64 * MIB
#: Rows of one statement.
_PIECE = 5000


def spec_from(body: JobSpecBody, base: JobSpec | None) -> JobSpec:
    """Return what is asked of a job: what the body says, over what its kind says."""
    spec = base or JobSpec(demand=USUAL)
    found: dict[str, Any] = {}
    for name in (
        "image", "outputs_to", "run_limit_s", "queue_limit_s", "retries", "restarts", "priority",
        "registry_account",
    ):  # fmt: skip
        if not isinstance(value := getattr(body, name), UnsetType):
            found[name] = value
    if not isinstance(body.command, UnsetType):
        found["command"] = tuple(body.command)
    if not isinstance(body.demand, UnsetType):
        demand = demand_of(body.demand)
        if demand.devices or demand.extended:
            raise InvalidRequest("a job asks for cpu, memory and disk; devices are not supported")
        found["demand"] = demand
    if not isinstance(body.environment, UnsetType):
        merged = dict(spec.environment) | body.environment
        found["environment"] = tuple(sorted(merged.items()))
    if not isinstance(body.parameters, UnsetType):
        merged_parameters = msgspec.json.decode(spec.parameters) | body.parameters
        found["parameters"] = _encode(merged_parameters).decode()
    if not isinstance(body.inputs, UnsetType):
        found["inputs"] = tuple(Input(i.name, i.url, i.digest) for i in body.inputs)
    if not isinstance(body.outputs, UnsetType):
        found["outputs"] = tuple(Output(o.name, o.required) for o in body.outputs)
    values = {name: getattr(spec, name) for name in JobSpec.__dataclass_fields__}
    return JobSpec(**(values | found))


#: The provider whose workers share the server's own disk.
_LOCAL = "local"


class Submitting:
    """Writes arrays of jobs."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        catalogue: Catalogue,
        seal: Seal,
        *,
        outputs_are_shared: bool = True,
    ) -> None:
        self._store, self._clock, self._ids, self._catalogue = store, clock, ids, catalogue
        self._seal = seal
        self._outputs_are_shared = outputs_are_shared

    async def submit(self, body: SubmitJobs, who: Principal, key: str | None) -> ArrayDetail:
        """Submit jobs; the same key with the same body gives the first answer."""
        project = body.project or who.project or "default"
        if who.project not in (None, project):
            raise Forbidden(f"your token is of project {who.project!r}", project=project)
        scope = f"jobs:{who.name}"
        # In a thread: a hundred thousand items take a second, and everybody would wait for it.
        digest = await asyncio.to_thread(lambda: sha256(_encode(body)).hexdigest())
        if key is not None:
            used = (await find_keys(self._store, [(scope, key)])).get((scope, key))
            if used is not None and used.digest == digest:
                return await self._store.read(lambda c: array_detail(c, used.answer, who))
            if used is not None:
                raise Conflict("this idempotency key was used for another request", key=key)
        kind, pool, known = await self._store.read(lambda c: _settings(c, body, project))
        spec = spec_from(body, None if kind is None else spec_of(kind["spec"]))
        if kind is not None:
            spec = _named(spec, str(kind["name"]))
        items = await asyncio.to_thread(_checked_items, body, spec, kind)
        if spec.registry_account and spec.registry_account not in known:
            raise NotFound(
                f"there is no account {spec.registry_account!r}", account=spec.registry_account
            )
        if spec.registry_account:
            account, image = spec.registry_account, spec.image
            await self._store.read(lambda c: login_for(c, self._seal, account, image))
        _check_places(pool, spec)
        self._check_store(pool, spec)
        await self._check_size(pool, spec)
        needs = list(dict.fromkeys(parse_job(each) for each in body.needs))
        new_id = self._ids.new("job")

        def change(tx: Tx) -> ArrayDetail:
            before = use_key(tx, scope, key, digest, new_id)
            if before is not None:
                return array_detail(tx.connection, before, who)
            _insert(tx, new_id, project, body, spec, pool, items, needs, who)
            return array_detail(tx.connection, new_id, who)

        return await self._store.write(change, who.name)

    def _check_store(self, pool: Pool, spec: JobSpec) -> None:
        """Refuse outputs that would be written to a rented machine's own disk and go with it."""
        if (
            not spec.outputs
            or spec.outputs_to
            or self._outputs_are_shared
            or pool.provider == _LOCAL
        ):
            return
        raise InvalidRequest(
            f"machines of pool {pool.name!r} do not reach this server's folder of outputs, and the "
            f"job keeps {spec.outputs[0].name!r}",
            hint="Maybe name a store: roost job submit --keep-in s3://BUCKET/FOLDER, or for all "
            "jobs roost serve --outputs-to.",
            pool=pool.name,
        )

    async def _check_size(self, pool: Pool, spec: JobSpec) -> None:
        """Refuse a job that no machine of its pool can hold, with the nearest type."""
        offered = await self._catalogue.refresh(pool.provider, pool.account)
        types = [each for each in offered if may_rent(pool, each)]
        if not types:
            return
        now_ms = self._clock.wall_ms()
        known = await self._store.read(lambda c: read_experience(c, now_ms, pool.name))
        real = [form for _, form in usable(types, known.get(pool.name, {}))]
        if any(each.holds(spec.demand) for each in real):
            return
        nearest = min(real, key=lambda each: (_missing(each, spec.demand), each.name))
        learnt = "" if nearest in types else ", by what such machines came with"
        raise InvalidRequest(
            f"no machine type of pool {pool.name!r} has {_amounts(spec.demand)}; the nearest, "
            f"{nearest.name!r}, has {format_cpu(nearest.cpu_milli)} cores, "
            f"{format_bytes(nearest.memory_bytes)} and {format_bytes(nearest.disk_bytes)} of disk"
            f"{learnt}",
            hint="Maybe ask for less, or allow a larger type: roost pool change.",
            nearest=nearest.name,
            pool=pool.name,
        )


def _check_places(pool: Pool, spec: JobSpec) -> None:
    """Refuse files of a rented machine: whoever submits knows and owns nothing there."""
    if pool.provider == _LOCAL:
        return
    if spec.outputs_to.startswith("file:"):
        raise InvalidRequest(
            f"the store of outputs, {spec.outputs_to[:200]}, is a folder of a machine, and "
            f"machines of pool {pool.name!r} are rented: a file: address is for pools of provider "
            f"{_LOCAL!r}",
            hint="Maybe --keep-in s3://BUCKET/FOLDER.",
            pool=pool.name,
        )
    for each in spec.inputs:
        if each.url.startswith("file:"):
            raise InvalidRequest(
                f"input {each.name!r} is a file of a machine, {each.url[:200]}, and machines of "
                f"pool {pool.name!r} are rented: a file: address is for pools of provider "
                f"{_LOCAL!r}",
                hint="Maybe put it where the machine can fetch it: an https: or s3: address.",
                pool=pool.name,
                input=each.name,
            )


def _amounts(demand: Demand) -> str:
    found = f"{format_cpu(demand.cpu_milli)} cores and {format_bytes(demand.memory_bytes)}"
    return found + (f" and {format_bytes(demand.disk_bytes)} of disk" if demand.disk_bytes else "")


def _missing(kind: MachineType, demand: Demand) -> float:
    """Return how much of a demand a type is short of, in shares of the demand."""
    pairs = (
        (demand.cpu_milli, kind.cpu_milli),
        (demand.memory_bytes, kind.memory_bytes),
        (demand.disk_bytes, kind.disk_bytes),
    )
    return sum(max(0, asked - has) / asked for asked, has in pairs if asked)


def _named(spec: JobSpec, kind: str) -> JobSpec:
    values = {name: getattr(spec, name) for name in JobSpec.__dataclass_fields__}
    return JobSpec(**(values | {"kind": kind}))


def _items(body: SubmitJobs) -> list[str] | None:
    """Return the items of a submission as they are kept."""
    if body.items is None:
        return None
    if not body.items:
        raise InvalidRequest("a submission with no items has no jobs")
    found = [_encode(item).decode() for item in body.items]
    longest = max(map(len, found))
    if longest > MOST_ITEM or sum(map(len, found)) > MOST_ITEMS:
        raise InvalidRequest(
            f"items may have {MOST_ITEM} bytes each and {MOST_ITEMS} together; the longest has "
            f"{longest}",
            hint="Maybe put what is large in a file and name that.",
        )
    return found


def _checked_items(
    body: SubmitJobs, spec: JobSpec, kind: Mapping[str, Any] | None
) -> list[str] | None:
    items = _items(body)
    _check(spec, items, kind)
    return items


def _check(spec: JobSpec, items: list[str] | None, kind: Mapping[str, Any] | None) -> None:
    if not spec.command and not spec.image:
        raise InvalidRequest("a job needs a command or an image")
    if spec.command and not spec.command[0]:
        raise InvalidRequest("the first word of a command names a program")
    parameters = msgspec.json.decode(spec.parameters)
    schema = {} if kind is None else msgspec.json.decode(kind["parameters_schema"])
    if items is None:
        check_parameters(schema, parameters, "")
        for word in spec.command:
            fill(word, 0, None, parameters)
        return
    for index, text in enumerate(items):
        item = msgspec.json.decode(text)
        own = {**parameters, **item} if isinstance(item, dict) else parameters
        if schema or index == 0:
            check_parameters(schema, own, f"item {index}: ")
        if index == 0 or isinstance(item, dict):
            for word in spec.command:
                fill(word, index, item, own)


def _settings(
    connection: Connection, body: SubmitJobs, project: str
) -> tuple[Mapping[str, Any] | None, Pool, set[str]]:
    """Return the kind, the pool and the accounts that a submission may use."""
    if find_row(connection, projects, {"name": project}) is None:
        raise NotFound(f"there is no project {project!r}", project=project)
    kind = None
    if body.kind is not None:
        kind = find_row(connection, job_kinds, {"name": body.kind})
        if kind is None or kind["project"] not in ("", project):
            raise NotFound(f"there is no job kind {body.kind!r}", kind=body.kind)
    name = body.pool
    if name is None:
        name = _only_pool(connection, body, project)
    row = find_row(connection, pools, {"name": name})
    pool = None if row is None else pool_of(row["spec"])
    if pool is None or (pool.project and pool.project != project):
        raise NotFound(f"there is no pool {name!r}", pool=name)
    if pool.kinds and (body.kind or "") not in pool.kinds:
        raise InvalidRequest(
            f"pool {name!r} only runs jobs of the kinds {', '.join(pool.kinds)}", pool=name
        )
    usable = select(accounts.c.name).where(accounts.c.project.in_(("", project)))
    return kind, pool, {str(row[0]) for row in connection.execute(usable)}


def _only_pool(connection: Connection, body: SubmitJobs, project: str) -> str:
    """Return the pool of a submission that names none: `default`, or the only one there is."""
    found = {
        name: pool_of(spec) for name, spec in connection.execute(select(pools.c.name, pools.c.spec))
    }
    usable = [
        str(name)
        for name, pool in found.items()
        if pool.project in ("", project) and (not pool.kinds or (body.kind in pool.kinds))
    ]
    if "default" in usable:
        return "default"
    if len(usable) == 1:
        return usable[0]
    if not usable:
        raise NotFound(
            "there is no pool that could run it",
            hint="Maybe make one: roost pool create default --provider local.",
        )
    raise InvalidRequest(
        f"there are several pools: {', '.join(sorted(usable))}; the job must name one"
    )


def _insert(
    tx: Tx,
    new_id: str,
    project: str,
    body: SubmitJobs,
    spec: JobSpec,
    pool: Pool,
    items: list[str] | None,
    needs: Sequence[tuple[str, int | None]],
    who: Principal,
) -> None:
    size = body.count if items is None else len(items)
    state = "waiting" if needs else "queued"
    awaited = _lock_needs(tx, needs, who)
    counts = dict.fromkeys(
        ("waiting", "queued", "live", "completed", "failed", "cancelled", "lost"), 0
    )
    counts[state] = size
    tx.insert(
        job_arrays,
        {
            "id": new_id,
            "project": project,
            "name": body.name,
            "pool": pool.name,
            "kind": spec.kind,
            "spec": stored(spec),
            "size": size,
            "priority": spec.priority,
            "cpu_milli": spec.demand.cpu_milli,
            "memory_bytes": spec.demand.memory_bytes,
            "disk_bytes": spec.demand.disk_bytes,
            "run_limit_s": spec.run_limit_s,
            "queue_limit_s": spec.queue_limit_s,
            "on_failure": body.on_failure,
            "created_ms": tx.at_ms,
            "created_by": who.name,
            "finished_ms": None,
            **counts,
            "measured": 0,
            "run_ms": 0,
            "cost_micro": 0,
        },
    )
    for need in awaited:
        tx.insert(job_links, {"array": new_id, "needs": need})
    if tx.connection.dialect.name == "sqlite":
        # By the driver: SQLAlchemy takes longer to prepare so many rows than SQLite to keep them.
        cursor = raw_of(tx.connection).cursor()
        for piece in _rows(tx, new_id, size, items, state):
            insert_rows(cursor, "jobs", tuple(piece[0]), [tuple(row.values()) for row in piece])
    else:
        for piece in _rows(tx, new_id, size, items, state):
            tx.connection.execute(insert(jobs), piece)
    note = f"{size} jobs in pool {pool.name}" if size > 1 else f"in pool {pool.name}"
    tx.event("jobs.submitted", f"job/{new_id}", {}, project=project, note=note)
    if needs:
        free_waiting(tx, new_id)


def _lock_needs(tx: Tx, needs: Sequence[tuple[str, int | None]], who: Principal) -> list[str]:
    """Return the arrays that are waited for, locked; one job of many cannot be."""
    for need, index in sorted(needs, key=lambda each: (each[0], each[1] or 0)):  # as everybody
        found = tx.find(job_arrays, lock=True, id=need)
        name = need if index is None else f"{need}.{index}"
        if found is None or (who.project is not None and found["project"] != who.project):
            raise NotFound(f"there is no job {name!r} to wait for", job=name)
        if index is not None and index >= found["size"]:
            raise NotFound(f"there is no job {name!r}; {need!r} has {found['size']}", job=name)
        if index is not None and found["size"] > 1:
            raise InvalidRequest(
                f"{need} has {found['size']} jobs, and {name} cannot be waited for by itself",
                hint=f"Maybe name {need}: it begins when all of it has ended.",
                job=name,
            )
    return list(dict.fromkeys(need for need, _ in needs))


def _rows(
    tx: Tx, array: str, size: int, items: list[str] | None, state: str
) -> Iterator[list[dict[str, Any]]]:
    same = {
        "array": array, "state": state, "item": None, "attempt": 0, "retries": 0, "restarts": 0,
        "machine": None, "ran_on": "", "not_before_ms": 0, "queued_ms": tx.at_ms,
        "scheduled_ms": None, "started_ms": None, "finished_ms": None, "reason": "",
        "message": "", "exit_code": None, "run_ms": 0, "cpu_ms": 0, "memory_bytes": 0,
        "cost_micro": 0, "outputs": "",
    }  # fmt: skip
    for start in range(0, size, _PIECE):
        yield [
            {**same, "idx": index, "item": None if items is None else items[index]}
            for index in range(start, min(size, start + _PIECE))
        ]
