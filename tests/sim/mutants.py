"""Realistic mistakes, each planted into the production code; a campaign must find every one.

A mutant is a function that patches modules. Its docstring says what was done wrong; the words
before the colon are its name. How many worlds find each:

    python -m tests.sim.finding --worlds 60 --jobs 2
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from sqlalchemy import update

from roost.agent import converge, reconciler
from roost.agent.reconciler import Reconciler
from roost.agent.talk.session import Session
from roost.base.errors import Unavailable
from roost.control.agents import intake
from roost.control.create import placing, queueing
from roost.control.groups import groups
from roost.control.memory import holdings
from roost.control.memory.rulebook import Rulebook
from roost.control.moves import handover, moving
from roost.control.moves.machine import (
    SENT,
    TABLE,
    Case,
    Complete,
    Effect,
    GiveUpBoth,
    GoBack,
    Recall,
)
from roost.control.plans import keepingroom, writing
from roost.control.plans.planning import Planning
from roost.control.preempt import beginning, choosing, displacing
from roost.control.rules import switching
from roost.control.survive import liveness, recover
from roost.control.vms import deletion, lifecycle, restart_policy
from roost.fleet.fleet import Fleet
from roost.hostkit.failures import DriverError
from roost.ledger.claims import capacity, holding, holdsums
from roost.ledger.schema.rows import ConstraintRow, VMRow
from roost.ledger.schema.tables import constraints, host_amounts
from roost.ledger.sqlite import claims as sqliteclaims
from roost.ledger.upkeep import base
from roost.ledger.writes.transaction import Tx
from roost.model.flow import PlaceRequest
from roost.sim.actors.database import PlaneStore

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}
#: Mistakes that everybody makes once; a campaign that misses one of them is worth little.
NAMED = (
    "forgotten re-check",
    "absolute write",
    "lost tombstone",
    "lease counted from receipt",
    "double release",
    "off by one",
    "stale generation",
    "ack before commit",
    "missing fence",
    "reordered report",
)


def mutant(plant: Callable[[Patch], None]) -> None:
    assert plant.__doc__
    MUTANTS[plant.__doc__] = plant


def plant(mistake: str, patch: Patch) -> None:
    """Plant the mistake whose description begins like this."""
    found = [each for name, each in MUTANTS.items() if name.startswith(mistake)]
    assert len(found) == 1, f"{len(found)} mistakes are called {mistake!r}"
    found[0](patch)


def names() -> list[str]:
    """Return what each mistake is called."""
    return [name.partition(":")[0] for name in MUTANTS]


def _without(statement: str, *conditions: str) -> str:
    """Return an SQL statement without the lines, or parts of lines, that hold these conditions."""
    unwanted = (*conditions, "u.generation")
    lines = statement.splitlines()
    return "\n".join(line for line in lines if not any(each in line for each in unwanted))


def _charge_hosts(patch: Patch, update: str) -> None:
    patch.setattr(capacity, "CHARGE_HOSTS", capacity.CHARGE_HOSTS._replace(update=update))


# Claims


@mutant
def _(patch: Patch) -> None:
    """forgotten re-check: creates are committed without asking whether there is still room"""
    _charge_hosts(patch, _without(capacity.CHARGE_HOSTS.update, "_capacity"))


@mutant
def _(patch: Patch) -> None:
    """absolute write: a release sets what the host had promised when the claim was first seen"""

    def release(tx: Tx, claim) -> None:
        row = tx.row(host_amounts.select().where(host_amounts.c.host == claim.host))
        before = _seen.setdefault(claim.id, row["cpu_milli_committed"])
        charging_release(tx, claim)
        tx.connection.execute(
            update(host_amounts)
            .where(host_amounts.c.host == claim.host)
            .values(cpu_milli_committed=max(0, before - claim.cpu_milli))
        )

    _seen: dict[str, int] = {}
    charging_release = capacity.release
    for module in (capacity, deletion, recover, handover):
        patch.setattr(module, "release", release)


@mutant
def _(patch: Patch) -> None:
    """double release: the claim of a deleted VM is given back twice"""
    real = deletion.release

    def release(tx: Tx, claim) -> None:
        real(tx, claim)
        capacity.charge_host(tx, claim.host, claim.amounts.negative(), -1)

    patch.setattr(deletion, "release", release)


@mutant
def _(patch: Patch) -> None:
    """off by one: a host takes one VM more than it has room for"""
    text = _without(capacity.CHARGE_HOSTS.update)
    _charge_hosts(patch, text.replace("t.cpu_milli_capacity", "t.cpu_milli_capacity + 1000"))


@mutant
def _(patch: Patch) -> None:
    """ack before commit: a create is answered although the database refused it"""
    real = PlaneStore.claim

    async def claim(self, proposals, actors, snapshot, *, atomic=False):
        try:
            return await real(self, proposals, actors, snapshot, atomic=atomic)
        except Unavailable:
            return [sqliteclaims.KEPT] * len(proposals)

    patch.setattr(PlaneStore, "claim", claim)


@mutant
def _(patch: Patch) -> None:
    """left in the sums: the fleet in memory forgets a VM but not what it took of its host"""
    patch.setattr(Fleet, "remove", lambda self, number: self.vms.remove(number))


# Orders and reports


@mutant
def _(patch: Patch) -> None:
    """stale generation: an agent carries out orders older than what it has done"""
    patch.setattr(converge, "carried_out", lambda record, local: 0)


@mutant
def _(patch: Patch) -> None:
    """reordered report: the last word counts, however old it is"""
    real = intake._take_from_host

    def take(tx: Tx, vm: VMRow, seen) -> None:
        vm.observed_generation = 0
        real(tx, vm, seen)

    patch.setattr(intake, "_take_from_host", take)


@mutant
def _(patch: Patch) -> None:
    """lost tombstone: the source of a move is not told to clean up"""
    patch.setattr(handover, "order_destruction", lambda tx, vm, host, changes: None)


@mutant
def _(patch: Patch) -> None:
    """early word: an agent destroys a VM, and says so, before it has written that down"""

    async def settle(self: Reconciler, vm_id, order) -> None:
        try:
            await real(self, vm_id, order)
        except DriverError:
            if not isinstance(order, reconciler.Tombstone):
                raise
            self._records[vm_id] = reconciler.Record(vm_id, generation=order.generation, gone=True)

    real = Reconciler._settle
    patch.setattr(Reconciler, "_settle", settle)


# Leases and fences


@mutant
def _(patch: Patch) -> None:
    """lease counted from receipt: the agent adds the lease to when it heard of the renewal"""
    real = Session._renewed

    def renewed(self: Session, number: int) -> None:
        if number in self._lease._sent:
            self._lease._sent[number] = self._clock.monotonic()
        real(self, number)

    patch.setattr(Session, "_renewed", renewed)


@mutant
def _(patch: Patch) -> None:
    """renewal before the ledger: leases are renewed before it is written that hosts were heard"""
    real = liveness.Evidence.heard

    def heard(self, host: int, epoch: int, renew) -> None:
        renew(True)
        real(self, host, epoch, lambda renewed: None if renewed else renew(False))

    patch.setattr(liveness.Evidence, "heard", heard)


@mutant
def _(patch: Patch) -> None:
    """missing fence: VMs of a silent host are restarted before its lease is over"""

    async def try_to_fence(self, entry) -> None:
        silence = self._watcher.silences.get(entry.number)
        if silence is not None:
            await self._fence(entry, "lease", "impatience", silence.evidence)

    patch.setattr(recover.Recover, "_try_to_fence", try_to_fence)


@mutant
def _(patch: Patch) -> None:
    """old list: after a gap in its lease an agent starts VMs from the list it has on hand"""
    real = converge.next_step

    def next_step(order, record, local, leased):
        held = converge.Leased.CONFIRMED if leased is converge.Leased.HELD else leased
        return real(order, record, local, held)

    patch.setattr(reconciler, "next_step", next_step)


# Moves


def instead_of_recalling(patch: Patch, effect: type[Effect], but: Case) -> None:
    """Write another effect into every cell of the machine's table that recalls a move."""
    for (case, phase), cell in list(TABLE.items()):
        if Recall in cell and case != but:
            patch.setitem(TABLE, (case, phase), (effect,))


