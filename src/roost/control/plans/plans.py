"""Plans as objects: drafted, kept, listed, shown, applied, paused, resumed, cancelled.

A draft holds no room; one that was applied does (`keepingroom`), until its moves claim their
targets as they begin. Here only rows are written; `executing` acts on them.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import Conflict, InvalidRequest
from roost.base.ids import IdSource
from roost.control.memory.roster import Roster
from roost.control.plans import writing
from roost.control.plans.checking import check_plans
from roost.control.plans.maintaining import plan_maintenance
from roost.control.plans.planning import Planning
from roost.control.plans.reading import detail, drafted, listed, plan_row, taken_vms
from roost.control.plans.recommending import Recommending
from roost.control.plans.record import (
    CANCELLED,
    OVER,
    PAUSED,
    PLANNED,
    RUNNING,
    WAITING,
    Asked,
    Size,
    found_in,
)
from roost.control.plans.routes import plan_routes
from roost.control.plans.windowing import Windowing, bounds_of, spans_of
from roost.control.vms.lookup import vm_row
from roost.ledger.schema.rows import PlanRow
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import Tx, row_json
from roost.parts.access import Principal
from roost.parts.idempotency import find_keys, use_key
from roost.parts.part import Part
from roost.parts.routes import Answered, Route
from roost.wire.plans import (
    CreatePlan,
    FleetRecommendations,
    ListPlans,
    MaintenanceBody,
    PlanDetail,
    PlanMaintenance,
    PlanPage,
    ShowPlan,
)
from roost.wire.translate import demand_of

_encode = msgspec.json.Encoder(order="sorted").encode


class Plans(Part):
    """Plans as objects, for operators."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        planning: Planning,
        windowing: Windowing,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store, self._roster, self._planning = store, roster, planning
        self._windowing = windowing
        self._clock, self._ids = clock, ids
        self._recommending = Recommending(store, planning, clock)

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return plan_routes(self)

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor plans that failed, and moves that name nothing."""
        check_plans(connection, found)

    # Reading

    async def list(self, asked: ListPlans) -> PlanPage:
        """Return plans, the newest first."""
        return await self._store.read(lambda connection: listed(connection, asked))

    async def get(self, plan: str, asked: ShowPlan | None = None) -> PlanDetail:
        """Return one plan with a page of its moves."""

        def question(connection: Connection) -> PlanDetail:
            return detail(connection, plan_row(connection, plan), self._roster, asked)

        return await self._store.read(question)

    async def recommend(self) -> FleetRecommendations:
        """Return what is wrong with the fleet, and what one plan would do about each of it."""
        return await self._recommending.fleet()

    async def maintenance(self, asked: PlanMaintenance) -> MaintenanceBody:
        """Return hosts in groups that may be away together, one group after the other."""
        return await plan_maintenance(self._planning, self._roster, asked)

    # Making

    async def create(
        self, body: CreatePlan, who: Principal, key: str | None = None
    ) -> PlanDetail | Answered:
        """Draft a plan, and keep it unless it is a dry run."""
        scope, digest = f"plan:{who.name}", sha256(_encode(body)).hexdigest()
        if key is not None and not body.dry_run:
            used = (await find_keys(self._store, [(scope, key)])).get((scope, key))
            if used is not None and used.digest == digest:
                return await self.get(used.answer)
            if used is not None:
                raise Conflict("this idempotency key was used for another request", key=key)
        now = self._clock.wall_ms()
        start, end = bounds_of(body, now)
        if given := spans_of(body, now):
            start, end = max(now, 1000 * given[0].start_s), 1000 * given[-1].end_s
        asked = await self._asked(body, who)
        taken = await self._store.read(taken_vms)
        draft = await self._planning.draft(asked, taken=taken, at_ms=start)
        asked.windows = await self._windowing.choose(body, draft)
        if body.window is not None and asked.windows:
            # Who is not to be disturbed by then is known only now.
            start, end = asked.windows[0].start_ms, asked.windows[-1].end_ms
            draft = await self._planning.draft(asked, taken=taken, at_ms=start)
        row = PlanRow(
            id="" if body.dry_run else self._ids.new("plan"),
            goal=body.goal,
            state=WAITING if body.apply else PLANNED,
            generation=1,
            asked=row_json(asked),
            found=row_json(found_in(draft, self._planning.host_names())),
            wave=0,
            replans=0,
            why="",
            starts_ms=start,
            ends_ms=end,
            created_ms=now,
            created_by=who.name,
            begun_ms=None,
            ended_ms=None,
        )
        moves = self._planning.rows(row.id, draft)
        if body.dry_run:
            return Answered(200, await asyncio.to_thread(drafted, row, moves, self._roster))

        def change(tx: Tx) -> str:
            made = use_key(tx, scope, key, digest, row.id)
            if made is None:
                writing.insert(tx, row, moves)
            return made or row.id

        return await self.get(await self._store.write(change, who.name))

    async def _asked(self, body: CreatePlan, who: Principal) -> Asked:
        """Return what is asked in the words of the ledger; refuse what does not belong to it."""
        wants = {"drain": "hosts", "move": "vms", "defragment": "demand"}.get(body.goal)
        for word in ("hosts", "vms", "demand", "to"):
            given = bool(getattr(body, word))
            if given and word != wants and not (word == "to" and body.goal == "move"):
                raise InvalidRequest(f"a plan to {body.goal} takes no {word!r}", goal=body.goal)
        if wants is not None and not getattr(body, wants):
            raise InvalidRequest(f"a plan to {body.goal} needs {wants!r}", goal=body.goal)
        if body.spare and body.goal not in ("consolidate", "spare"):
            raise InvalidRequest(f"a plan to {body.goal} takes no 'spare'", goal=body.goal)
        for host in (*body.hosts, *((body.to,) if body.to else ())):
            if self._roster.entry(host) is None:
                raise InvalidRequest(f"there is no host {host!r}", host=host)

        def ids(connection: Connection) -> list[str]:
            found = (vm_row(connection, ref, body.project, who).id for ref in body.vms)
            return list(dict.fromkeys(found))

        size = None
        if body.demand is not None:
            demand = demand_of(body.demand)
            if demand.devices is not None or demand.extended:
                raise InvalidRequest("room is made for cpu, memory and disk, not for devices")
            size = Size(demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
        return Asked(
            body.goal,
            list(dict.fromkeys(body.hosts)),
            await self._store.read(ids) if body.vms else [],
            body.to,
            size,
            body.per_host,
            body.at_once,
            body.most,
            spare=body.spare,
            per_link=body.per_link,
            not_converging=body.not_converging,
        )

    # Changing

    async def apply(self, plan: str, who: Principal) -> PlanDetail:
        """Let a plan begin, now or at its start."""
        return await self._turn(plan, who, (PLANNED,), WAITING, "plan.applied")

    async def pause(self, plan: str, who: Principal) -> PlanDetail:
        """Begin no more moves of a plan; those under way end."""
        why = f"paused by {who.name}"
        return await self._turn(plan, who, (WAITING, RUNNING), PAUSED, "plan.paused", why)

    async def resume(self, plan: str, who: Principal) -> PlanDetail:
        """Go on with a plan that was paused."""
        return await self._turn(plan, who, (PAUSED,), WAITING, "plan.resumed")

    async def cancel(self, plan: str, who: Principal) -> PlanDetail:
        """End a plan; moves that have not left their hosts are taken back."""

        def change(tx: Tx) -> None:
            row = writing.locked_plan(tx, plan)
            if row.state == CANCELLED:
                return
            if row.state in OVER:
                raise Conflict(f"plan {plan!r} is {row.state} already", plan=plan)
            writing.end(tx, row, CANCELLED, f"cancelled by {who.name}")

        await self._store.write(change, who.name)
        return await self.get(plan)

    async def _turn(
        self,
        plan: str,
        who: Principal,
        states: tuple[str, ...],
        state: str,
        kind: str,
        why: str = "",
    ) -> PlanDetail:
        """Bring a plan from one of some states to another; done already is no mistake."""
        done = (state, RUNNING) if state == WAITING else (state,)

        def change(tx: Tx) -> None:
            row = writing.locked_plan(tx, plan)
            if row.state in done and row.state not in states:
                return
            if row.state not in states:
                raise Conflict(
                    f"plan {plan!r} is {row.state}, not {' or '.join(states)}",
                    plan=plan,
                    state=row.state,
                )
            writing.change(tx, plan, kind, state=state, why=why, note=why)

        # Its moves are read afterwards: who writes would wait for it.
        await self._store.write(change, who.name)
        return await self.get(plan)
