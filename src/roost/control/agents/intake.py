"""Agents' reports into the ledger: what was seen, and what follows from it.

Reports of many agents that come together share a transaction. A report counts only if its
generation is not older than what was seen before, so one that was delayed or repeated changes
nothing. What follows from a report:

    absent                        a deleted VM is over: row, claims and tombstone go
    a move's source or target     the next step of the move (`moves/machine.py`)
    guest_shutdown                the guest has switched itself off: it is wanted stopped now
    capacity refusal              a VM that never ran is placed elsewhere
    a generation that the ledger has not reached    an old copy of the ledger was restored

Of a VM in doubt (`lineage`) nothing is taken: reports are repeated once it is settled. What a host
says of VMs that the ledger does not have there changes nothing but its own tombstones; nor does a
generation that no honest host can have reached. Hosts take turns: whoever says more waits longer.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import bindparam, select, update

from roost.base.clock import Clock
from roost.base.errors import Unavailable
from roost.control.agents.connections import ConnectionOrder, newest
from roost.control.memory.restore_detect import doubt_all, doubted_among, is_doubted
from roost.control.memory.turns import Turns
from roost.control.moves.handover import note_downtime, take_report
from roost.control.vms.deletion import (
    clear_tombstone,
    destroyed_since,
    remove_deleted,
    renew_cleanup,
    renew_tombstone,
)
from roost.control.vms.problems import problem_text
from roost.control.vms.refusing import is_refusal, is_refused, send_elsewhere
from roost.control.vms.resizing import settle_resize
from roost.control.vms.restart_policy import acknowledged
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import hosts, samples, tombstones, vms
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import DAY_S, Kept
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.states import Observed, Seen
from roost.parts.part import Loop, Part
from roost.wire.agentlimits import MOST_AHEAD, MOST_VMS
from roost.wire.agentlink import HeldVM, SeenVM, within_bounds

log = logging.getLogger("roost.intake")

_MOST_TOGETHER = 1000
_RETRY_S = 1.0
#: Reports of all hosts that may wait for the database: some hundred megabytes.
_MOST_SIGHTINGS = 500_000
#: One host can put the ledger in doubt once in so many seconds.
_DOUBT_S, _SAME_DOUBT_S = 600.0, 2.0
#: Fewer reports than this are not worth a statement of their own.
_WORTH_TOGETHER = 8


@dataclass(slots=True)
class _Sighting:
    host: int
    seen: SeenVM
    said_in: ConnectionOrder


@dataclass(slots=True)
class _Held:
    text: str
    said_in: ConnectionOrder


T = TypeVar("T")


class Doubting:
    """Says whether a host's word puts the ledger in doubt: not if it is absurd, nor every minute.

    A host that is really ahead of a restored ledger says so once, and is settled with all others.
    One that says so again and again would keep all others from being changed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[int, float] = {}

    def may(self, host: int, ahead: int) -> bool:
        """Say whether a report that is ahead by so many generations counts."""
        now = self._clock.monotonic()
        since = now - self._last.get(host, -_DOUBT_S)
        if since < _SAME_DOUBT_S and ahead <= MOST_AHEAD:
            return True  # the transaction is tried again
        if ahead > MOST_AHEAD or since < _DOUBT_S:
            log.warning("host %d says a generation ahead by %d; that does not count", host, ahead)
            return False
        self._last[host] = now
        return True


class Intake(Part):
    """Writes agents' reports to the ledger, in batches."""

    #: What processes of the release before have measured; nothing is added.
    keeps = (Kept(samples, "at_ms", seconds=7 * DAY_S, most=5_000_000),)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._sightings: Turns[_Sighting] = Turns(MOST_VMS * 2, _MOST_SIGHTINGS)
        self._held: dict[int, _Held] = {}
        self._arrived = asyncio.Event()
        self._doubting = Doubting(clock)

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.run),)

    def report(
        self, host: int, seen: list[SeenVM], held: list[HeldVM] | None, said_in: ConnectionOrder
    ) -> None:
        """Queue an agent's report for the next batch."""
        self._sightings.put(host, [_Sighting(host, vm, said_in) for vm in seen])
        if held is not None:
            self._held[host] = _Held(row_json(within_bounds(held)), said_in)
        self._arrived.set()

    async def run(self) -> None:
        """Write queued reports until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._sightings or self._held:
                try:
                    await self.flush()
                except Unavailable as error:
                    log.warning("reports wait for the database: %s", error.message)
                    await self._clock.sleep(_RETRY_S)
                except Exception:  # a service loop must outlive its mistakes
                    log.exception("reports were not written; agents repeat them in full")

    async def flush(self) -> None:
        """Write one batch of queued reports; what cannot be written waits."""
        sightings = self._sightings.take(_MOST_TOGETHER)
        held, self._held = self._held, {}
        if not (sightings or held):
            return
        try:
            await self._store.write(lambda tx: _write(tx, sightings, held, self._doubting), "agent")
        except Unavailable:
            # Nothing is lost: it is written when the database is back. Of each VM the last word is
            # enough, so that what waits does not grow with the time that the database is away.
            for host, seen in _by_host(sightings, lambda each: each.host).items():
                self._sightings.put_back(host, seen, _latest)
            self._held = {**held, **self._held}
            raise


def _by_host(said: list[T], host_of: Callable[[T], int]) -> dict[int, list[T]]:
    """Return what hosts have said by host, each host's in its order."""
    found: dict[int, list[T]] = {}
    for each in said:
        found.setdefault(host_of(each), []).append(each)
    return found


