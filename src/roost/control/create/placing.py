"""Give a VM that exists a host: from the queue, after a loss, or as the target of a move.

Same path as a create, one VM at a time: decide on the roster, claim in a transaction that compares
again, and on a loss catch up and decide anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from roost.base.errors import LedgerUnsettled, PlacementContended
from roost.control.create.drawing import Found, find_living, life_of
from roost.control.memory.follower import Follower
from roost.control.memory.holdings import ORDINARY, Life
from roost.control.memory.restore_detect import member_is_doubted
from roost.control.memory.roster import Roster
from roost.control.vms.requests import request_of
from roost.control.vms.ruling import host_of_claim, reads_amounts, reads_project
from roost.control.vms.views import placement_text
from roost.fleet.assign import mask_of
from roost.fleet.fleet import Fleet
from roost.ledger.claims.capacity import (
    MIGRATE_IN,
    RUN,
    ProjectUse,
    Promised,
    charge,
    claim_id,
    project_use,
    promised_on,
)
from roost.ledger.claims.holdsums import read_counters
from roost.ledger.schema.rows import Changes, ClaimRow, HoldRow, VMRow
from roost.ledger.schema.tables import claims, decisions, tombstones
from roost.ledger.store import Store
from roost.ledger.writes.membership import advance_groups, group_checks_hold
from roost.ledger.writes.transaction import ConstraintsMoved, Tx
from roost.model.flow import Claim, Placement, PlaceRequest, Rejection
from roost.model.kept import NOTHING_KEPT, Kept, counters_in_order, counters_of
from roost.model.states import ClaimKind
from roost.model.vm import VMSpec
from roost.placement.nearness import is_bound
from roost.placement.rejecting import without_fixes_on
from roost.placement.strategies import strategy_named
from roost.wire.answers import placement_body

_MOST_TRIES = 8


class Stale(Exception):
    """A placement that other commits have overtaken; `host` must not be tried again."""

    def __init__(self, host: int | None = None) -> None:
        super().__init__("the placement is out of date")
        self.host = host


def find_host(
    roster: Roster,
    vm: VMRow,
    *,
    only: str | None = None,
    never: tuple[str, ...] = (),
    explain: bool = True,
    spec: VMSpec | None = None,
    held: HoldRow | None = None,
) -> Placement | Rejection | None:
    """Place an existing VM on the fleet as if it had no host; nothing changes."""
    return look_for_host(
        roster, vm, only=only, never=never, explain=explain, spec=spec, held=held
    ).answer


def look_for_host(
    roster: Roster,
    vm: VMRow,
    *,
    only: str | None = None,
    never: tuple[str, ...] = (),
    explain: bool = True,
    spec: VMSpec | None = None,
    held: HoldRow | None = None,
) -> Found:
    """Place an existing VM as if it had no host, and say which reservation it would draw on.

    `held` is what a host keeps free for this VM. A refusal proposes nothing by which the VM would
    go to a host that it shall not go to: that is not its owner's rule, and cannot be lifted.
    """
    found = _look(roster, vm, only=only, never=never, explain=explain, spec=spec, held=held)
    if not never or not isinstance(found.answer, Rejection):
        return found
    return found._replace(answer=without_fixes_on(found.answer, never))


def _look(
    roster: Roster,
    vm: VMRow,
    *,
    only: str | None,
    never: tuple[str, ...],
    explain: bool,
    spec: VMSpec | None,
    held: HoldRow | None,
) -> Found:
    request = request_of(vm, roster, spec)
    if only is not None or never:
        constraints = request.constraints
        if only is not None and only in (constraints.pinned or (only,)):
            constraints = replace(constraints, pinned=(only,))
        elif only is not None:  # where it may go is not where it is sent: nothing is left
            never = (*never, *constraints.pinned)
        constraints = replace(constraints, excluded=(*constraints.excluded, *never))
        request = replace(request, constraints=constraints)
    fleet = roster.fleet
    life = life_of(roster, spec or roster.specs.of(vm), vm.project)
    ids = [claim_id(vm.id, kind) for kind in (RUN, MIGRATE_IN)]
    own = [fleet.vms.numbers.get(each) for each in ids]
    if own == [None, None] and held is None:
        return _decide(roster, request, life, explain=explain)
    # Its own claims must not stand in its way: neither their amounts nor its place in its groups.
    mark, version = fleet.mark(), fleet.version
    for number in own:
        if number is not None:
            fleet.remove(number)
    if held is not None:
        give_back_hold(roster, held, fleet)
    try:
        return _decide(roster, request, life, ids, explain=explain)
    finally:
        fleet.undo(mark)
        fleet.version = version


def give_back_hold(roster: Roster, held: HoldRow, fleet: Fleet) -> None:
    """Let a host have free what it keeps for one VM, as far as this process has heard of it."""
    entry = roster.hosts.get(held.host)
    if entry is not None:
        kept = fleet.kept.get(entry.fleet_row, NOTHING_KEPT)
        left = (max(0, k - h) for k, h in zip(kept.limits, held.limits, strict=True))
        given = dict(read_counters(held.counters))
        counters = {name: max(0, amount - given.get(name, 0)) for name, amount in kept.counters}
        fleet.keep_free(entry.fleet_row, Kept.of(left, counters_in_order(counters)))


def _decide(
    roster: Roster, request: PlaceRequest, life: Life, own: Sequence[str] = (), *, explain: bool
) -> Found:
    if life is not ORDINARY:
        return find_living(roster, request, life, without=own, explain=explain)
    found = roster.engine.find(request, runners_up=2)
    if found is not None or not explain:
        return Found(found)
    return Found(roster.engine.reject(request))


def claim_row(
    vm: VMRow, roster: Roster, placement: Placement, kind: ClaimKind, draws_on: str | None = None
) -> ClaimRow:
    """Return the claim that makes a placement durable."""
    demand = request_of(vm, roster).demand
    counters = counters_of(demand, placement.devices, placement.cells)
    claim = Claim(
        vm=vm.id,
        host=roster.by_fleet_row[placement.host_row].number,
        kind=kind,
        **vm.amounts._asdict(),
        counters=counters,
        devices=mask_of(placement.devices),
        cells=mask_of(placement.cells),
    )
    row = ClaimRow.of(claim)
    row.until_ms, row.draws_on = roster.specs.of(vm).until_ms, draws_on
    return row


def take(tx: Tx, vm: VMRow, claim: ClaimRow, seen: "Basis", cause: str, changes: Changes) -> None:
    """Charge a claim as it was decided, with its checks and its decision record."""
    if tx.find(tombstones, vm=vm.id, host=claim.host) is not None:
        raise Stale(claim.host)  # it still has to destroy an earlier copy
    tx.constraints = seen.constraints  # compared by the commit
    if not charge(tx, claim, seen.host_generation):
        raise Stale
    if seen.host_after is not None and not seen.host_after.is_as_read(
        promised_on(tx, claim.host), special=claim.is_special
    ):
        raise Stale  # a hard rule has read what the host promised
    if seen.project is not None and seen.project != project_use(tx, vm.project):
        raise Stale  # a hard rule has read what the project has
    if not group_checks_hold(tx, vm.id, seen.groups):
        raise Stale
    for key, host in seen.partners:
        found = tx.find(claims, id=key)
        if (None if found is None else found["host"]) != host:
            raise Stale  # one that it must be near to is somewhere else now
    if seen.groups and member_is_doubted(tx, [group for group, _ in seen.groups]):
        raise LedgerUnsettled(
            f"it is not known yet where other members of the groups of {vm.name!r} are", vm=vm.id
        )
    advance_groups(tx, vm.id, changes)
    changes.setdefault("claims", {})[claim.id] = claim
    # A process that lags may decide at the snapshot of an earlier decision: the later one counts.
    tx.remove(decisions, vm=vm.id, snapshot=seen.snapshot)
    tx.insert(
        decisions,
        {
            "vm": vm.id,
            "snapshot": seen.snapshot,
            "cause": cause,
            "answer": placement_text(placement_body(seen.placement, claim.host)),
            "at_ms": tx.at_ms,
        },
    )


class Basis(msgspec.Struct):
    """What a placement rests on: host, group and constraint generations."""

    placement: Placement
    host_generation: int
    groups: tuple[tuple[str, int], ...]
    snapshot: int
    constraints: int  # the generation of those it was decided under
    host_after: Promised | None = None  # what the host has promised then, if a rule read it
    project: ProjectUse | None = None  # what the VM's project has, if a rule read it
    #: Claims of those it must be near to, and on which host each was; None: on none.
    partners: tuple[tuple[str, int | None], ...] = ()


class Placing:
    """Places VMs that exist already, and claims their new hosts."""

    def __init__(self, store: Store, roster: Roster, follower: Follower) -> None:
        self._store, self._roster, self._follower = store, roster, follower

    async def place(
        self,
        vm: VMRow,
        commit: Callable[[Tx, Basis, ClaimRow], VMRow],
        kind: ClaimKind,
        actor: str,
        *,
        only: str | None = None,
        never: tuple[str, ...] = (),
        explain: bool = True,
        held: HoldRow | None = None,
    ) -> VMRow | Rejection | None:
        """Place a VM and let `commit` write the claim; place it anew when that raises `Stale`."""
        if vm.id not in self._roster.specs:
            await self._follower.catch_up()  # another process has just created it
        for tried in range(_MOST_TRIES):
            # Others may have made room: why there is none is told once that was looked at.
            stale = tried == 0 and self._store.shared
            why = explain and not stale
            looked = look_for_host(self._roster, vm, only=only, never=never, explain=why, held=held)
            found = looked.answer
            if not isinstance(found, Placement):
                if stale:
                    await self._follower.catch_up()
                    continue
                return found
            if vm.host is None and (relaxed := self._roster.rulebook.relaxed_for(vm.id)):
                found = found._replace(relaxed=relaxed)
            seen = self._seen(vm, found)
            claim = claim_row(vm, self._roster, found, kind, looked.draws_on)
            try:
                row = await self._store.write(
                    lambda tx: commit(tx, seen, claim),  # noqa: B023
                    actor,
                )
            except ConstraintsMoved:
                await self._follower.catch_up()
                continue
            except Stale as lost:
                if (name := self._roster.host_name(lost.host)) is not None:
                    never = (*never, name)
                await self._follower.catch_up()
                continue
            if strategy_named(found.strategy).turns:
                self._roster.engine.cursor = found.cursor
            return row
        raise PlacementContended(f"other writers took the room for {vm.name!r} each time")

    def _seen(self, vm: VMRow, placement: Placement) -> Basis:
        entry = self._roster.by_fleet_row[placement.host_row]
        groups = self._roster.groups_of.get(vm.id, ())
        after = None
        request = request_of(vm, self._roster)
        if reads_amounts(self._roster.engine, request):
            before = self._roster.promised_on(placement.host_row)
            after = before.plus(vm.amounts, 1, request.demand.extended)
        return Basis(
            placement,
            entry.generation,
            tuple((group, self._roster.groups[group].generation) for group in groups),
            self._follower.applied,
            self._roster.rulebook.generation,
            after,
            self._roster.project_use(vm.project)
            if reads_project(self._roster.engine, request)
            else None,
            tuple(
                (
                    talk.key,
                    None if (at := host_of_claim(self._roster, talk.key)) is None else at.number,
                )
                for talk in request.talks
                if is_bound(talk)
            ),
        )
