"""Say after which few moves of others a VM that is refused would fit, and who makes them.

What a plan to defragment would find with so few moves, on a copy of the fleet: nothing is kept, and
no create waits for it. Told are those who see the VMs of all projects.
"""

import shlex
from collections.abc import Iterator

from roost.base.errors import SearchBusy
from roost.base.units import exact_bytes, exact_cpu
from roost.control.memory.roster import Roster
from roost.control.plans.planning import NEWCOMER, Planning
from roost.control.plans.reading import taken_vms
from roost.fleet.fleet import Fleet
from roost.ledger.store import Store
from roost.model.flow import PlaceRequest
from roost.model.reasons import RESOURCE_REASONS
from roost.model.resources import Demand
from roost.parts.access import Principal
from roost.planner.board import Board
from roost.planner.drafting import Draft, Wish, draft
from roost.planner.goals.defragment import FEW
from roost.wire.bodies import AfterMovesBody, MoveAwayBody, RejectionBody

#: Moves that an answer names; more are a plan's business.
MOST_MOVES = FEW
#: VMs of a fleet on which moves are looked for: a copy of more takes too long for an answer.
MOST_VMS = 50_000
_AMOUNTS = frozenset(reason.value for reason in RESOURCE_REASONS)


class AfterMoves:
    """Looks for moves on a copy of the fleet, unless somebody drafts a plan now."""

    def __init__(self, store: Store, roster: Roster, planning: Planning) -> None:
        self._store, self._roster, self._planning = store, roster, planning

    async def tell_moves(self, found: RejectionBody, request: PlaceRequest, who: Principal) -> None:
        """Add to a refusal for want of room the moves after which the VM would fit, if few do."""
        if who.project is not None or not may_help(found, self._roster.fleet):
            return
        if self._planning.busy:  # why a VM does not fit is not worth waiting for a plan's draft
            return
        taken = await self._store.read(taken_vms)
        try:
            found.after_moves = await self._planning.ask(
                lambda board: after_moves(board, request, live=True), MOST_MOVES, taken
            )
        except SearchBusy:  # the refusal stands without it
            return


def may_help(found: RejectionBody, fleet: Fleet) -> bool:
    """Say whether a VM is refused for amounts that not every host lacks when it is empty."""
    if found.larger_than_any_host or len(fleet.vms.numbers) > MOST_VMS:
        return False
    return any(each.reason in _AMOUNTS for each in found.reasons)


def after_moves(board: Board, request: PlaceRequest, *, live: bool) -> AfterMovesBody | None:
    """Return the moves on a board after which a VM would fit; None if no few moves do it.

    `live`: with the commands that make them on a server.
    """
    found = draft(board, Wish("defragment", request=request, few=True))
    if found.blockers or not 0 < len(found.moves) <= MOST_MOVES:
        return None
    return AfterMovesBody(
        host=board.name(found.moves[0].source),
        moves=[
            MoveAwayBody(
                vm=each.who.vm,
                name=each.who.name,
                project=each.who.request.project or "",
                source=board.name(each.source),
                target=board.name(each.target),
            )
            for each in found.moves
        ],
        commands=list(_commands(board, found, request)) if live else [],
    )


def _commands(board: Board, found: Draft, request: PlaceRequest) -> Iterator[str]:
    """Return the commands that make the moves: a plan, if the VM's size is all that it asks."""
    demand = request.demand
    plain = PlaceRequest(NEWCOMER, Demand(demand.cpu_milli, demand.memory_bytes, demand.disk_bytes))
    same = demand == plain.demand and not request.groups
    if same and board.world.terms_of(request) == board.world.terms_of(plain):
        size = ["--cpu", exact_cpu(demand.cpu_milli), "--memory", exact_bytes(demand.memory_bytes)]
        if demand.disk_bytes:
            size += ["--disk", exact_bytes(demand.disk_bytes)]
        words = ["roost", "plan", "create", "--goal", "defragment", *size]
        yield shlex.join([*words, "--most", str(MOST_MOVES), "--apply"])
        return
    for each in found.moves:
        words = ["roost", "vm", "migrate", each.who.name, "--to", board.name(each.target)]
        if each.who.request.project:
            words += ["--project", each.who.request.project]
        yield shlex.join(words)