def _write(
    tx: Tx,
    sightings: list[_Sighting],
    held: dict[int, _Held],
    doubting: Doubting,
) -> None:
    sightings, held = _without_old_news(tx, sightings, held)
    latest = {(each.host, each.seen.id): each.seen for each in _latest(sightings)}
    doubted = doubted_among(tx, [vm for _, vm in latest])
    latest = {key: seen for key, seen in latest.items() if key[1] not in doubted}
    if len(latest) >= _WORTH_TOGETHER:
        latest = _of_their_own(tx, latest)
    for (host, _), seen in _take_plain(tx, latest).items():
        if not _take(tx, host, seen, doubting):
            break
    for number, held_now in held.items():
        found = tx.find(hosts, number=number)
        if found is not None and found["held"] != held_now.text:
            row = tx.change(hosts, {"number": number}, held=held_now.text)
            tx.event(
                "host.held", f"host/{found['name']}", {"hosts": {str(number): row}},
                note="VMs that are on no list",
            )  # fmt: skip


def _without_old_news(
    tx: Tx, sightings: list[_Sighting], held: dict[int, _Held]
) -> tuple[list[_Sighting], dict[int, _Held]]:
    """Return the reports without stale ones, of older connections of a host."""
    heard: dict[int, dict[ConnectionOrder, None]] = {}
    for each in sightings:
        heard.setdefault(each.host, {})[each.said_in] = None
    for host, held_now in held.items():
        heard.setdefault(host, {})[held_now.said_in] = None
    last = newest(tx, heard)
    return (
        [each for each in sightings if last.get(each.host) == each.said_in],
        {host: each for host, each in held.items() if last.get(host) == each.said_in},
    )


def _latest(sightings: list[_Sighting]) -> list[_Sighting]:
    """Return the last report on each VM of each host, in the order in which VMs are locked."""
    found: dict[tuple[str, int], _Sighting] = {}
    for sighting in sightings:
        key = (sighting.seen.id, sighting.host)
        before = found.get(key)
        if (
            before is None
            or before.said_in != sighting.said_in
            or sighting.seen.generation >= before.seen.generation
        ):
            found[key] = sighting
    return [found[key] for key in sorted(found)]


def _of_their_own(tx: Tx, latest: dict[tuple[int, str], SeenVM]) -> dict[tuple[int, str], SeenVM]:
    """Return the reports of hosts on VMs that they have, or have to destroy, by two questions.

    The others change nothing (`_take`), and one by one they would cost a statement each.
    """
    ids = sorted({vm for _, vm in latest})
    here: set[tuple[int, str]] = set()
    for row in tx.rows(select(vms.c.id, vms.c.host, vms.c.target).where(vms.c.id.in_(ids))):
        here |= {(host, row["id"]) for host in (row["host"], row["target"]) if host is not None}
    graves = select(tombstones.c.vm, tombstones.c.host).where(tombstones.c.vm.in_(ids))
    here |= {(row["host"], row["vm"]) for row in tx.rows(graves)}
    return {key: seen for key, seen in latest.items() if key in here}


def _take_plain(tx: Tx, latest: dict[tuple[int, str], SeenVM]) -> dict[tuple[int, str], SeenVM]:
    """Apply the plain reports at once: a new VM is starting or running, and no more.

    Returns the others. Thousands of VMs may start in a second; one by one each costs four
    statements, together they cost two.
    """
    plain = {key: seen for key, seen in latest.items() if _is_plain(seen)}
    if len(plain) < _WORTH_TOGETHER:
        return latest
    ids = sorted({vm for _, vm in plain})
    query = select(vms).where(vms.c.id.in_(ids)).order_by(vms.c.id).with_for_update()
    changed, rest = [], dict(latest)
    for found in tx.rows(query):
        vm = VMRow(**found)
        seen = plain.get((vm.host, vm.id)) if vm.host is not None else None
        if seen is None or vm.generation != 1:
            continue
        del rest[vm.host, vm.id]  # type: ignore[arg-type]
        if (vm.observed, vm.observed_generation, vm.problem) == (seen.seen, 1, None):
            continue
        vm.observed, vm.observed_generation, vm.problem = _AT_REST[seen.seen], 1, None
        changed.append(vm)
    if changed:
        statement = update(vms).where(vms.c.id == bindparam("vm"))
        statement = statement.values(
            observed=bindparam("seen"), observed_generation=1, problem=None
        )
        tx.connection.execute(statement, [{"vm": vm.id, "seen": vm.observed} for vm in changed])
    for vm in changed:
        tx.event(f"vm.{vm.observed}", f"vm/{vm.id}", {"vms": {vm.id: vm}}, project=vm.project)
    return rest


