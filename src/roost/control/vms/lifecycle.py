"""What users do with VMs that exist: read, list, start, stop, restart, resize, delete, explain.

Every change is one transaction that moves the VM's generation; the agent follows when it hears of
it. Nothing waits for the agent here.
"""

from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import Connection, select
from sqlalchemy.sql.elements import ColumnElement

from roost.analysis.store import SeriesStore
from roost.base.errors import Conflict, NotFound, PlacementContended
from roost.control.memory.follower import Follower
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.vms.checking import check_vms
from roost.control.vms.deletion import remove_deleted
from roost.control.vms.idle import tell_idle
from roost.control.vms.lookup import locked_vm, require_projects, vm_row
from roost.control.vms.naming_moves import NamesMoves
from roost.control.vms.requests import request_of
from roost.control.vms.resizing import ChangedSince, Judged, resize, wanted_amounts
from roost.control.vms.routes import vm_routes
from roost.control.vms.ruling import (
    host_of_claim,
    promised_when_grown,
    refused_where_it_is,
    used_when_resized,
)
from roost.control.vms.setting import change_vm
from roost.control.vms.states import in_state
from roost.control.vms.use import read_use
from roost.control.vms.views import decided_placement, explanation_body, vm_body
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import ConstraintsMoved, Tx, row_json
from roost.model.flow import RejectionCode
from roost.model.vm import VMSpec
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.placement.explain import explain as explain_request
from roost.wire.answers import no_fit
from roost.wire.bodies import (
    ExplanationBody,
    PlacementBody,
    RejectionBody,
    ResizeVM,
    SetVM,
    VMBody,
    VMPage,
)
from roost.wire.queries import VMQuery

#: Times that growth is judged again before it is called contended.
MOST_TRIES = 8
_POWER_ASKED = {"running": "vm.start_asked", "stopped": "vm.stop_asked"}

#: Orders every host that may have a copy of a VM to destroy it; a move ends with it.
Destroy = Callable[[Tx, VMRow], VMRow]


