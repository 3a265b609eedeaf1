"""The exact search for a batch: solutions of the program that also pass the engine's filters."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roost.fleet.layout import BoolArray
from roost.model.flow import Placement, PlaceRequest
from roost.model.groups import GroupRule
from roost.placement.effort import Effort
from roost.placement.engine import NO_FIT, Engine
from roost.placement.greedy import place_in_turn
from roost.placement.solver.checking import order_that_fits
from roost.placement.solver.problem import VMClass, classes_of, kept_hosts, narrowed
from roost.placement.solver.program import NONE, SOLVED, Program, change_by

#: Solutions that are tried while filters say no to what the program cannot say: rules that read
#: what changes with every placement.
_MOST_TRIES = 32


#: Hosts for each class in programs that look for a solution, the quickest first.
_NARROW = (8, 64)
#: Variables of a program about the classes with the fewest hosts, which often prove that none fits.
_FEW_SEATS = 3_000
#: What either kind may take of the effort that is left.
_QUICK = 1 / 3
#: Variables of the largest program; with more, nothing is proven.
MOST_SEATS = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """Placements for all, in the order of the requests, and an order in which all pass.

    Without: whether that is proven, for every order in which the VMs could come, and which of them
    do not fit even by themselves.
    """

    placements: tuple[Placement, ...] | None
    order: tuple[int, ...] = ()
    proven: bool = True
    core: tuple[int, ...] = ()


def search(engine: Engine, requests: Sequence[PlaceRequest], effort: Effort | None = None) -> Found:
    """Find places for all at once, if there are any."""
    effort = effort or Effort()
    if effort.is_over():
        return Found(None, proven=False)
    classes = classes_of(engine, requests)
    found = _Search(engine, requests, classes, effort).run()
    if found.placements is None and any(helped := [helped_rules(vm, classes) for vm in classes]):
        # A rule may hold nowhere until others of the batch are there.
        found = _Search(engine, requests, classes, effort, helped).run()
    return found


def helped_rules(vm: VMClass, classes: Sequence[VMClass]) -> tuple[str, ...]:
    """Return the rules of a class that VMs of other classes may make true by being there."""
    return tuple(
        {
            rule: None
            for rule, line in vm.lines
            if any(change_by(line, other) > 0 for other in classes if other is not vm)
        }
    )


class _Search:
    """One search: what is to be decided, and what programs have said of it."""

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[PlaceRequest],
        classes: list[VMClass],
        effort: Effort,
        helped: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self._engine, self._requests, self._effort = engine, requests, effort
        self._classes = classes
        lifted = helped or [()] * len(classes)
        # Groups are the program's business: the other members decide what they allow.
        self._scores = [
            engine.scores(replace(vm.request, groups=(), lifted=(*vm.request.lifted, *rules)))
            for vm, rules in zip(classes, lifted, strict=True)
        ]
        self._possible = np.stack([each != NO_FIT for each in self._scores])

    def run(self) -> Found:
        """Try what is quick before what is sure."""
        nowhere = [vm for at, vm in enumerate(self._classes) if not self._possible[at].any()]
        if nowhere:
            return Found(None, core=nowhere[0].members)
        no_marks = np.zeros((self._possible.shape[1], 0), np.int64)
        fleet, classes = self._engine.fleet, self._classes
        self._hosts = kept_hosts(fleet, classes, self._possible, no_marks)
        kept = np.zeros(self._possible.shape[1], np.bool_)
        kept[[row for equal in self._hosts for row in equal]] = True
        self._kept = self._possible & kept
        begun = self._in_turn(self._hardest())
        if len(begun) == len(self._requests):
            order = tuple(index for index, _ in begun)
            placed = dict(begun)
            return Found(tuple(placed[at] for at in range(len(order))), order)
        found = self._hardest_exactly()
        if found is not None:
            return found
        for most in _NARROW:
            fewer = narrowed(fleet, classes, self._kept, most)
            found, _ = self._solutions(fewer, self._effort.part(_QUICK), begun)
            if found is not None:
                return found
            if (fewer == self._kept).all():
                break
        if int(self._kept.sum()) > MOST_SEATS:
            return Found(None, proven=False)
        found, proven = self._solutions(self._kept, self._effort, begun)
        return found or Found(None, proven=proven)

    def _hardest(self) -> list[int]:
        """Return the classes, those with the fewest hosts first, then the largest."""
        width = len(self._classes[0].demand)
        whole = np.maximum(self._engine.fleet.hosts.arrays.capacity.max(axis=0)[:width], 1)
        shares = [float((vm.demand / whole).sum()) for vm in self._classes]
        hosts = self._possible.sum(axis=1).tolist()
        return sorted(range(len(self._classes)), key=lambda at: (hosts[at], -shares[at]))

    def _in_turn(self, classes: Sequence[int]) -> list[tuple[int, Placement]]:
        """Place the VMs of classes in turn; return how far that came."""
        order = [index for at in classes for index in self._classes[at].members]
        asked = [self._requests[index] for index in order]
        placed, _ = place_in_turn(self._engine, asked, explain=False)
        return list(zip(order, placed, strict=False))

    def _hardest_exactly(self) -> Found | None:
        """Decide the classes with the fewest hosts exactly, then place the others in turn.

        If the former do not fit even by themselves, that is the answer; None: nothing is known.
        """
        seats = self._kept.sum(axis=1)
        chosen: list[int] = []
        total = 0
        for at in self._hardest():
            if total + int(seats[at]) > _FEW_SEATS:
                break
            chosen.append(at)
            total += int(seats[at])
        rest = [at for at in self._hardest() if at not in chosen]
        if not chosen or not rest:
            return None
        core = [self._whole_groups(at, rest) for at in sorted(chosen)]
        program = Program(
            self._engine, core, self._hosts, self._kept[sorted(chosen)], with_lines=False
        )
        status = program.solve(self._effort.part(_QUICK))
        if status == NONE and program.complete:
            return Found(None, core=tuple(index for vm in core for index in vm.members))
        if status != SOLVED:
            return None
        placed = self._placements(program, sorted(chosen))
        return self._with_rest(placed, rest)

    def _whole_groups(self, at: int, others: Sequence[int]) -> VMClass:
        """Return a class without the spreads that classes among the others take part in.

        Their members would count, so that what does not fit without them might with them.
        """
        vm, specs = self._classes[at], self._engine.fleet.groups.specs
        shared = {group for other in others for group in self._classes[other].groups}
        groups = tuple(
            group
            for group in vm.groups
            if specs[group].rule is not GroupRule.SPREAD or group not in shared
        )
        return replace(vm, groups=groups)

    def _with_rest(self, placed: dict[int, Placement], rest: Sequence[int]) -> Found | None:
        """Return a solution in which the others are placed in turn after those that are placed."""
        engine, fleet = self._engine, self._engine.fleet
        first = [index for vm in self._classes for index in vm.members if index in placed]
        order = order_that_fits(
            engine, [self._requests[at] for at in first], [placed[at] for at in first]
        )
        if order is None:
            return None
        first = [first[at] for at in order]
        version, cursor, mark = fleet.version, engine.cursor, fleet.mark()
        try:
            for index in first:
                engine.commit(self._requests[index], placed[index])
            others = self._in_turn(rest)
        finally:
            fleet.undo(mark)
            fleet.version, engine.cursor = version, cursor
        whole = placed | dict(others)
        if len(whole) < len(self._requests):
            return None
        return Found(
            tuple(whole[at] for at in range(len(whole))),
            (*first, *(index for index, _ in others)),
        )

    def _solutions(
        self, possible: BoolArray, effort: Effort, begun: Sequence[tuple[int, Placement]]
    ) -> tuple[Found | None, bool]:
        """Return a solution that passes the filters, or none and whether that is proven."""
        engine, classes = self._engine, self._classes
        if effort.is_over():
            return None, False
        program = Program(engine, classes, self._hosts, possible)
        program.hint(self._placed(begun))
        for _ in range(_MOST_TRIES):
            status = program.solve(effort)
            if status == NONE:
                proven = program.complete
                if proven and possible is self._kept and any(vm.lines for vm in classes):
                    # In another order rules about amounts might let all pass: is there one at all?
                    program = Program(engine, classes, self._hosts, possible, with_lines=False)
                    proven = program.solve(effort) == NONE
                return None, proven
            if status != SOLVED:
                return None, False
            placed = self._placements(program, range(len(classes)))
            placements = tuple(placed[index] for index in range(len(self._requests)))
            order = _order(engine, self._requests, classes, placements)
            if order is not None:
                return Found(placements, tuple(order)), True
            program.exclude()
        return None, False

    def _placed(self, begun: Sequence[tuple[int, Placement]]) -> dict[tuple[int, int], int]:
        """Return how many VMs of each class are where, of those that were placed in turn."""
        class_of = {index: at for at, vm in enumerate(self._classes) for index in vm.members}
        placed: dict[tuple[int, int], int] = defaultdict(int)
        for index, placement in begun:
            placed[class_of[index], placement.host_row] += 1
        return placed

    def _placements(self, program: Program, classes: Sequence[int]) -> dict[int, Placement]:
        """Read the hosts off a solution: the members of a class take their seats in turn."""
        found: dict[int, Placement] = {}
        waiting = {at: list(self._classes[at].members) for at in classes}
        for position, seat, count in program.counts():
            number = classes[position]
            for _ in range(count):
                index = waiting[number].pop(0)
                request = self._requests[index]
                found[index] = Placement(
                    vm=request.name,
                    host=self._engine.fleet.hosts.names[seat.row],
                    host_row=seat.row,
                    strategy=self._engine.strategy_of(request).name,
                    score=int(self._scores[number][seat.row]),
                    devices=seat.devices,
                    cells=seat.cells,
                    cursor=self._engine.cursor,
                )
        return found


def _order(
    engine: Engine,
    requests: Sequence[PlaceRequest],
    classes: Sequence[VMClass],
    placements: Sequence[Placement],
) -> list[int] | None:
    """Return an order in which all pass, looked for from that of the classes."""
    first = [index for vm in classes for index in vm.members]
    order = order_that_fits(
        engine, [requests[at] for at in first], [placements[at] for at in first]
    )
    return None if order is None else [first[at] for at in order]
