"""PlanetLab consolidation: few hosts on, few moves, by forecasts and the planner's own goals.

At the start nothing is known, and every VM is placed with what it asked for. From then on, at the
end of steps of five minutes:

    readings so far -> forecasts of VMs -> a plan for headroom: hosts that will be short
                                        -> a plan to consolidate: whole hosts, a few times a day

A VM counts in the fleet as the mean of its forecast, so scaled that the marks of the two goals lie
where `Habits` puts them. Guards say no as they do in a fleet, so who has moved rests; the engine's
own filters say where a VM may go. Hosts without VMs are off, and closed. Nothing is read of a step
that has not ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.analysis.planetlab import (
    CORE_MIPS,
    DAYS,
    HOST_MEMORY_MB,
    HOSTS,
    MOVED_MB_PER_S,
    RIVAL,
    STEP_S,
    WATTS,
    Cost,
    Day,
    Ints,
    Tally,
    host_mips,
    host_type,
    read_day,
    read_rival,
)
from benchmarks.analysis.sizes import Sizes
from benchmarks.analysis.synthetic import Floats
from benchmarks.engine.measuring import Job, say
from benchmarks.results import Result, at_most, skipped
from roost.analysis.forecasting import forecast_batch
from roost.base.units import MIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import Constraints, LabelOperator, LabelTerm
from roost.model.flow import PlaceRequest
from roost.model.hosts import Admin, HostSpec, Resource
from roost.model.resources import Demand
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Candidate, Limits
from roost.planner.cost import Load
from roost.planner.drafting import Wish, draft
from roost.planner.goals.consolidate import MOST_LOAD
from roost.planner.goals.headroom import SHORT
from roost.planner.guards import resting
from roost.planner.power import LABEL

_QUICK = Constraints((LabelTerm("core_mips", LabelOperator.IN, (str(CORE_MIPS[1]),)),))
_ANY = Constraints()
#: Amounts of cpu are in tenths of a MIPS.
PER_MIPS = 10
#: A plan is carried out within its step, however many move at a time.
_LIMITS = Limits(per_host=1000, at_once=1000, most=5000)
#: Hosts that are switched on at one step, one plan after the other.
_MOST_SWITCHED_ON = 20


@dataclass(frozen=True, slots=True)
class Habits:
    """When to plan, and how full hosts are for it. Chosen on 20110322 alone."""

    fill: float = 0.7  # how full, by what is expected, a plan that empties hosts may make them
    relieved: float = 1.2  # from this expected load on, a host is short for a plan
    ahead: int = 36  # steps that are expected
    expect_every: int = 6  # steps between two forecasts of all VMs
    empty_at: tuple[int, ...] = (3, 73, 145)  # steps at which hosts are emptied


class Consolidation:
    """One day on one fleet."""

    def __init__(self, day: Day, habits: Habits, *, memory_held: bool) -> None:
        self.day, self.habits = day, habits
        self.tally = Tally(day)
        self.fleet = Fleet()
        # The engine knows no VM without memory: where it is left out each has a byte.
        self._memory: Ints = day.memory_mb * MIB if memory_held else np.ones_like(day.memory_mb)
        memory = Resource(HOST_MEMORY_MB * MIB)
        for number in range(HOSTS):
            cpu = Resource(int(host_mips(number) * PER_MIPS))
            kind = host_type(number)
            watts = "/".join(f"{each:.0f}" for each in WATTS[kind])
            labels = (("core_mips", str(CORE_MIPS[kind])), (LABEL, watts))
            spec = HostSpec(f"h{number:03}", cpu, memory, Resource(0), labels=labels)
            self.fleet.register(spec)
        self.world = WhatIf(self.fleet, "best_fit")
        self.host_of: Ints = np.full(len(day.asked), -1, np.int64)
        self.expected: Floats = day.asked.astype(np.float64)
        self.factor = 1.0  # until something is forecast, VMs count as what they asked for
        self._moves_s: dict[int, list[int]] = {}

    def run(self) -> Cost:
        """Play the day and return what it has cost."""
        for vm in np.argsort(-self.day.asked, kind="stable").tolist():
            self._place(vm)
        for step in range(len(self.day.used)):
            before = self.host_of.copy()
            if step:
                self._adapt(step)
            moved = np.flatnonzero(self.host_of != before)
            for vm in moved.tolist():
                self._moves_s.setdefault(vm, []).append(STEP_S * step)
            self.tally.moved(moved, step)
            self.tally.stepped(self.host_of, step)
        return self.tally.cost()

    # What is decided

    def _adapt(self, step: int) -> None:
        """Decide at the end of a step by what was read until then."""
        habits, seen = self.habits, self.day.used[:step]
        if step < habits.expect_every or step % habits.expect_every == 0:
            self._expect(seen)
            self._relieve(step)
        if step in habits.empty_at:
            self._count(MOST_LOAD / habits.fill)
            self._plan("consolidate", step)
            self._switch_off()

    def _expect(self, seen: Floats) -> None:
        """Forecast every VM by what was read of it."""
        told = forecast_batch(np.ascontiguousarray(seen.T), self.habits.ahead)
        self.expected = np.minimum(told.point.mean(axis=1), self.day.asked)

    def _relieve(self, step: int) -> None:
        """Plan for headroom; while hosts stay short, one more is switched on for the next plan."""
        self._count(SHORT / self.habits.relieved)
        for _ in range(_MOST_SWITCHED_ON):
            if not self._any_short():
                return
            self._plan("headroom", step)
            if not self._any_short() or not self._switch_on():
                return

    def _any_short(self) -> bool:
        wanted = np.bincount(self.host_of, weights=self.expected, minlength=HOSTS)
        mips = np.array([host_mips(number) for number in range(HOSTS)])
        return bool((wanted > self.habits.relieved * mips).any())

    def _switch_on(self) -> bool:
        """Open a quick host that is off, or any; return whether there was one."""
        off = np.flatnonzero(~self.fleet.hosts.arrays.takes[:HOSTS]).tolist()
        row = max(off, key=lambda row: (host_type(row), row), default=None)
        if row is not None:
            self.fleet.set_admin(self.fleet.hosts.names[row], Admin.OPEN)
        return row is not None

    # What is done

    def _plan(self, goal: str, step: int) -> None:
        """Draft a plan on the hosts that are on, and carry it out."""
        now_s = STEP_S * step
        candidates = {
            str(vm): Candidate(
                str(vm),
                str(vm),
                PlaceRequest(str(vm), self._demand(vm), self._wish(vm), key=str(vm)),
                int(self.host_of[vm]),
                Load(int(self.day.memory_mb[vm]) * MIB),
                resting=resting(self._moves_s.get(vm, []), now_s),
            )
            for vm in range(len(self.expected))
        }
        board = Board(
            self.world, candidates, {row: row for row in range(HOSTS)}, now_s, _LIMITS,
            bandwidth=lambda _a, _b: MOVED_MB_PER_S * 1e6,
        )  # fmt: skip
        for each in draft(board, Wish(goal)).moves:
            self.host_of[int(each.who.vm)] = each.target
        if any(board.row_of(who) != self.host_of[int(vm)] for vm, who in candidates.items()):
            raise AssertionError(f"the fleet of step {step} is not as its plan left it")

    def _switch_off(self) -> None:
        """Close the hosts without VMs."""
        arrays = self.fleet.hosts.arrays
        for row in np.flatnonzero((arrays.vm_count[:HOSTS] == 0) & arrays.takes[:HOSTS]).tolist():
            self.fleet.set_admin(self.fleet.hosts.names[row], Admin.CORDONED)

    def _count(self, factor: float) -> None:
        """Let every VM count as what is expected of it, times a factor."""
        self.factor = factor
        for vm in range(len(self.expected)):
            self.fleet.resize(self.fleet.vm_number(str(vm)), self.fleet.vector(self._demand(vm)))

    def _place(self, vm: int) -> None:
        """Put a VM where the engine says: on the hosts that do most for their power, if it can."""
        for constraints in (_QUICK, _ANY):
            request = PlaceRequest(str(vm), self._demand(vm), constraints, key=str(vm))
            found = self.world.find(request)
            if found is not None:
                self.world.commit(request, found)
                self.host_of[vm] = found.host_row
                return
            if self._wish(vm) is _QUICK:
                break
        raise AssertionError(f"VM {vm} of {self.day.name} fits nowhere")

    def _wish(self, vm: int) -> Constraints:
        """Return where a VM may go: a core must do what the VM asked for."""
        return _QUICK if self.day.asked[vm] > CORE_MIPS[0] else _ANY

    def _demand(self, vm: int) -> Demand:
        cpu = max(1, int(self.expected[vm] * PER_MIPS * self.factor))
        return Demand(cpu, int(self._memory[vm]))


# Rows

#: The rows, with the goal of each as a part of what the rival's day costs.
GOALS = {"energy": 1.0, "ESV": 0.5, "migrations": 0.05}
HELD = "energy, memory held"


class Played(NamedTuple):
    """What a day has cost here, and the rival."""

    day: str
    mine: Cost
    rival: Cost


@cache
def played(data: Path, days: tuple[str, ...], memory_held: bool) -> tuple[Played, ...]:
    """Play days; several rows are of the same ones."""
    found = []
    for name in days:
        say(f"consolidation: {name}, memory {'held' if memory_held else 'left out'}")
        day = read_day(data, name)
        cost = Consolidation(day, Habits(), memory_held=memory_held).run()
        found.append(Played(name, cost, read_rival(data, name)))
    return tuple(found)


def figure(row: str, cost: Cost) -> float:
    """Return what a row is of."""
    if row == "ESV":
        return cost.esv
    return cost.migrations if row == "migrations" else cost.energy_kwh


def rows_of(row: str, data: Path, sizes: Sizes) -> Iterator[Result]:
    """Measure a row: the worse of the days, and both in its note."""
    unit = f"of {RIVAL}"
    rows = (row, HELD) if row == "energy" else (row,)
    if not (data / "planetlab").is_dir():
        why = f"no planetlab under {data}. Maybe set DATA to the folder of public data."
        yield from (skipped(each, unit, why) for each in rows)
        return
    for each in rows:
        days = played(data, DAYS if sizes.full else DAYS[:1], each == HELD)
        worst = max(figure(row, day.mine) / figure(row, day.rival) for day in days)
        goal = None if each == HELD else sizes.goal(GOALS[row])
        note = "; ".join(_words(row, day) for day in days)
        yield at_most(each, worst, unit, goal, note=note)


def _words(row: str, day: Played) -> str:
    mine, rival = day.mine, day.rival
    if row == "energy":
        return f"{day.day}: {mine.energy_kwh:.1f} beside {rival.energy_kwh:.1f} kWh"
    if row == "migrations":
        return f"{day.day}: {mine.migrations:,} beside {rival.migrations:,}"
    shares = f"SLATAH {100 * mine.slatah:.1f}%, PDM {100 * mine.pdm:.4f}%"
    return f"{day.day}: {1e3 * mine.esv:.2f}e-3 beside {1e3 * rival.esv:.2f}e-3 ({shares})"


def jobs(data: Path, sizes: Sizes) -> list[Job]:
    """Return a job for each row; they share the days that were played."""
    return [Job(row, partial(rows_of, row, data, sizes)) for row in GOALS]