@mutant
def _(patch: Patch) -> None:
    """target not asked: a fenced source's VM is restarted without asking the target of its move"""
    patch.setattr(recover, "SENT", ())
    for phase in SENT:
        patch.setitem(TABLE, ("recovered", phase), (GiveUpBoth,))


@mutant
def _(patch: Patch) -> None:
    """source's word: the ledger calls the target a VM's home when the source has sent it"""
    for phase in ("moving", "cancelling"):
        patch.setitem(TABLE, ("source moved", phase), (Complete,))


@mutant
def _(patch: Patch) -> None:
    """no waiting for the target: a move is taken back before the target has answered"""
    instead_of_recalling(patch, GoBack, but="late")


@mutant
def _(patch: Patch) -> None:
    """no waiting for the refuser: a refused VM goes elsewhere before its host let go of it"""
    patch.setattr(queueing, "claims_of", lambda tx, vm: {})


@mutant
def _(patch: Patch) -> None:
    """unasked rule: a group gets members and rules without asking whether they hold"""
    patch.setattr(groups, "_require_holds", lambda *given: None)


@mutant
def _(patch: Patch) -> None:
    """grown past a rule: a VM grows where a hard rule would not let it be placed"""
    patch.setattr(lifecycle, "refused_where_it_is", lambda *given: None)


