"""The order of moves: waves that are safe after every prefix and after the failure of any move.

The moves of one wave run together. A VM that moves keeps its room at the source until it has
arrived, so a wave begins only where the targets have room for all that come beside all that is
there; who fails stays where it was and is over nobody's room. A move that needs room, or a domain,
that an earlier one gives up names it in `waits_for`: when that one fails, this one must not start,
and nor must what waits for it. The others go on.

Moves that wait for each other in a circle go through a third host that has room; where there is
none they are said to be impossible.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from roost.fleet.layout import Int32Array
from roost.planner.layout import broken
from roost.planner.problem import APART, BOUND, COUNTED, LEVEL, RULE, WEIGHT, Problem, Step


@dataclass(frozen=True, slots=True)
class Move:
    """A VM's way from one host to another; `number` is its place in the whole order."""

    number: int
    vm: int
    source: int
    target: int
    waits_for: tuple[int, ...] = ()
    detour: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may happen at once: moves that a host sends or takes, moves in a wave."""

    per_host: int = 2
    per_wave: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Ordered:
    """Waves of moves, and the moves for which there is no order."""

    waves: tuple[tuple[Move, ...], ...]
    impossible: tuple[Step, ...] = ()

    @property
    def moves(self) -> tuple[Move, ...]:
        """Return all moves in their order."""
        return tuple(move for wave in self.waves for move in wave)


class Ground(Protocol):
    """Where VMs stand while waves are laid out; VMs and hosts are numbers of its own.

    One is made of a problem's arrays, another of an engine's world (`rehearsal`).
    """

    def where(self, vm: int) -> int:
        """Return the host that a VM is on, or on its way to."""

    def enter(self, vm: int, target: int, number: int) -> set[int] | None:
        """Charge the target with a VM that still is at its source.

        Returns the earlier moves that this one rests on; None, and nothing changed, if it must
        wait.
        """

    def leave(self, wave: Sequence[Move]) -> None:
        """Free what the VMs of a wave had at their sources: all have arrived."""

    def lanes(self, vm: int, source: int, target: int) -> Iterable[tuple[Hashable, int]]:
        """Return what else a move takes a place of, and how many places there are at once."""

    def thirds(self, vm: int) -> Iterable[int]:
        """Return the hosts on which a VM might wait for its target, the best first."""

    def size(self, vm: int) -> Any:
        """Return by what the smallest VM is found: it goes the longer way."""


def order(problem: Problem, moves: Sequence[Step], limits: Limits | None = None) -> Ordered:
    """Put moves of a problem into waves."""
    return order_on(ProblemGround(problem), moves, limits)


def order_on(ground: Ground, moves: Sequence[Step], limits: Limits | None = None) -> Ordered:
    """Put moves into waves on a ground."""
    ordering = _Ordering(ground, limits or Limits())
    pending = [(vm, target) for vm, target in moves if ground.where(vm) != target]
    waves: list[tuple[Move, ...]] = []
    while pending:
        wave, pending = ordering.wave(pending)
        if not wave:
            wave = ordering.detour(pending)
        if not wave:
            return Ordered(tuple(waves), tuple(pending))
        waves.append(tuple(wave))
    return Ordered(tuple(waves))


class _Ordering:
    """Waves as they are laid out on a ground."""

    def __init__(self, ground: Ground, limits: Limits) -> None:
        self.ground, self.limits = ground, limits
        self.detoured: set[int] = set()  # each once, or two could go round for ever
        self.count = 0

    def wave(self, pending: list[Step]) -> tuple[list[Move], list[Step]]:
        """Return the moves that can run together now, and those that cannot yet."""
        chosen: list[Move] = []
        left: list[Step] = []
        taken: Counter[Hashable] = Counter()
        for vm, target in pending:
            lanes = self._lanes(vm, target)
            free = len(chosen) < self.limits.per_wave and all(
                taken[lane] < places for lane, places in lanes
            )
            move = self._begin(vm, target, detour=False) if free else None
            if move is None:
                left.append((vm, target))
                continue
            chosen.append(move)
            taken.update(lane for lane, _ in lanes)
        self.ground.leave(chosen)
        return chosen, left

    def detour(self, pending: list[Step]) -> list[Move]:
        """Send one VM of a circle to a third host; return no move where none has room."""
        smallest_first = sorted(pending, key=lambda step: (self.ground.size(step[0]), step[0]))
        for vm, final in smallest_first:
            if vm in self.detoured or not self._helps(vm, pending):
                continue
            for host in self.ground.thirds(vm):
                if host in (self.ground.where(vm), final):
                    continue
                if any(places <= 0 for _, places in self._lanes(vm, host)):
                    continue
                move = self._begin(vm, host, detour=True)
                if move is not None:
                    self.detoured.add(vm)
                    self.ground.leave([move])
                    return [move]
        return []

    def _lanes(self, vm: int, target: int) -> list[tuple[Hashable, int]]:
        source, places = self.ground.where(vm), self.limits.per_host
        more = self.ground.lanes(vm, source, target)
        return [(("host", source), places), (("host", target), places), *more]

    def _helps(self, vm: int, pending: list[Step]) -> bool:
        """Say whether some other move waits for the host that this VM is on."""
        source = self.ground.where(vm)
        return any(target == source and other != vm for other, target in pending)

    def _begin(self, vm: int, target: int, *, detour: bool) -> Move | None:
        """Take the room at the target; what is at the source stays taken until the wave ends."""
        source = self.ground.where(vm)
        waits = self.ground.enter(vm, target, self.count)
        if waits is None:
            return None
        self.count += 1
        return Move(self.count - 1, vm, source, target, tuple(sorted(waits)), detour)


class ProblemGround:
    """The fleet of a problem while waves are laid out; plain lists, quicker one by one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.demand: list[list[int]] = problem.demand.tolist()
        self.capacity: list[list[int]] = problem.capacity.tolist()
        self.place: list[int] = problem.start.tolist()
        used = problem.base.copy()
        np.add.at(used, problem.start, problem.demand)
        self.used: list[list[int]] = used.tolist()
        # What was there at first and all that came since: room that no departure has to give.
        self.without: list[list[int]] = used.tolist()
        self.departed: list[list[Move]] = [[] for _ in range(problem.hosts)]
        self.rules = _Rules(problem)

    def where(self, vm: int) -> int:
        """Return the host that a VM is on."""
        return self.place[vm]

    def enter(self, vm: int, target: int, number: int) -> set[int] | None:
        """Charge the target, if amounts and rules allow it."""
        if not self._fits(vm, target):
            return None
        source = self.place[vm]
        blockers = self.rules.admits(vm, source, target)
        if blockers is None:
            return None
        for at, amount in enumerate(self.demand[vm]):
            self.used[target][at] += amount
            self.without[target][at] += amount
        waits = blockers | self._needed_departures(vm, target)
        earlier = self.rules.last_move.get(vm)
        if earlier is not None:  # the second half of a way through a third host
            waits.add(earlier)
        self.rules.begin(Move(number, vm, source, target))
        return waits

    def leave(self, wave: Sequence[Move]) -> None:
        """Free what the VMs of a wave had at their sources."""
        for move in wave:
            for at, amount in enumerate(self.demand[move.vm]):
                self.used[move.source][at] -= amount
            self.departed[move.source].append(move)
            self.place[move.vm] = move.target
        self.rules.end(wave)

    def lanes(self, vm: int, source: int, target: int) -> Iterable[tuple[Hashable, int]]:
        """Return nothing: only hosts are shared."""
        return ()

    def thirds(self, vm: int) -> Iterable[int]:
        """Return the hosts that a VM's class may be on."""
        allowed: list[int] = np.flatnonzero(
            self.problem.allowed[self.problem.vm_class[vm]]
        ).tolist()
        return allowed

    def size(self, vm: int) -> list[int]:
        """Return the amounts of a VM."""
        return self.demand[vm]

    def _fits(self, vm: int, target: int) -> bool:
        used, capacity = self.used[target], self.capacity[target]
        return all(
            amount == 0 or used[at] + amount <= capacity[at]
            for at, amount in enumerate(self.demand[vm])
        )

    def _needed_departures(self, vm: int, target: int) -> set[int]:
        """Return as many earlier departures as the room of an arrival comes from."""
        over = [
            self.without[target][at] - self.capacity[target][at] if amount else 0
            for at, amount in enumerate(self.demand[vm])
        ]
        waits: set[int] = set()
        for move in self.departed[target]:
            if max(over) <= 0:
                break
            gives = self.demand[move.vm]
            if any(short > 0 and gives[at] > 0 for at, short in enumerate(over)):
                over = [short - gives[at] for at, short in enumerate(over)]
                waits.add(move.number)
        return waits