def _is_plain(seen: SeenVM) -> bool:
    return seen.generation == 1 and seen.seen in ("starting", "running") and not seen.message


def _take(tx: Tx, host: int, seen: SeenVM, doubting: Doubting) -> bool:
    """Apply one report to the ledger; False when it shows that the ledger is an old copy."""
    found = tx.find(vms, id=seen.id, lock=True)
    if found is None:
        if seen.seen == "absent":
            clear_tombstone(tx, seen.id, host, seen.generation)
        else:
            renew_tombstone(tx, seen.id, host, seen.generation)
        return True
    vm = VMRow(**found)
    if seen.generation > vm.generation and seen.seen != "absent":
        is_there = host in (vm.host, vm.target)
        if not is_there or not doubting.may(host, seen.generation - vm.generation):
            return True
        doubt_all(tx, f"VM {vm.id} is at {seen.generation} on a host, and at {vm.generation} here")
        return False
    if host == vm.host:
        _take_from_host(tx, vm, seen)
    elif host == vm.target:
        take_report(tx, vm, "target", seen)
    elif seen.seen == "absent":
        clear_tombstone(tx, seen.id, host, seen.generation)
    elif (
        seen.seen == "moved"
        and seen.progress is not None
        and tx.find(tombstones, vm=vm.id, host=host) is not None  # it was the source
    ):
        note_downtime(tx, vm, seen.progress)
    elif seen.seen == "failed" and seen.code == "copy_lost" and not is_doubted(tx, vm.id):
        renew_cleanup(tx, vm, host, seen.generation)
    return True


def _take_from_host(tx: Tx, vm: VMRow, seen: SeenVM) -> None:
    if seen.seen == "absent":
        if vm.desired == "absent" and destroyed_since(tx, vm, seen.generation):
            remove_deleted(tx, vm)
        return
    if take_report(tx, vm, "source", seen):
        return
    if seen.generation < vm.observed_generation:
        return  # an older report, late
    observed = _AT_REST.get(seen.seen)
    if observed is None:
        return  # one half of a move, which says nothing of a VM at rest
    if is_refusal(vm, seen):
        if is_refused(vm, seen):
            send_elsewhere(tx, vm, seen)
        return
    problem = None
    if seen.message and seen.code != "no_lease":
        problem = problem_text(seen.code, seen.message, seen.generation)
    restart = acknowledged(vm, seen)
    changed = (vm.observed, vm.observed_generation, vm.problem, vm.restart) != (
        observed,
        seen.generation,
        problem,
        restart,
    )
    if not changed:
        return
    row = tx.change(
        vms,
        {"id": vm.id},
        observed=observed,
        observed_generation=seen.generation,
        problem=problem,
        restart=restart,
    )
    assert row is not None
    vm = VMRow(**row)
    kind = "vm.crashed" if seen.code == "crashed" else f"vm.{seen.seen}"
    tx.event(kind, f"vm/{vm.id}", {"vms": {vm.id: vm}}, project=vm.project, note=seen.message)
    if seen.generation == vm.generation and seen.seen in ("running", "paused", "stopped"):
        if seen.code == "guest_shutdown" and vm.desired != "stopped":
            vm = _let_rest(tx, vm)
        if vm.generation > 1:  # a first generation was never resized
            settle_resize(tx, vm)


def _let_rest(tx: Tx, vm: VMRow) -> VMRow:
    """Record that a guest has powered off: its VM is wanted stopped until a user starts it."""
    row = tx.change(vms, {"id": vm.id}, generation=Plus(1), desired="stopped")
    assert row is not None
    tx.event("vm.guest_shutdown", f"vm/{vm.id}", {"vms": {vm.id: row}}, project=vm.project)
    return VMRow(**row)


#: What is seen of a VM at rest; the other words belong to the halves of a move.
_AT_REST: dict[Seen, Observed] = {
    "starting": "starting",
    "running": "running",
    "paused": "paused",
    "stopping": "stopping",
    "stopped": "stopped",
    "failed": "failed",
}
