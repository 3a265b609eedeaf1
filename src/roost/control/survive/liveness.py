"""Liveness of hosts: heartbeats become evidence in the ledger, silence becomes health.

A process counts the heartbeats it gets and writes them down together, once a second: one growing
number per host. Only then are the leases renewed, so a lease is never longer than the ledger knows.
The watcher (one process at a time) sees which numbers grow, on its own monotonic clock:

    online --15 s silent--> suspect --60 s silent--> offline --evidence--> online

Time during which the watcher itself was stopped or could not read does not count against a host.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from roost.base.clock import Clock
from roost.control.hosts.registering import change_host
from roost.control.memory.roster import Roster
from roost.control.timers import Timers
from roost.ledger.schema.tables import host_liveness, hosts
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Loop, Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.liveness")


class Evidence(Part):
    """Collects heartbeats of the agents connected here, and writes them as evidence."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store, self._timers = store, timers
        self._heard: dict[int, tuple[int, Callable[[bool], None]]] = {}

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.flush, self._timers.flush_s),)

    def heard(self, host: int, epoch: int, renew: Callable[[bool], None]) -> None:
        """Queue a heartbeat; `renew` is called once it is written and the lease renewed, or not."""
        self._heard[host] = (epoch, renew)

    async def flush(self) -> int:
        """Write queued heartbeats to the ledger, then renew the hosts' leases."""
        if not self._heard:
            return 0
        heard, self._heard = self._heard, {}
        by_epoch: dict[int, list[int]] = {}
        for host, (epoch, _) in heard.items():
            by_epoch.setdefault(epoch, []).append(host)
        try:
            renewed = await self._store.write(lambda tx: _grow(tx, by_epoch))
        except BaseException:
            self._heard = {**heard, **self._heard}
            raise
        for host, (_, renew) in heard.items():
            renew(host in renewed)
        return len(renewed)


#: Once for each epoch, however many hosts there are.
_GROW = (
    update(host_liveness)
    .where(
        host_liveness.c.host.in_(bindparam("numbers", expanding=True)),
        host_liveness.c.epoch == bindparam("of_epoch"),
    )
    .values(evidence=host_liveness.c.evidence + 1)
    .returning(host_liveness.c.host)
)
_READ = select(host_liveness.c.host, host_liveness.c.evidence)


def _grow(tx: Tx, by_epoch: dict[int, list[int]]) -> set[int]:
    renewed: set[int] = set()
    for epoch, numbers in sorted(by_epoch.items()):
        for start in range(0, len(numbers), 10_000):
            some = {"numbers": numbers[start : start + 10_000], "of_epoch": epoch}
            renewed.update(tx.connection.execute(_GROW, some).scalars())
    return renewed


@dataclass(slots=True)
class Silence:
    """The silence of one host: its last evidence, and for how long that has not grown."""

    evidence: int
    silent_s: float = 0.0
    grew: bool = False  # at the last look


class Watcher(Part):
    """Marks silent hosts suspect or offline; runs in the process that holds the lease."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        roster: Roster,
        clock: Clock,
        timers: Timers,
        singleton: Singleton,
    ) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        self._timers, self.singleton = timers, singleton
        self._last: float | None = None
        self.silences: dict[int, Silence] = {}

    def gained(self) -> None:
        """Reset all silences: another process held the lease and saw what this one did not."""
        self._last = None
        self.silences.clear()

    async def look(self) -> None:
        """Read all evidence once, and change the health of hosts by their silence."""
        found = await self._store.read(_read)
        now = self._clock.monotonic()
        # A gap longer than two looks was ours, not theirs.
        gone = 0.0 if self._last is None else min(now - self._last, 2 * self._timers.watch_s)
        self._last = now
        for host, evidence in found:
            known = self.silences.get(host)
            if known is None:  # a first look says nothing: the count begins now
                self.silences[host] = Silence(evidence)
            elif known.evidence != evidence:
                self.silences[host] = Silence(evidence, grew=True)
            else:
                known.silent_s += gone
                known.grew = False
        for number in self.silences.keys() - {host for host, _ in found}:
            del self.silences[number]
        await self._judge()

    async def _judge(self) -> None:
        wanted: dict[int, str] = {}
        for number, entry in self._roster.hosts.items():
            silence = self.silences.get(number)
            if silence is None or entry.row.fenced is not None:
                continue
            health = entry.row.health
            if silence.silent_s >= self._timers.offline_s:
                target = "offline"
            elif silence.silent_s >= self._timers.suspect_s:
                # A host that was offline comes back by being heard of, not by waiting.
                target = "offline" if health == "offline" else "suspect"
            else:
                target = "online" if silence.grew else health
            if target != health:
                wanted[number] = target
        if wanted:
            await self._store.write(lambda tx: self._set(tx, wanted))

    def _set(self, tx: Tx, wanted: dict[int, str]) -> None:
        self.singleton.check(tx)
        for number, health in sorted(wanted.items()):
            found = tx.find(hosts, number=number, lock=True)
            if found is None or found["health"] == health or found["fenced"] is not None:
                continue
            silence = self.silences.get(number)
            note = f"silent for {silence.silent_s:.0f} s" if silence and health != "online" else ""
            change_host(tx, number, f"host.{health}", note=note, health=health)
            log.warning("host %s is %s %s", found["name"], health, note)


def _read(connection: Connection) -> Iterable[tuple[int, int]]:
    return [(host, evidence) for host, evidence in connection.execute(_READ)]