class Lifecycle(Part):
    """Reads, starts, stops, resizes and deletes VMs that exist."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        destroy: Destroy,
        series: SeriesStore,
        lineage: Lineage,
    ) -> None:
        self._store, self._roster, self._destroy = store, roster, destroy
        self._follower, self._series, self._lineage = follower, series, lineage
        self.names_moves: NamesMoves | None = None

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return vm_routes(self)

    def examine(self, connection: Connection, found: Examination) -> None:
        """See whether VMs have the claims, specs and tombstones that they should have."""
        check_vms(connection, found)

    # Reading

    async def get(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Return one VM, with the placement that brought it where it is and what it uses."""

        def question(
            connection: Connection,
        ) -> tuple[VMRow, VMSpec | None, PlacementBody | None]:
            vm = vm_row(connection, ref, project, who)
            spec = self._roster.specs.read(connection, [vm]).get(vm.id)
            return vm, spec, decided_placement(connection, vm)

        vm, spec, placement = await self._store.read(question)
        used = await read_use(self._series, vm)
        return msgspec.structs.replace(vm_body(vm, spec, self._roster, placement), used=used)

    async def list(self, query: VMQuery, who: Principal) -> VMPage:
        """Return VMs in the order of their ids."""
        where: list[ColumnElement[bool]] = []
        project = query.project
        if who.project is not None:
            if project not in (None, who.project):
                return VMPage(vms=[])
            project = who.project
        if project is not None:
            where.append(vms.c.project == project)
        if query.name is not None:
            where.append(vms.c.name == query.name)
        if query.after is not None:
            where.append(vms.c.id > query.after)
        if query.host is not None:
            entry = self._roster.entry(query.host)
            if entry is None and who.project is None:
                raise NotFound(f"no host {query.host!r}", host=query.host)
            if entry is None:  # which hosts there are is not told to a member
                return VMPage(vms=[])
            where.append(vms.c.host == entry.number)
        for key, value in query.labels.items():
            where.append(vms.c.labels.contains(f"\n{key}={value}\n", autoescape=True))
        if query.state is not None:
            where.append(in_state(query.state))

        def question(connection: Connection) -> tuple[list[VMRow], dict[str, VMSpec]]:
            if who.project is None and project is not None:
                require_projects(connection, [project])
            statement = select(vms).where(*where).order_by(vms.c.id).limit(query.limit + 1)
            rows = [VMRow(**row) for row in connection.execute(statement).mappings()]
            return rows, self._roster.specs.read(connection, rows)

        found, specs = await self._store.read(question)
        page = [vm_body(vm, specs.get(vm.id), self._roster) for vm in found[: query.limit]]
        return VMPage(vms=page, next=page[-1].id if len(found) > query.limit else None)

    async def explain(
        self, ref: str, project: str | None, hosts: Sequence[str], who: Principal
    ) -> ExplanationBody:
        """Say what every host's filters think of a VM, as if it were nowhere."""

        def question(connection: Connection) -> tuple[VMRow, VMSpec | None]:
            vm = vm_row(connection, ref, project, who)
            return vm, self._roster.specs.read(connection, [vm]).get(vm.id)

        vm, spec = await self._store.read(question)
        fleet = self._roster.fleet
        for host in hosts:
            fleet.row(host)
        request = request_of(vm, self._roster, spec)
        number = fleet.vms.numbers.get(f"{vm.id}:run")
        mark, version = fleet.mark(), fleet.version
        if number is not None:
            fleet.remove(number)
        try:
            found = explain_request(self._roster.engine, request)
            told = explanation_body(found, hosts, self._roster.by_fleet_row)
        finally:
            fleet.undo(mark)
            fleet.version = version
        if isinstance(told.answer, RejectionBody):
            await tell_idle(told.answer, self._store, who, asks_for=vm.id)
            if vm.host is None and not hosts and self.names_moves is not None:
                await self.names_moves.tell_moves(told.answer, request, who)
        return told

    # Changing

    async def start(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Ask for a VM to run."""
        return await self._set_power(ref, project, who, "running")

    async def stop(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Ask for a VM to be stopped; it keeps its host."""
        return await self._set_power(ref, project, who, "stopped")

    async def _set_power(self, ref: str, project: str | None, who: Principal, power: str) -> VMBody:
        def change(tx: Tx) -> VMRow:
            vm = _present(locked_vm(tx, ref, project, who))
            if vm.desired == power:
                return vm
            if power == "running" and vm.host is None and vm.pending is None:
                # It was found nowhere after an old ledger was restored: the queue places it anew.
                return _bump(tx, vm, _POWER_ASKED[power], desired=power, pending=_waits(vm))
            return _bump(tx, vm, _POWER_ASKED[power], desired=power)

        return await self._write(change, who)

    async def pause(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Ask for a running VM to stand still, its memory kept."""

        def change(tx: Tx) -> VMRow:
            vm = _present(locked_vm(tx, ref, project, who))
            if vm.desired == "stopped":
                raise Conflict(f"VM {vm.name!r} is stopped", vm=vm.id)
            if vm.desired == "paused":
                return vm
            return _bump(tx, vm, "vm.pause_asked", desired="paused")

        return await self._write(change, who)

    async def resume(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Ask for a paused VM to go on."""

        def change(tx: Tx) -> VMRow:
            vm = _present(locked_vm(tx, ref, project, who))
            if vm.desired == "stopped":
                raise Conflict(f"VM {vm.name!r} is stopped", vm=vm.id, hint="Maybe start it.")
            if vm.desired == "running":
                return vm
            return _bump(tx, vm, "vm.resume_asked", desired="running")

        return await self._write(change, who)

    async def restart(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Ask for a running VM to be restarted once."""

        def change(tx: Tx) -> VMRow:
            vm = _present(locked_vm(tx, ref, project, who))
            if vm.desired != "running":
                raise Conflict(f"VM {vm.name!r} is stopped", vm=vm.id, hint="Maybe start it.")
            return _bump(tx, vm, "vm.restart_asked", restarts=vm.restarts + 1)

        return await self._write(change, who)

    async def resize(self, ref: str, project: str | None, body: ResizeVM, who: Principal) -> VMBody:
        """Give a VM new amounts on the host where it is; more of them only as rules allow."""
        for _ in range(MOST_TRIES):
            try:
                judged = await self._judge_growth(ref, project, body, who)

                def change(tx: Tx) -> VMRow:
                    tx.constraints = judged.constraints  # noqa: B023
                    return resize(tx, ref, project, body, who, judged)  # noqa: B023

                return await self._write(change, who)
            except (ConstraintsMoved, ChangedSince):
                await self._follower.catch_up()
        raise PlacementContended(f"others changed the VM {ref!r}, its host or the rules each time")

    async def _judge_growth(
        self, ref: str, project: str | None, body: ResizeVM, who: Principal
    ) -> Judged:
        """Refuse growth that a hard rule forbids; return what was judged, and by what.

        A VM that a rule finds in the wrong place may shrink there.
        """

        def question(connection: Connection) -> tuple[VMRow, VMSpec | None]:
            vm = vm_row(connection, ref, project, who)
            return vm, self._roster.specs.read(connection, [vm]).get(vm.id)

        vm, spec = await self._store.read(question)
        under = self._roster.rulebook.generation
        new = wanted_amounts(vm, body)
        if new.greatest(vm.amounts) == vm.amounts:
            return Judged(vm)
        if vm.host is None or not self._roster.engine.rules:
            return Judged(vm, under)
        if spec is None:
            raise Conflict(
                f"what VM {vm.name!r} asked for cannot be read, so no rule can say whether it may "
                "grow",
                vm=vm.id,
            )
        grown = msgspec.structs.replace(vm, **new._asdict())
        request = request_of(grown, self._roster, spec)
        host = host_of_claim(self._roster, request.key)
        if host is None or host.number != vm.host:
            raise ChangedSince  # this process has not heard of where it is
        refused = refused_where_it_is(self._roster, request, host)
        if refused is not None:
            raise no_fit(refused)
        return Judged(
            vm,
            under,
            host.generation,
            promised_when_grown(self._roster, request, host),
            used_when_resized(self._roster, request, vm.amounts),
        )

    async def set(self, ref: str, project: str | None, body: SetVM, who: Principal) -> VMBody:
        """Set a VM's name, labels, priority, hosts, or where it starts after a loss of its host.

        To stay with its host is as good as a start there: not on the word of a ledger that may be
        old, by which a VM that was recovered since is still at its home of before.
        """
        if body.restart == "here":
            await self._lineage.require_sure()
        changed = await self._write(
            lambda tx: change_vm(tx, ref, project, body, who, self._roster), who
        )
        await self._follower.catch_up()  # the roster still has the spec of before
        return await self.get(changed.id, None, who)

    async def delete(self, ref: str, project: str | None, who: Principal) -> VMBody:
        """Ask for a VM to be destroyed; it is gone when its agent has said so.

        Its capacity stays claimed until then: what a host still runs is not free.
        """

        def change(tx: Tx) -> VMRow:
            vm = locked_vm(tx, ref, project, who)
            if vm.desired == "absent":
                return vm
            if vm.host is None:
                remove_deleted(tx, vm, "it had no host")
                vm.desired = "absent"
                return vm
            return self._destroy(tx, vm)

        return await self._write(change, who)

    async def _write(self, change: Callable[[Tx], VMRow], who: Principal) -> VMBody:
        def with_spec(tx: Tx) -> tuple[VMRow, VMSpec | None]:
            vm = change(tx)
            return vm, self._roster.specs.read(tx.connection, [vm]).get(vm.id)

        vm, spec = await self._store.write(with_spec, who.name)
        return vm_body(vm, spec, self._roster)


def _present(vm: VMRow) -> VMRow:
    if vm.desired == "absent":
        raise Conflict(f"VM {vm.name!r} is being deleted", vm=vm.id)
    return vm


def _bump(tx: Tx, vm: VMRow, kind: str, **values: object) -> VMRow:
    row = tx.change(vms, {"id": vm.id}, generation=Plus(1), **values)
    assert row is not None
    tx.event(kind, f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project)
    return VMRow(**row)


def _waits(vm: VMRow) -> str:
    return row_json(
        RejectionBody(
            vm=vm.name,
            code=RejectionCode.NO_AVAILABLE_AGENTS,
            message="it has no host yet",
            strategy=vm.strategy,
            hosts=0,
        )
    )
