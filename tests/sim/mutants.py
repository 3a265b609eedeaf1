"""Realistic mistakes, each planted into the production code; a campaign must find every one.

A mutant is a function that patches modules. Its docstring says what was done wrong.
"""

from collections.abc import Callable

import pytest
from sqlalchemy import update

from roost.agent import converge, keeper, lease
from roost.agent.lease import Lease
from roost.base.errors import Unavailable
from roost.control import burying, charging, handover, intake, queueing, recover
from roost.control.handover import complete_move, go_back
from roost.control.liveness import Watcher
from roost.ledger import sqliteclaims
from roost.ledger.rows import VMRow
from roost.ledger.tables import host_amounts
from roost.ledger.transaction import Tx
from roost.sim.database import PlaneStore

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> None:
    assert plant.__doc__
    MUTANTS[plant.__doc__] = plant


def _without(statement: str, *conditions: str) -> str:
    """Return an SQL statement without the lines, or parts of lines, that hold these conditions."""
    for condition in (" AND generation = ?6", " AND generation = u.column2"):
        statement = statement.replace(condition, "")
    lines = statement.splitlines()
    return "\n".join(line for line in lines if not any(each in line for each in conditions))


@mutant
def _(patch: Patch) -> None:
    """forgotten re-check: creates are committed without asking whether there is still room"""
    for name in ("_CHARGE_HOST", "_CHARGE_HOSTS"):
        patch.setattr(sqliteclaims, name, _without(getattr(sqliteclaims, name), "_capacity"))


@mutant
def _(patch: Patch) -> None:
    """absolute write: a release sets what the host had promised when the claim was made"""

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
    charging_release = charging.release
    for module in (charging, burying, recover, handover):
        patch.setattr(module, "release", release)


@mutant
def _(patch: Patch) -> None:
    """lost tombstone: the source of a move is not told to clean up"""
    patch.setattr(handover, "order_grave", lambda tx, vm, host, changes: None)


@mutant
def _(patch: Patch) -> None:
    """lease counted from receipt: the agent adds the lease to when it heard of the renewal"""
    real = Lease.renewed

    def renewed(self: Lease, number: int, lease_s: float) -> bool:
        return real(self, number, 2 * lease_s)

    patch.setattr(lease.Lease, "renewed", renewed)


@mutant
def _(patch: Patch) -> None:
    """double release: the claim of a deleted VM is given back twice"""
    real = burying.release

    def release(tx: Tx, claim) -> None:
        real(tx, claim)
        charging.charge_amounts(
            tx, claim.host, -claim.cpu_milli, -claim.memory_bytes, -claim.disk_bytes, -1, None
        )

    patch.setattr(burying, "release", release)


@mutant
def _(patch: Patch) -> None:
    """off by one: a host takes one VM more than it has room for"""
    for name in ("_CHARGE_HOST", "_CHARGE_HOSTS"):
        text = _without(getattr(sqliteclaims, name))
        more = text.replace("<= cpu_milli_capacity", "<= cpu_milli_capacity + 1000")
        patch.setattr(sqliteclaims, name, more)


@mutant
def _(patch: Patch) -> None:
    """stale generation: an agent carries out orders older than what it has done"""
    patch.setattr(converge, "carried_out", lambda record, local: 0)


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
    """missing fence: VMs of a silent host are restarted before its lease is over"""

    async def try_to_fence(self, entry) -> None:
        silence = self._watcher.silences.get(entry.number)
        if silence is not None:
            await self._fence(entry, "lease", "impatience", silence.evidence)

    patch.setattr(recover.Recover, "_try_to_fence", try_to_fence)


@mutant
def _(patch: Patch) -> None:
    """reordered report: the last word counts, however old it is"""
    real = intake._take_from_host

    def take(tx: Tx, vm: VMRow, seen) -> None:
        vm.observed_generation = 0
        seen.generation = max(seen.generation, vm.generation)
        real(tx, vm, seen)

    patch.setattr(intake, "_take_from_host", take)


@mutant
def _(patch: Patch) -> None:
    """a fenced source's VM is restarted without asking the target of its move"""
    patch.setattr(recover, "SENT", ())


@mutant
def _(patch: Patch) -> None:
    """the ledger calls the target a VM's home on the source's word"""

    def note_sent(tx: Tx, vm: VMRow) -> None:
        complete_move(tx, vm, vm.observed_generation)

    patch.setattr(intake, "note_sent", note_sent)


@mutant
def _(patch: Patch) -> None:
    """a move is taken back before the target has answered"""

    def impatient(tx: Tx, vm: VMRow, why: str) -> VMRow:
        vm.phase = "recalling"
        return go_back(tx, vm, why)

    patch.setattr(intake, "recall", impatient)
    patch.setattr(recover, "recall", impatient)


@mutant
def _(patch: Patch) -> None:
    """a refused VM goes elsewhere before its host has let go of it"""
    patch.setattr(queueing, "claims_of", lambda tx, vm: {})


@mutant
def _(patch: Patch) -> None:
    """after a gap in its lease an agent starts VMs from the list it has on hand"""
    real = converge.next_step

    def next_step(order, record, local, leased):
        held = converge.Leased.CONFIRMED if leased is converge.Leased.HELD else leased
        return real(order, record, local, held)

    patch.setattr(keeper, "next_step", next_step)


@mutant
def _(patch: Patch) -> None:
    """the watcher counts its own stand-still against the hosts"""
    real = Watcher.watch

    async def watch(self) -> None:
        last, now = self._last, self._clock.monotonic()
        await real(self)
        if last is not None:
            for silence in self.silences.values():
                if not silence.grew:
                    silence.silent_s += max(0.0, now - last - 2 * self._timers.watch_s)

    patch.setattr(Watcher, "watch", watch)