class _Rules:
    """Members of hard groups by domain, with those on their way counted at both ends."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.place = problem.start.copy()
        self.last_move: dict[int, int] = {}  # by VM, the number of its last move
        rule, weight = problem.groups[:, RULE], problem.groups[:, WEIGHT]
        hard = np.flatnonzero((weight == 0) & (rule != COUNTED))
        needing = set(problem.needs.ravel().tolist())
        self.apart: dict[int, list[int]] = {}
        self.whole: dict[int, list[int]] = {}  # judged by looking at all members
        self.counts: dict[tuple[int, int], int] = {}
        self.left: dict[tuple[int, int], list[int]] = {}
        self.moved: dict[int, list[int]] = {}
        for group in sorted(set(hard.tolist()) | needing):
            begin, end = problem.member_start[group], problem.member_start[group + 1]
            kept = self.apart if problem.groups[group, RULE] == APART else self.whole
            for vm in problem.members[begin:end].tolist():
                kept.setdefault(vm, []).append(group)
                if kept is self.apart:
                    at = (group, self._domain(group, int(problem.start[vm])))
                    self.counts[at] = self.counts.get(at, 0) + 1

    def _domain(self, group: int, host: int) -> int:
        return int(self.problem.domain[host, self.problem.groups[group, LEVEL]])

    def admits(self, vm: int, source: int, target: int) -> set[int] | None:
        """Return the earlier moves that a move's rules rest on, None if it must wait."""
        waits: set[int] = set()
        for group in self.apart.get(vm, ()):
            at = (group, self._domain(group, target))
            if at[1] == self._domain(group, source):
                continue
            if at[1] < 0 or self.counts.get(at, 0) >= self.problem.groups[group, BOUND]:
                return None
            waits.update(self.left.get(at, ()))
        whole = self.whole.get(vm)
        if whole:
            if not self._holds(vm, target, whole):
                return None
            for group in whole:
                waits.update(self.moved.get(group, ()))
        return waits

    def _holds(self, vm: int, target: int, groups: list[int]) -> bool:
        """Say whether a move makes none of these groups' rules, or needs, worse."""
        problem, before = self.problem, self.place.copy()
        after = before.copy()
        after[vm] = target
        for group in groups:
            if problem.groups[group, RULE] != COUNTED:
                one = _only(problem, group)
                if broken(one, after)[0] > broken(one, before)[0]:
                    return False
        linked = [pair for pair in problem.needs.tolist() if set(pair) & set(groups)]
        return all(
            self._around(needing, after) <= self._around(needed, after)
            or not self._around(needing, before) <= self._around(needed, before)
            for needing, needed in linked
        )

    def _around(self, group: int, place: Int32Array) -> set[int]:
        begin, end = self.problem.member_start[group], self.problem.member_start[group + 1]
        level = self.problem.groups[group, LEVEL]
        return set(self.problem.domain[place[self.problem.members[begin:end]], level].tolist())

    def begin(self, move: Move) -> None:
        """Count a VM at its target as well."""
        for group in self.apart.get(move.vm, ()):
            less, more = self._domain(group, move.source), self._domain(group, move.target)
            if less != more:
                self.counts[group, more] = self.counts.get((group, more), 0) + 1
        for group in self.whole.get(move.vm, ()):
            self.moved.setdefault(group, []).append(move.number)
        self.place[move.vm] = move.target
        self.last_move[move.vm] = move.number

    def end(self, wave: Sequence[Move]) -> None:
        """Count the VMs of a wave no longer at their sources."""
        for move in wave:
            for group in self.apart.get(move.vm, ()):
                less, more = self._domain(group, move.source), self._domain(group, move.target)
                if less != more:
                    self.counts[group, less] -= 1
                    self.left.setdefault((group, less), []).append(move.number)


def _only(problem: Problem, group: int) -> Problem:
    begin, end = problem.member_start[group], problem.member_start[group + 1]
    return replace(
        problem,
        groups=problem.groups[group : group + 1],
        member_start=np.array([0, end - begin], np.int64),
        members=problem.members[begin:end],
    )