@mutant
def _(patch: Patch) -> None:
    """deaf engine: the rulebook hears of a change and the engine goes on with the rules before"""
    real = Rulebook.follow

    def follow(self: Rulebook, changes) -> bool:
        real(self, changes)
        return False

    patch.setattr(Rulebook, "follow", follow)


@mutant
def _(patch: Patch) -> None:
    """quiet switch: a rule is switched on in its row, and the rules' generation stays"""

    def switch(tx: Tx, row: ConstraintRow, now_ms: int, *, active: bool) -> None:
        found = tx.change(constraints, {"id": row.id}, active=active, switched_ms=now_ms)
        tx.event("constraint.switched_on", f"constraint/{row.id}", {"constraints": {row.id: found}})

    patch.setattr(switching, "switch", switch)


@mutant
def _(patch: Patch) -> None:
    """impatient rule: a hard rule is soft for a VM as soon as it waits"""
    patch.setattr(Rulebook, "relaxed_for", lambda self, vm: tuple(self.relaxations.get(vm, ())))


@mutant
def _(patch: Patch) -> None:
    """left its policy: a VM that waits, moves or lost its host is placed as if it had no policy"""
    real = placing.request_of

    def request_of(*given, **named) -> PlaceRequest:
        return replace(real(*given, **named), policy="")

    patch.setattr(placing, "request_of", request_of)


# Reservations


@mutant
def _(patch: Patch) -> None:
    """given away: creates are committed without asking what their host holds for others"""
    text = capacity.CHARGE_HOSTS.update
    for name in holding.HELD:
        text = text.replace(f" + t.{name}", "")
    _charge_hosts(patch, text)


@mutant
def _(patch: Patch) -> None:
    """cards given away: a device is charged without asking whether it is held for others"""
    text = capacity.CHARGE_COUNTERS.update.replace(" + t.held", "")
    patch.setattr(capacity, "CHARGE_COUNTERS", capacity.CHARGE_COUNTERS._replace(update=text))


