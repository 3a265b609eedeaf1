"""The fleet of one moment on which moves are tried: the engine's world, and who might move.

Every question about where a VM may go is asked of the engine, on a fleet without that VM. A move
that is made here is charged at once, so the next question sees it. Loads are the foreseen ones
where a host has them, else what is promised, as shares of capacity. A board belongs to one thread.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roost.fleet.layout import BASE, CPU, E_CPU, E_MEMORY, KNOWN, MEMORY, BoolArray
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.placement.engine import NO_FIT
from roost.placement.verdicts import judge_hosts
from roost.placement.whatif import WhatIf
from roost.planner.cost import UNKNOWN_BANDWIDTH, Load, MoveCost, NotConverging, move_cost

Floats = npt.NDArray[np.float64]

#: The resources that loads are made of.
LOADS = (CPU, MEMORY)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placed VM that might move: who it is, what it asks for, and what speaks against it."""

    vm: str  # its id
    name: str
    request: PlaceRequest  # its key is that of its claim in the fleet
    host: int  # the ledger's number of where it is
    load: Load
    stays: str = ""  # why it cannot move at all now
    quiet: str = ""  # why it is not to be disturbed
    resting: str = ""  # why it has moved enough for a while
    budgets: tuple[str, ...] = ()  # groups of its that have one
    together: str = ""  # the affinity group with whose VMs it moves, if it is in one


class Limits(NamedTuple):
    """How much may move at once, and in all."""

    per_host: int = 2
    at_once: int = 8
    most: int = 500
    per_link: int = 4  # of a described network
    horizon_s: float = 86_400.0  # how far the benefit of a move is counted
    not_converging: NotConverging = "auto_converge"  # what is done about VMs that write too fast


#: What a plan keeps to unless it is told otherwise.
DEFAULT_LIMITS = Limits()

Bandwidth = Callable[[int, int], float]
#: The links between two hosts, each by what tells it from others.
Links = Callable[[int, int], Sequence[Hashable]]


class GivenUp(Exception):
    """Nobody wants the draft any more."""


def unknown_bandwidth(_source: int, _target: int) -> float:
    """Return the bandwidth between two hosts of which nothing is known."""
    return float(UNKNOWN_BANDWIDTH)


def unknown_links(_source: int, _target: int) -> Sequence[Hashable]:
    """Return the links between two hosts of which nothing is known."""
    return ()


