"""Ask about preemptions: list them, say who makes or would make room for a VM, ask for it.

Whom a member of a project displaces it learns by name only where it may see that project: of others
it is told how many there are, and how they leave. What is refused is not explained to it, since the
reason may be another project's VM, or group.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, bindparam, select

from roost.base.errors import Conflict
from roost.control.create.drawing import life_of
from roost.control.memory.displacing import may_displace
from roost.control.memory.holdings import ORDINARY
from roost.control.memory.roster import Roster
from roost.control.preempt.choosing import Choosing
from roost.control.preempt.record import preemption_body, victims_of
from roost.control.preempt.routes import preemption_routes
from roost.control.preempt.tending import Preempting
from roost.control.vms.lookup import vm_row
from roost.control.vms.requests import request_of
from roost.ledger.schema.rows import PreemptionRow, VMRow
from roost.ledger.schema.tables import preemptions, vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.model.flow import PlaceRequest
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.bodies import PreemptionBody
from roost.wire.priorities import ListPreemptions, PreemptionAnswer, PreemptionPage

_SOME = select(vms).where(vms.c.id.in_(bindparam("ids", expanding=True)))
#: What stands for the name of a VM that somebody may not see.
_HIDDEN = "another project's"
_NOBODY = "no set of VMs of lower priority that may leave makes enough room on a host that would do"


class Asking(Part):
    """Answers questions about preemptions, and begins those that are asked for."""

    def __init__(
        self, store: Store, roster: Roster, choosing: Choosing, preempting: Preempting
    ) -> None:
        self._store, self._roster = store, roster
        self._choosing, self._preempting = choosing, preempting

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return preemption_routes(self)

    async def list(self, asked: ListPreemptions, who: Principal) -> PreemptionPage:
        """Return preemptions under way, in the order of the VMs' ids."""
        query = select(preemptions).order_by(preemptions.c.vm).limit(asked.limit + 1)
        if asked.after is not None:
            query = query.where(preemptions.c.vm > asked.after)
        if who.project is not None:
            query = query.where(preemptions.c.project == who.project)

        def question(connection: Connection) -> PreemptionPage:
            rows = [PreemptionRow(**row) for row in connection.execute(query).mappings()]
            page = rows[: asked.limit]
            found = [self._shown(connection, row, who) for row in page]
            return PreemptionPage(
                preemptions=[each for each in found if each is not None],
                next=page[-1].vm if len(rows) > asked.limit else None,
            )

        return await self._store.read(question)

    def _shown(
        self, connection: Connection, row: PreemptionRow, who: Principal
    ) -> PreemptionBody | None:
        ids = [row.vm, *(each.vm for each in victims_of(row))]
        found = connection.execute(_SOME, {"ids": ids}).mappings()
        known = {each["id"]: VMRow(**each) for each in found}
        if row.vm not in known:
            return None
        body = preemption_body(row, known[row.vm], list(known.values()), self._roster)
        return _as_seen(body, who)

    async def get(self, ref: str, project: str | None, who: Principal) -> PreemptionAnswer:
        """Say who makes room for a VM, or who would if it was asked for; nothing changes."""
        vm, body = await self._store.read(lambda c: self._under_way(c, ref, project, who))
        if body is not None:
            return PreemptionAnswer(preemption=body)
        why = self._why_not(vm)
        if why:
            return PreemptionAnswer(why=why)
        return await self.would(request_of(vm, self._roster), who, vm.id)

    def _under_way(
        self, connection: Connection, ref: str, project: str | None, who: Principal
    ) -> tuple[VMRow, PreemptionBody | None]:
        vm = vm_row(connection, ref, project, who)
        row = find_row(connection, preemptions, {"vm": vm.id})
        if row is None:
            return vm, None
        return vm, self._shown(connection, PreemptionRow(**row), who)

    async def would(self, request: PlaceRequest, who: Principal, vm: str = "") -> PreemptionAnswer:
        """Say who would make room for a request."""
        plan = await self._choosing.choose(request, but=vm)
        if plan is None:
            return PreemptionAnswer(why=_NOBODY)
        body = plan.body(vm, request.name, request.project or "", request.priority)
        return PreemptionAnswer(preemption=_as_seen(body, who))

    async def planned(self, request: PlaceRequest, who: Principal) -> PreemptionBody | None:
        """Say who would make room for a request; None when nobody can."""
        return (await self.would(request, who)).preemption

    async def begin_for(self, vm: VMRow) -> bool:
        """Begin to make room for a VM that waits; False when nobody can."""
        return await self._preempting.begin_for(vm)

    async def begin(self, ref: str, project: str | None, who: Principal) -> PreemptionAnswer:
        """Begin to make room for a VM that waits; what is under way already stays as it is."""
        vm, body = await self._store.read(lambda c: self._under_way(c, ref, project, who))
        if body is not None:
            return PreemptionAnswer(preemption=body)
        why = self._why_not(vm)
        if why:
            raise Conflict(f"VM {vm.name!r} displaces nobody: {why}", vm=vm.id)
        try:
            begun = await self._preempting.begin_for(vm)
        except Conflict as error:
            if who.project is None:
                raise
            raise Conflict(  # what has changed may be a VM or a group of somebody else
                f"what VM {vm.name!r} waits for has changed meanwhile, and no room is made yet",
                vm=vm.id,
                hint="Maybe ask again.",
            ) from error
        if not begun:
            return PreemptionAnswer(why=_NOBODY)
        return await self.get(ref, project, who)

    def _why_not(self, vm: VMRow) -> str:
        """Say why a VM may displace nobody; empty if it may."""
        spec = self._roster.specs.get(vm.id)
        if vm.host is not None or vm.pending is None:
            return "it does not wait for a host"
        if spec is None or not may_displace(self._roster, spec.priority_class, spec.policy):
            if spec is not None and self._roster.rulebook.preemption_of(spec.policy) == "never":
                return f"its policy {spec.policy!r} lets it displace nobody"
            return "it has no priority class that preempts lower ones"
        if life_of(self._roster, spec, vm.project) is not ORDINARY:
            return "it ends, or has a reservation, for which no room is made yet"
        if vm.id in self._roster.displaced:
            return "it was displaced itself and has not run since"
        return ""


def _as_seen(body: PreemptionBody, who: Principal) -> PreemptionBody:
    """Hide the names of VMs that somebody may not see."""
    if who.project is None:
        return body
    victims = [
        each
        if each.project == who.project
        else msgspec.structs.replace(each, vm="", name=_HIDDEN, project="", target="")
        for each in body.victims
    ]
    return msgspec.structs.replace(body, victims=victims)
