"""Pools as objects: made, changed, listed, deleted; and the machines that they have."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UnsetType
from sqlalchemy import Connection, func, select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.base.units import parse_cpu
from roost.jobs.catalogue import Catalogue
from roost.jobs.lowering import passed_words
from roost.jobs.rented import COUNT_LIVE, rent_micro
from roost.jobs.rows import pool_of, stored, type_of
from roost.ledger.schema.jobtables import accounts, job_arrays, machines, pools
from roost.ledger.store import Store
from roost.ledger.writes.statements import Plus, count_rows, find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.model.job import Pool
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import jobs as w

_A, _M = job_arrays.c, machines.c


class Pools(Part):
    """Pools of machines."""

    def __init__(self, store: Store, catalogue: Catalogue, planning: Callable[[], None]) -> None:
        self._store, self._catalogue, self._planning = store, catalogue, planning

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        # fmt: off
        return (
            Route(method="GET", path="/api/v1/pools", noun="pools", verb="list",
                  call=lambda call: self.list(call.who), roles=VIEWER | MEMBER,
                  summary="List pools", reply=w.PoolPage),
            Route(method="POST", path="/api/v1/pools", noun="pools", verb="create",
                  call=lambda call: self.create(call.body, call.who), roles=OPERATOR,
                  summary="Make a pool of machines", body=w.CreatePool, reply=w.PoolBody,
                  statuses=(201,), errors=("conflict", "not_found"), makes=("pool", "name")),
            Route(method="GET", path="/api/v1/pools/{pool}", noun="pools", verb="get",
                  call=lambda call: self.get(call.path["pool"], call.who),
                  roles=VIEWER | MEMBER, summary="Show a pool", reply=w.PoolBody),
            Route(method="POST", path="/api/v1/pools/{pool}/change", noun="pools",
                  verb="change",
                  call=lambda call: self.change(call.path["pool"], call.body, call.who),
                  roles=OPERATOR, summary="Change a pool", body=w.ChangePool, reply=w.PoolBody,
                  errors=CHANGING),
            Route(method="DELETE", path="/api/v1/pools/{pool}", noun="pools", verb="delete",
                  call=lambda call: self.delete(call.path["pool"], call.who), roles=OPERATOR,
                  summary="Delete a pool that has neither jobs nor machines", statuses=(204,),
                  errors=CHANGING),
            Route(method="GET", path="/api/v1/pools/{pool}/machines", noun="pools",
                  verb="machines",
                  call=lambda call: self.machines(call.path["pool"], call.query, call.who),
                  roles=VIEWER | MEMBER, summary="List the machines of a pool",
                  query=w.ListMachines, reply=w.MachinePage),
        )
        # fmt: on

    async def list(self, who: Principal) -> w.PoolPage:
        """Return all pools that the caller may use."""

        def question(connection: Connection) -> w.PoolPage:
            rows = [row for row in find_rows(connection, pools, {}) if _may_see(row, who)]
            return w.PoolPage(pools=_bodies(connection, rows))

        return await self._store.read(question)

    async def get(self, name: str, who: Principal) -> w.PoolBody:
        """Return one pool."""
        return await self._store.read(lambda c: _one(c, name, who))

    async def create(self, body: w.CreatePool, who: Principal) -> w.PoolBody:
        """Make a pool; its provider must be known, and its account must be of that provider."""
        if body.provider not in self._catalogue.names():
            known = ", ".join(self._catalogue.names())
            raise InvalidRequest(
                f"there is no provider {body.provider!r}; there are: {known}",
                provider=body.provider,
            )
        base = Pool(name=body.name, provider=body.provider, account=body.account or "")
        pool = _changed(base, body)

        def change(tx: Tx) -> w.PoolBody:
            _check_account(tx.connection, pool)
            if tx.find(pools, lock=True, name=pool.name) is not None:
                raise Conflict(f"there is a pool {pool.name!r} already", pool=pool.name)
            if count_rows(tx.connection, pools) >= w.MOST_POOLS:
                raise Conflict(f"there are {w.MOST_POOLS} pools already")
            sums = {f"{n}_used": 0 for n in ("machines", "cpu_milli", "micro")}
            row = {
                "name": pool.name,
                **_columns(pool),
                **sums,
                "spent_micro": 0,
                "machine_ms": 0,
                "trouble": "",
                "version": 1,
                "created_ms": tx.at_ms,
                "changed_by": who.name,
            }
            tx.insert(pools, row)
            tx.event("pool.created", f"pool/{pool.name}", {})
            return _one(tx.connection, pool.name, who)

        answer = await self._store.write(change, who.name)
        await self._catalogue.refresh(pool.provider, pool.account)
        self._planning()
        return answer

    async def change(self, name: str, body: w.ChangePool, who: Principal) -> w.PoolBody:
        """Change a pool; machines beyond lowered limits leave when their jobs have ended."""

        def change(tx: Tx) -> w.PoolBody:
            row = tx.find(pools, lock=True, name=name)
            if row is None:
                raise NotFound(f"there is no pool {name!r}", pool=name)
            pool = _changed(pool_of(row["spec"]), body)
            tx.change(pools, {"name": name}, **_columns(pool), version=Plus(1), changed_by=who.name)
            tx.event("pool.changed", f"pool/{name}", {})
            return _one(tx.connection, name, who)

        answer = await self._store.write(change, who.name)
        self._planning()
        return answer

    async def delete(self, name: str, who: Principal) -> None:
        """Delete a pool that nobody needs; one with machines must first be set to none."""

        def change(tx: Tx) -> None:
            row = tx.find(pools, lock=True, name=name)
            if row is None:
                raise NotFound(f"there is no pool {name!r}", pool=name)
            left = select(func.count()).select_from(job_arrays)
            left = left.where(_A.pool == name, _A.finished_ms.is_(None))
            waiting = int(tx.connection.execute(left).scalar_one())
            if waiting or row["machines_used"]:
                raise Conflict(
                    f"pool {name!r} has {waiting} submissions that have not ended and "
                    f"{row['machines_used']} machines",
                    hint="Maybe cancel the jobs and wait until the machines are back: "
                    f"roost pool change {name} --max 0.",
                    pool=name,
                )
            tx.remove(pools, name=name)
            tx.event("pool.deleted", f"pool/{name}", {})

        await self._store.write(change, who.name)

    async def machines(self, name: str, asked: w.ListMachines, who: Principal) -> w.MachinePage:
        """Return machines of a pool, the newest first."""

        def question(connection: Connection) -> w.MachinePage:
            _one(connection, name, who)
            query = select(machines).where(_M.pool == name).order_by(_M.id.desc())
            if not asked.ended:
                query = query.where(_M.ended_ms.is_(None))
            if asked.after is not None:
                query = query.where(_M.id < asked.after)
            found_rows = connection.execute(query.limit(asked.limit + 1)).mappings()
            rows = [dict(row) for row in found_rows]
            now = max((row["state_ms"] for row in rows), default=0)
            found = [machine_body(row, now) for row in rows[: asked.limit]]
            more = len(rows) > asked.limit
            return w.MachinePage(machines=found, next=found[-1].id if more else None)

        return await self._store.read(question)


def _changed(pool: Pool, body: w.PoolSpecBody) -> Pool:
    values: dict[str, Any] = {name: getattr(pool, name) for name in Pool.__dataclass_fields__}
    for name in w.PoolSpecBody.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, UnsetType):
            continue
        if name == "max_cpu":
            values["max_cpu_milli"] = None if value is None else _milli(value)
        elif isinstance(value, list):
            values[name] = tuple(value)
        else:
            values[name] = value
    found = Pool(**values)
    if found.min_machines > found.max_machines or found.warm > found.max_machines:
        raise InvalidRequest(
            f"pool {found.name!r} would keep {max(found.min_machines, found.warm)} machines and "
            f"have {found.max_machines} at most",
            pool=found.name,
        )
    return found


def _milli(cores: int | float | str) -> int:
    return parse_cpu(str(cores), "max_cpu")


def _columns(pool: Pool) -> dict[str, Any]:
    return {
        "spec": stored(pool),
        "account": pool.account,
        "max_machines": pool.max_machines,
        "max_cpu_milli": pool.max_cpu_milli,
        "max_micro": pool.budget_micro,
    }


def _check_account(connection: Connection, pool: Pool) -> None:
    if not pool.account:
        return
    row = find_row(connection, accounts, {"name": pool.account})
    if row is None:
        raise NotFound(f"there is no account {pool.account!r}", account=pool.account)
    if row["provider"] != pool.provider:
        raise InvalidRequest(
            f"account {pool.account!r} is with {row['provider']}, not {pool.provider}"
        )
    if row["project"] and row["project"] != pool.project:
        raise InvalidRequest(
            f"account {pool.account!r} is of project {row['project']!r}; a pool that rents with "
            "it must be that project's"
        )


def _may_see(row: Mapping[str, Any], who: Principal) -> bool:
    project = pool_of(row["spec"]).project
    return who.project is None or project in ("", who.project)


def _one(connection: Connection, name: str, who: Principal) -> w.PoolBody:
    row = find_row(connection, pools, {"name": name})
    if row is None or not _may_see(row, who):
        raise NotFound(f"there is no pool {name!r}", pool=name)
    return _bodies(connection, [row])[0]


def _bodies(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[w.PoolBody]:
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for pool, state, number in connection.execute(COUNT_LIVE):
        counts[pool][state] = int(number)
    waiting = select(_A.pool, func.sum(_A.queued), func.sum(_A.live))
    waiting = waiting.where(_A.finished_ms.is_(None)).group_by(_A.pool)
    jobs_of = {pool: (int(q), int(live)) for pool, q, live in connection.execute(waiting)}
    payers = {row["name"]: row for row in find_rows(connection, accounts, {})}
    found = []
    for row in rows:
        pool = pool_of(row["spec"])
        beyond = passed_words(row, payers.get(pool.account))
        queued, live = jobs_of.get(pool.name, (0, 0))
        found.append(
            w.PoolBody(
                name=pool.name,
                provider=pool.provider,
                account=pool.account or None,
                types=list(pool.types),
                regions=list(pool.regions),
                min_machines=pool.min_machines,
                max_machines=pool.max_machines,
                max_cpu_milli=pool.max_cpu_milli,
                budget_micro=pool.budget_micro,
                on_demand_base=pool.on_demand_base,
                market=pool.market,
                warm=pool.warm,
                idle_grace_s=pool.idle_grace_s,
                ordering=pool.ordering,
                fit=pool.fit,
                kinds=list(pool.kinds),
                project=pool.project or None,
                machines=counts.get(pool.name, {}),
                cpu_milli=row["cpu_milli_used"],
                rate_micro=row["micro_used"],
                spent_micro=row["spent_micro"],
                queued=queued,
                live=live,
                trouble="; ".join([*beyond, *([row["trouble"]] if row["trouble"] else [])]),
                version=row["version"],
            )
        )
    return found


def machine_body(row: Mapping[str, Any], now_ms: int) -> w.MachineBody:
    """Return a machine as it is told."""
    until = row["ended_ms"] or max(now_ms, row["state_ms"])
    lived = 0 if row["rented_ms"] is None else max(0, until - row["rented_ms"])
    return w.MachineBody(
        id=row["id"],
        pool=row["pool"],
        type=type_of(row["type"]).name,
        market=row["market"],
        region=row["region"],
        state=row["state"],
        cloud_id=row["cloud_id"],
        price_micro=row["price_micro"],
        cpu_milli=row["cpu_milli_capacity"],
        memory_bytes=row["memory_bytes_capacity"],
        disk_bytes=row["disk_bytes_capacity"],
        cpu_milli_committed=row["cpu_milli_committed"],
        memory_bytes_committed=row["memory_bytes_committed"],
        attempts=row["attempts_committed"],
        reason=row["reason"],
        created_at=timestamp(row["created_ms"]),
        state_since=timestamp(row["state_ms"]),
        ended_at=None if row["ended_ms"] is None else timestamp(row["ended_ms"]),
        cost_micro=rent_micro(row["price_micro"], lived),
    )
