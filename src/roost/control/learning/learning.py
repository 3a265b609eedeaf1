"""Learn what VMs and hosts will use, and tell the fleet: the arrow from reports to profiles.

Every process learns for itself, from the store that all share (ADR-0036):

    every ten minutes: series of each host and its VMs -> outlook (in a thread) -> columns
                       how long VMs lived, and their ages -> expected ends      -> columns

Nobody waits for it. A pass goes host by host, reads and reckons in small pieces, and rests three
times as long as it worked. What it found counts for an hour after the newest step that it knew;
when the store cannot be used meanwhile it is forgotten, and hosts are what they were without it:
not predicted. The doctor is told.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from roost.analysis.lifetime import Path
from roost.analysis.outlook import (
    LEAST_ALIKE,
    STEP_S,
    Ahead,
    HostSeries,
    Outlook,
    VMSeries,
    foresee,
    outlook_of,
    with_lives,
)
from roost.analysis.store import SeriesReader
from roost.base.clock import Clock
from roost.base.errors import SeriesUnavailable, Unavailable
from roost.control.learning.gathering import gather, origin_of
from roost.control.learning.lives import NOTHING_KNOWN, Lives, lives_in
from roost.control.learning.profiling import (
    OF_WORK,
    Beside,
    is_young,
    lifetime_of,
    profile_of,
    read_cleaning,
    read_hours,
    read_week,
)
from roost.control.learning.reporting import Reporting
from roost.control.learning.routes import learning_routes
from roost.control.learning.waiting import require_compiled
from roost.control.memory.expecting import Traits
from roost.control.memory.roster import Roster
from roost.control.vms.lookup import vm_row
from roost.fleet.layout import UNKNOWN
from roost.fleet.outlook import columns_of
from roost.ledger.claims.capacity import CLEANUP, RUN
from roost.ledger.schema.rows import VMRow
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.model.outlook import NO_BASIS, Expected, Predicted
from roost.model.series import Subject
from roost.parts.access import Principal
from roost.parts.part import Loop, Part
from roost.parts.routes import Route
from roost.placement.kernels.running import is_interpreting
from roost.wire.profiles import LifetimeBody, ProfileBody, ProfileQuery

log = logging.getLogger("roost.learning")

#: How often it is looked whether something is too old, and how often all is learnt anew.
LOOK_S, EVERY_S = 30.0, 600.0
#: For how long after its last step an outlook counts.
LASTS_S = 3600
#: Series that are reckoned at once: about 0.15 s of a processor.
_MOST_SERIES = 256
#: VMs of a class of which a new one is told: more are read for longer and say the same.
_MOST_PEERS = 16
#: The rest after a piece of work, in terms of what it took, and at least.
_REST, _LEAST_REST_S = 3.0, 0.01

NOTHING = Outlook({}, {}, {}, NO_BASIS)


class _Home(NamedTuple):
    """A host, and the claims of the VMs on it."""

    host: str
    claims: tuple[str, ...]


class Learning(Part):
    """Keeps what is predicted of hosts and expected of VMs in the fleet of one process."""

    def __init__(
        self,
        reader: SeriesReader,
        store: Store,
        roster: Roster,
        clock: Clock,
        overload_bound: float = 0.01,
        *,
        quantile: float = 0.9,
        hours: int = 4,
        noted: SeriesReader | None = None,
    ) -> None:
        """Learn from `reader`; `noted` has what was wrong with readings, if they are kept here."""
        self._quantile_milli, self._steps = round(1000 * quantile), hours * 3600 // STEP_S
        self.lives = Lives(store, roster)
        self._known = NOTHING_KNOWN  # of lives
        self.reporting = Reporting(reader, store, roster, clock, overload_bound)
        self._reader, self._store, self._roster, self._clock = reader, store, roster, clock
        self._noted = noted
        self._peers: Mapping[Path, Sequence[str]] = {}  # some VMs of each class that are foreseen
        self._profiling = asyncio.Lock()
        self.outlook = NOTHING
        self.trouble = ""  # why nothing can be learnt, in words
        self._origin_ms = 0  # of the outlook
        self._next = clock.monotonic() + LOOK_S
        self._under_way: float | None = None  # since when a pass is

    # When

    def load(self, connection: Connection) -> None:
        """Let VMs be expected to end when their owners said, or when VMs like them do."""
        now_ms = origin_of(self._clock.wall_ms())
        self._known = lives_in(connection, self._roster.specs.copied(), now_ms)
        self._tell(NOTHING)

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part: what is too old ends, whatever a pass does."""
        return (
            Loop(self.expire, LOOK_S),
            Loop(self.look, LOOK_S),
            Loop(self.reporting.serve),
        )

    async def expire(self) -> None:
        """Forget what is too old."""
        self.forget_old()

    async def look(self) -> None:
        """Learn anew when it is time, and kernels are compiled: as Python a pass takes hours."""
        if is_interpreting():
            return
        if self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + EVERY_S
            self._under_way = self._clock.monotonic()
            try:
                await self.learn(paced=True)
            finally:
                self._under_way = None

    def hurry(self) -> None:
        """Learn at the next look, whenever it was last done: there is more to learn from."""
        self._next = self._clock.monotonic()

    def forget_old(self) -> None:
        """Let an outlook count no longer that rests on what is too old."""
        if self.outlook is NOTHING:
            return
        age_ms = self._clock.wall_ms() - self._origin_ms
        if not 0 <= age_ms <= 1000 * LASTS_S:
            log.warning("what was learnt is %d s old: nothing is predicted", age_ms // 1000)
            self._tell(NOTHING)

    # What

    async def learn(self, *, paced: bool = False) -> None:
        """Read the series of all hosts and VMs, and tell the fleet what they will use."""
        origin_ms = origin_of(self._clock.wall_ms())
        ahead = Ahead(origin_ms // 1000, self._steps, self._quantile_milli)
        await self._learn_lives(origin_ms)
        hosts: dict[str, Predicted] = {}
        vms: dict[str, Expected] = {}
        try:
            for piece in _pieces(self._homes()):
                begun = self._clock.monotonic()
                series = [await self._series_of(home, origin_ms) for home in piece]
                predicted, expected = await asyncio.to_thread(foresee, series, ahead)
                hosts.update(predicted)
                vms.update((name.rpartition(":")[0], told) for name, told in expected.items())
                if paced:
                    took = self._clock.monotonic() - begun
                    await self._clock.sleep(max(_LEAST_REST_S, _REST * took))
        except SeriesUnavailable as error:
            self._note(error.message)
            return
        self._note("")
        classes = self._classes(vms)
        self._peers = _peers(classes)
        outlook = await asyncio.to_thread(outlook_of, hosts, vms, classes, ahead)
        self._origin_ms = origin_ms
        there = {name: told for name, told in outlook.hosts.items() if self._roster.entry(name)}
        self._tell(Outlook(there, outlook.vms, outlook.alike, outlook.basis))
        self.forget_old()  # a pass may take long

    async def _learn_lives(self, origin_ms: int) -> None:
        """Read how long VMs live, and tell the fleet: all are older than they were."""
        try:
            self._known = await self.lives.read(origin_ms)
        except Unavailable as error:
            log.debug("how long VMs live is read later: %s", error.message)
            return
        self._tell(self.outlook)

    def _homes(self) -> list[_Home]:
        """Return every host with what is on it; a cleanup claim has nothing that runs."""
        fleet = self._roster.fleet
        here = fleet.vms.by_host(fleet.hosts.count)
        return [
            _Home(
                entry.name,
                tuple(
                    name
                    for number in here[entry.fleet_row].tolist()
                    if not (name := fleet.vms.names[number]).endswith(f":{CLEANUP}")
                ),
            )
            for entry in sorted(self._roster.hosts.values(), key=lambda each: each.name)
        ]

    async def _series_of(self, home: _Home, origin_ms: int) -> HostSeries:
        use = await gather(self._reader, Subject("host", home.host), origin_ms)
        vms = []
        for claim in home.claims:
            vm, _, kind = claim.rpartition(":")
            if kind == RUN:  # what is on its way here is expected, and not yet in any sum
                vms.append(
                    VMSeries(claim, await gather(self._reader, Subject("vm", vm), origin_ms))
                )
        return HostSeries(home.host, use, tuple(vms))

    def _classes(self, vms: dict[str, Expected]) -> dict[str, tuple[Path, ...]]:
        """Return the classes of VMs, from fine to coarse."""
        fleet = self._roster.fleet
        found = {}
        for vm in vms:
            number = fleet.vms.numbers.get(f"{vm}:{RUN}")
            if number is not None:
                cpu, memory = fleet.vms.demand[number, :2].tolist()
                found[vm] = self._roster.traits_of(vm, cpu, memory, None).alike
        return found

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("nothing is learnt: %s; everything else goes on", trouble)
        self.trouble = trouble

    # Telling the fleet

    def _tell(self, outlook: Outlook) -> None:
        """Bring an outlook to the fleet's columns, all at once: no decision sees a part of it."""
        self.outlook = outlook
        expectations, fleet = self._roster.expectations, self._roster.fleet
        expectations.replace(outlook.vms, outlook.alike)
        expectations.replace_lives(*self._known)
        demand, now = fleet.vms.demand[:, :2].tolist(), fleet.vms.expected.tolist()
        # Where nothing is learnt, as in every start, all but a few count as they did.
        learnt = bool(outlook.vms or outlook.alike or self._known.table.digest)
        known = (fleet.vms.expected != UNKNOWN).any(axis=1).tolist()
        ending = self._roster.specs.ending
        numbers, told = [], []
        for claim, number in fleet.vms.numbers.items():
            vm, _, kind = claim.rpartition(":")
            if kind == CLEANUP or not (learnt or known[number] or vm in ending):
                continue
            spec = self._roster.specs.get(vm)
            until_ms = None if spec is None else spec.until_ms
            cpu, memory = demand[number]
            traits = self._roster.traits_of(vm, cpu, memory, until_ms)
            expected = columns_of(expectations.of(vm, traits))
            if now[number] != [*expected]:
                numbers.append(number)
                told.append(expected)
        if numbers:
            fleet.set_expected_many(np.array(numbers, np.int64), np.array(told, np.int64))
        fleet.set_predicted(outlook.hosts, with_lives(outlook.basis, self._known.table.digest))

    # Asked by users and doctors

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return learning_routes(self)

    async def profile(self, ref: str, query: ProfileQuery, who: Principal) -> ProfileBody:
        """Return what is learnt of one VM, from the store as it is now."""
        require_compiled("a profile")

        def question(connection: Connection) -> VMRow:
            return vm_row(connection, ref, query.project, who)

        vm = await self._store.read(question)
        origin_ms, noted = origin_of(self._clock.wall_ms()), self._noted
        week = await read_week(self._reader, vm.id, origin_ms)
        beside = Beside(
            None if noted is None else await read_cleaning(noted, vm.id, origin_ms),
            [
                await read_week(self._reader, peer, origin_ms, OF_WORK)
                for peer in (self._peers_of(vm, who) if is_young(week) else ())
            ],
            self._lifetime(vm),
            await read_hours(self._reader, vm.id, origin_ms),
            self.reporting.peaks_of(vm.id) if who.project is None else None,
        )
        async with self._profiling:  # one at a time takes a processor
            return await asyncio.to_thread(profile_of, vm, week, query.hours, beside)

    def _traits(self, vm: VMRow) -> Traits:
        spec = self._roster.specs.get(vm.id)
        until_ms = None if spec is None else spec.until_ms
        return self._roster.traits_of(vm.id, vm.cpu_milli, vm.memory_bytes, until_ms)

    def _peers_of(self, vm: VMRow, who: Principal) -> Sequence[str]:
        """Return VMs like one that is to run, of the finest class of which enough are known."""
        if vm.desired != "running":
            return ()
        for path in self._traits(vm).alike:
            # What VMs of other projects do is not told to who may not see them.
            if who.project is not None and path[1:2] != (who.project,):
                continue
            peers = [peer for peer in self._peers.get(path, ()) if peer != vm.id]
            if len(peers) >= LEAST_ALIKE:
                return peers
        return ()

    def _lifetime(self, vm: VMRow) -> LifetimeBody | None:
        traits = self._traits(vm)
        if traits.until_ms is not None:
            return None
        age_s = max(0, self._clock.wall_ms() - vm.created_ms) // 1000
        return lifetime_of(self._known.table.remaining(traits.path, age_s), age_s)

    def examine(self, connection: Connection, found: Examination) -> None:
        """Say whether anything is learnt, and of how many hosts."""
        found.count("predictions", len(self.outlook.hosts))
        found.count("ended VMs counted", self._known.table.vms)
        if self._under_way is not None and self._clock.monotonic() - self._under_way > LASTS_S:
            took = round(self._clock.monotonic() - self._under_way)
            found.trouble(
                "predictions",
                f"nothing was learnt for {took} s: the store of series is too slow or hangs",
            )
        if self.trouble:
            before = "what was learnt before counts for an hour"
            still = before if self.outlook.hosts else "no host is predicted"
            found.trouble("predictions", f"nothing is learnt, and {still}: {self.trouble}")


def _peers(classes: Mapping[str, Sequence[Path]]) -> dict[Path, list[str]]:
    """Return some VMs of each class, the same ones whatever order they came in."""
    found: dict[Path, list[str]] = {}
    for vm, paths in sorted(classes.items()):
        for path in paths:
            if len(some := found.setdefault(path, [])) < _MOST_PEERS:
                some.append(vm)
    return found


def _pieces(homes: Sequence[_Home]) -> Iterator[list[_Home]]:
    """Yield hosts in pieces of a bounded number of series; a large host is a piece by itself."""
    piece: list[_Home] = []
    series = 0
    for home in homes:
        own = 2 * (len(home.claims) + 1)
        if piece and series + own > _MOST_SERIES:
            yield piece
            piece, series = [], 0
        piece.append(home)
        series += own
    if piece:
        yield piece
