"""PlanetLab consolidation: few hosts on, few moves, by forecasts and the real engine.

At the start nothing is known, and every VM is placed with what it asked for. From then on, each
step of five minutes:

    readings so far -> forecasts of VMs -> hosts that are expected to be overloaded give VMs away
                                        -> hosts that others have room for are emptied, whole

A VM counts in the fleet as the mean of its forecast, and the engine's own filters and `best_fit`
say where it may go: up to `Habits.fill` of a host. From there to `Habits.relieved`, where a host
gives VMs away, nothing moves, and hosts are emptied a few times a day: that keeps moves few.
Nothing is read of a step that has not ended.
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
    RIVAL,
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
from roost.placement.engine import Engine

_QUICK = Constraints((LabelTerm("core_mips", LabelOperator.IN, (str(CORE_MIPS[1]),)),))
_ANY = Constraints()
#: Amounts of cpu are in tenths of a MIPS.
PER_MIPS = 10


@dataclass(frozen=True, slots=True)
class Habits:
    """When to move. All were chosen on 20110322; the other day was not looked at for that."""

    fill: float = 0.65  # how full, by what is expected, moves may make a host
    relieved: float = 1.1  # from this expected load on, a host gives VMs away
    ahead: int = 36  # steps that are expected
    expect_every: int = 6  # steps between two forecasts of all VMs
    empty_at: tuple[int, ...] = (1, 6, 73, 145, 217)  # steps at which hosts are emptied


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
            labels = (("core_mips", str(CORE_MIPS[host_type(number)])),)
            spec = HostSpec(f"h{number:03}", cpu, memory, Resource(0), labels=labels)
            self.fleet.register(spec)
        self.engine = Engine(self.fleet, "best_fit")
        self.host_of: Ints = np.full(len(day.asked), -1, np.int64)
        self.expected: Floats = day.asked.astype(np.float64)
        self.fill = 1.0  # until something is forecast, VMs count as what they asked for

    def run(self) -> Cost:
        """Play the day and return what it has cost."""
        for vm in np.argsort(-self.day.asked, kind="stable").tolist():
            if not self._place(vm):
                raise AssertionError(f"VM {vm} of {self.day.name} fits nowhere")
        for step in range(len(self.day.used)):
            before = self.host_of.copy()
            if step:
                self._adapt(step)
            # Who was sent on within one step goes to the last host at once.
            self.tally.moved(np.flatnonzero(self.host_of != before), step)
            self.tally.stepped(self.host_of, step)
        return self.tally.cost()

    # What is decided

    def _adapt(self, step: int) -> None:
        """Decide at the end of a step by what was read until then."""
        habits, seen = self.habits, self.day.used[:step]
        if step < habits.expect_every or step % habits.expect_every == 0:
            self._expect(seen)
        self._relieve(seen)
        if step in habits.empty_at:
            self._empty_hosts()

    def _expect(self, seen: Floats) -> None:
        """Let every VM count with the mean of what is forecast of it."""
        told = forecast_batch(np.ascontiguousarray(seen.T), self.habits.ahead)
        self.fill = self.habits.fill
        self.expected = np.minimum(told.point.mean(axis=1), self.day.asked)
        for vm in range(len(self.expected)):
            self.fleet.resize(self.fleet.vm_number(str(vm)), self.fleet.vector(self._demand(vm)))

    def _relieve(self, seen: Floats) -> None:
        """Let hosts give VMs away whose VMs together are expected to want more than there is."""
        hosts = np.unique(self.host_of)
        sums = np.stack([seen[:, self.host_of == host].sum(axis=1) for host in hosts])
        told = forecast_batch(sums, self.habits.ahead)
        for host, wanted in zip(hosts.tolist(), told.point.mean(axis=1).tolist(), strict=True):
            most = self.habits.relieved * host_mips(host)
            while wanted > most and self._vms_on(host).size > 1:
                vm = self._to_give(host, wanted - most)
                wanted -= self.expected[vm]
                if not self._move(vm):
                    break

    def _vms_on(self, host: int) -> Ints:
        return np.flatnonzero(self.host_of == host)

    def _to_give(self, host: int, excess: float) -> int:
        """Return the smallest VM that relieves a host alone, or its largest."""
        here = self._vms_on(host)
        enough = here[self.expected[here] >= excess]
        if len(enough):
            return int(enough[self.expected[enough].argmin()])
        return int(here[self.expected[here].argmax()])

    def _empty_hosts(self) -> None:
        """Empty hosts, those with the least to move first, as long as that works."""
        hosts, vms = np.unique(self.host_of, return_counts=True)
        for host in hosts[np.argsort(vms, kind="stable")].tolist():
            self._empty(host)

    def _empty(self, host: int) -> bool:
        """Move all VMs of a host to others that are on, or none of them."""
        fleet, before = self.fleet, self.host_of.copy()
        mark = fleet.mark()
        fleet.set_admin(fleet.hosts.names[host], Admin.CORDONED)
        here = self._vms_on(host)
        for vm in here[np.argsort(-self.expected[here], kind="stable")].tolist():
            if not self._move(vm, only_on=True):
                fleet.undo(mark)
                self.host_of = before
                return False
        fleet.keep(mark)
        fleet.set_admin(fleet.hosts.names[host], Admin.OPEN)
        return True

    # What is done

    def _move(self, vm: int, *, only_on: bool = False) -> bool:
        """Place a VM anew; return whether it went elsewhere."""
        number, before = self.fleet.vm_number(str(vm)), int(self.host_of[vm])
        mark = self.fleet.mark()
        self.fleet.remove(number)
        if self._place(vm, only_on=only_on) and self.host_of[vm] != before:
            self.fleet.keep(mark)
            return True
        self.fleet.undo(mark)
        self.host_of[vm] = before
        return False

    def _place(self, vm: int, *, only_on: bool = False) -> bool:
        """Put a VM where the engine says: on the hosts that do most for their power, if it can."""
        on = self.fleet.hosts.arrays.vm_count
        for constraints in self._wishes(vm):
            request = PlaceRequest(str(vm), self._demand(vm), constraints)
            found = self.engine.find(request)
            if found is not None and not (only_on and on.item(found.host_row) == 0):
                self.engine.commit(request, found)
                self.host_of[vm] = found.host_row
                return True
        return False

    def _wishes(self, vm: int) -> tuple[Constraints, ...]:
        """Return where a VM may go: a core must do what the VM asked for."""
        return (_QUICK,) if self.day.asked[vm] > CORE_MIPS[0] else (_QUICK, _ANY)

    def _demand(self, vm: int) -> Demand:
        """Return what a VM counts as; hosts have room for more than they should be filled with."""
        cpu = max(1, int(self.expected[vm] * PER_MIPS / self.fill))
        return Demand(cpu, int(self._memory[vm]))


# Rows

#: The rows, with the goal of each as a part of what the rival's day costs.
GOALS = {"energy": 1.0, "ESV": 0.5, "migrations": 0.1}
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