@mutant
def _(patch: Patch) -> None:
    """drawn twice: what an owner's VM takes of a reservation is let go of twice"""

    def left(kept, drawn):
        return tuple(max(0, k - 2 * d) for k, d in zip(kept, drawn, strict=True))

    patch.setattr(holdsums, "_left", left)


@mutant
def _(patch: Patch) -> None:
    """short memory: a reservation that has not begun is not held"""
    real, real_profile = holdsums.held_on, holdings.profile_of

    def held_on(holds, claims, now_ms, *rest):
        begun = [each for each in holds if any(a <= now_ms for a, _ in each.windows)]
        return real(begun, claims, now_ms, *rest)

    def profile_of(holds, claims, now_ms, but=None):
        begun = [each for each in holds if any(a <= now_ms for a, _ in each.windows)]
        return real_profile(begun, claims, now_ms, but)

    for module in (holdsums, holding, holdings):
        patch.setattr(module, "held_on", held_on)
    patch.setattr(holdings, "profile_of", profile_of)


# Making room


@mutant
def _(patch: Patch) -> None:
    """spent budget: members are moved and stopped however many of their group are away"""
    for module in (beginning, displacing, moving):
        patch.setattr(module, "keep_budgets", lambda *given: None)
    patch.setattr(choosing, "spending", lambda *given: {})


@mutant
def _(patch: Patch) -> None:
    """forgotten hold: what becomes free where room is made is anybody's"""
    patch.setattr(capacity, "hold_freed", lambda *given: None)


@mutant
def _(patch: Patch) -> None:
    """hold for nobody: a preemption ends and what it held stays held"""
    patch.setattr(beginning, "drop_hold", lambda *given: {})


# What is kept


@mutant
def _(patch: Patch) -> None:
    """left in the base: folding old events forgets that a spec goes with its VM"""
    patch.setattr(base, "_owner", lambda noun, key: None)


# What is told


@mutant
def _(patch: Patch) -> None:
    """unreadable row: a VM that was restarted cannot be shown"""
    real = lifecycle.vm_body

    def vm_body(vm, *given):
        if vm.restarts:
            raise KeyError(vm.id)
        return real(vm, *given)

    patch.setattr(lifecycle, "vm_body", vm_body)


@mutant
def _(patch: Patch) -> None:
    """only in the log: what a host says of a VM that failed is lost by a loop that lives on"""

    def problem_text(*given):
        raise KeyError(given)

    patch.setattr(intake, "problem_text", problem_text)


@mutant
def _(patch: Patch) -> None:
    """proof before the word: a lease counts for a VM whose host was not told that it may leave"""
    patch.setattr(restart_policy, "ASKED", "elsewhere")


# Plans


@mutant
def _(patch: Patch) -> None:
    """begun before it was claimed: a move is written apart from the claim of its target"""
    real = moving.Moving.begin

    async def begin(self, vm, *given, also=None, **more):
        if also is not None:
            await self._store.write(also)
        return await real(self, vm, *given, **more)

    patch.setattr(moving.Moving, "begin", begin)


@mutant
def _(patch: Patch) -> None:
    """all waves at once: every move of a plan is put into the first wave"""
    real = Planning.rows

    def rows(self, plan, found, first=1, after=0, draft=0):
        listed = real(self, plan, found, first, after, draft)
        return [msgspec.structs.replace(each, wave=after + 1) for each in listed]

    patch.setattr(Planning, "rows", rows)


@mutant
def _(patch: Patch) -> None:
    """left waiting: a plan that ends keeps the moves that it has not begun"""
    patch.setattr(writing, "dropped_moves", lambda *_given: [])


@mutant
def _(patch: Patch) -> None:
    """held for ever: room that was held for a plan's moves stays held when it is over"""
    real = keepingroom.hold_for_moves
    patch.setattr(
        keepingroom, "hold_for_moves", lambda tx, plan, put, _gone: real(tx, plan, put, ())
    )