@dataclass
class Board:
    """One world, the VMs in it, and what is known beside the fleet."""

    world: WhatIf
    candidates: Mapping[str, Candidate]  # by VM
    numbers: Mapping[int, int]  # the ledger's numbers of hosts, by fleet row
    now_s: int = 0
    limits: Limits = DEFAULT_LIMITS
    budgets: Mapping[str, int] = field(default_factory=dict)  # how many of a group may be away
    bandwidth: Bandwidth = unknown_bandwidth  # by fleet rows, bytes per second
    links: Links = unknown_links  # by fleet rows
    factor: float = 1.0  # how far predictions were off so far
    moved: dict[str, int] = field(default_factory=dict)  # who was moved here, from which row
    urgent: bool = True  # whether the moves of this draft were ordered, or mend a broken rule
    given_up: Callable[[], bool] = lambda: False  # whether nobody wants the draft any more

    def check_wanted(self) -> None:
        """Raise GivenUp when nobody wants the draft any more."""
        if self.given_up():
            raise GivenUp

    # Reading

    def row_of(self, who: Candidate) -> int:
        """Return the row of the host that a VM is on here; -1 if it has none."""
        vms = self.world.fleet.vms
        number = vms.numbers.get(who.request.key)
        return -1 if number is None else int(vms.host[number])

    def name(self, row: int) -> str:
        """Return the name of a host."""
        return self.world.fleet.hosts.names[row]

    def by_row(self) -> dict[int, list[Candidate]]:
        """Return the VMs of every host, in the order of their ids."""
        found: dict[int, list[Candidate]] = {}
        for _, who in sorted(self.candidates.items()):
            if (row := self.row_of(who)) >= 0:
                found.setdefault(row, []).append(who)
        return found

    def capacity(self) -> Floats:
        """Return what hosts have to give, by row and resource; at least 1."""
        arrays = self.world.fleet.hosts.arrays
        count = self.world.fleet.hosts.count
        amounts = arrays.capacity[:count, :BASE][:, list(LOADS)]
        return np.maximum(amounts, 1).astype(np.float64)

    def uses(self) -> Floats:
        """Return what hosts use, foreseen where that is known, else promised."""
        arrays = self.world.fleet.hosts.arrays
        count = self.world.fleet.hosts.count
        promised = arrays.committed[:count, :BASE][:, list(LOADS)].astype(np.float64)
        known = arrays.predicted[:count, KNOWN] > 0
        return np.where(known[:, None], arrays.predicted[:count, :2].astype(np.float64), promised)

    def use_of(self, who: Candidate) -> Floats:
        """Return what a VM adds to its host's load."""
        vms = self.world.fleet.vms
        number = vms.numbers[who.request.key]
        known = self.world.fleet.hosts.arrays.predicted[int(vms.host[number]), KNOWN] > 0
        amounts = vms.demand[number, list(LOADS)].astype(np.float64)
        expected = vms.expected[number, [E_CPU, E_MEMORY]].astype(np.float64)
        return np.where(known & (expected >= 0), expected, amounts)

    def open_rows(self) -> BoolArray:
        """Return which hosts take VMs and count for loads."""
        return self.world.fleet.hosts.arrays.takes[: self.world.fleet.hosts.count].copy()

    def loads(self) -> Floats:
        """Return the load of every host: the larger share of cpu and memory."""
        shares: Floats = (self.uses() / self.capacity()).max(axis=1)
        return shares

    def cost(self, load: Load, source: int, target: int, sharing: int = 1) -> MoveCost:
        """Return what a move between two rows costs when so many share its path."""
        speed, limits = self.bandwidth(source, target) / sharing, self.limits
        return move_cost(load, speed, not_converging=limits.not_converging, factor=self.factor)

    # Asking the engine

    @contextmanager
    def without(self, who: Candidate) -> Iterator[None]:
        """Look at the fleet without a VM, as a move of it does."""
        fleet = self.world.fleet
        mark, version = fleet.mark(), fleet.version
        number = fleet.vms.numbers.get(who.request.key)
        if number is not None:
            fleet.remove(number)
        try:
            yield
        finally:
            fleet.undo(mark)
            fleet.version = version

    def fitting(self, who: Candidate) -> BoolArray:
        """Return the hosts that the engine would let a VM move to, by row."""
        row = self.row_of(who)
        with self.without(who):
            fits: BoolArray = self.world.scores(who.request) != NO_FIT
        fits = fits & self.open_rows()
        if row >= 0:
            fits[row] = False
        return fits

    def find(self, who: Candidate, never: Sequence[str] = ()) -> Placement | None:
        """Return where the engine would move a VM by itself."""
        away = (*never, self.name(self.row_of(who)))
        with self.without(who):
            return self.world.find(elsewhere(who.request, away))

    def why_not(self, who: Candidate, never: Sequence[str] = ()) -> Rejection:
        """Say why a VM can move nowhere."""
        away = (*never, self.name(self.row_of(who)))
        with self.without(who):
            return self.world.reject(elsewhere(who.request, away))

    def complaints(self, who: Candidate) -> tuple[str, ...]:
        """Return the reasons for which the engine would not place a VM where it is."""
        row = self.row_of(who)
        with self.without(who):
            verdicts = judge_hosts(self.world.question(who.request), np.array([row]))
            return tuple(reason.value for reason in verdicts.reasons(0))

    # Moving

    def move(self, who: Candidate, row: int) -> bool:
        """Move a VM here, if the engine lets it; False changes nothing."""
        return self.move_all([(who, row)])

    def move_all(self, moves: Sequence[tuple[Candidate, int]]) -> bool:
        """Move VMs here together, each into room that the others leave; False changes nothing."""
        fleet, sources = self.world.fleet, [self.row_of(who) for who, _ in moves]
        if any(row < 0 or row == to for row, (_, to) in zip(sources, moves, strict=True)):
            return False
        mark, version = fleet.mark(), fleet.version
        for who, _ in moves:
            fleet.remove(fleet.vms.numbers[who.request.key])
        for who, row in moves:
            asked = only_on(who.request, self.name(row))
            found = None if asked is None else self.world.find(asked)
            if found is None:
                fleet.undo(mark)
                fleet.version = version
                return False
            self.world.commit(who.request, found)
        fleet.keep(mark)
        self.moved.update((who.vm, row) for row, (who, _) in zip(sources, moves, strict=True))
        return True

    def move_in_turn(self, moves: Sequence[tuple[Candidate, int]]) -> bool:
        """Move VMs here one after the other, all of them; False changes nothing."""
        with self.trial():
            if not all(self.move(who, row) for who, row in moves):
                return False
        return all(self.move(who, row) for who, row in moves)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Try moves and take them all back."""
        fleet, before = self.world.fleet, dict(self.moved)
        mark, version = fleet.mark(), fleet.version
        try:
            yield
        finally:
            fleet.undo(mark)
            fleet.version = version
            self.moved = before


def elsewhere(request: PlaceRequest, hosts: Sequence[str]) -> PlaceRequest:
    """Return a request that excludes some hosts."""
    constraints = request.constraints
    excluded = tuple(dict.fromkeys((*constraints.excluded, *hosts)))
    return replace(request, constraints=replace(constraints, excluded=excluded))


def only_on(request: PlaceRequest, host: str) -> PlaceRequest | None:
    """Return a request for one host alone; None if it may not go there."""
    constraints = request.constraints
    if host not in (constraints.pinned or (host,)):
        return None
    return replace(request, constraints=replace(constraints, pinned=(host,)))
