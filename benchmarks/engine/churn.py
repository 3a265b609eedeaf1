"""Rows: changes of the fleet between decisions, through Python, on many hosts."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import numpy as np

from benchmarks.engine.checking import check_finds, time_plain
from benchmarks.engine.decision import filled_fleet
from benchmarks.engine.fleets import (
    FLAVORED,
    PLAIN_POOLS,
    PROFILES,
    host_spec,
    pick,
    requests_of,
)
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.engine.plain_scan import PlainScan
from benchmarks.results import Result, at_most
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine

_OPERATIONS = 2000
_ROUND = 500  # operations timed together; the best round counts
_CHECKED = 40
#: A change and a decision may cost so many times a decision with its commit.
_SAME_CLASS = 5.0

#: One change of the fleet; the number counts the changes of this kind.
Change = Callable[[int], None]


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return all churn rows as one job, because they are held to each other."""
    yield Job("churn", partial(_churn, sizes))


def _churn(sizes: Sizes) -> Iterator[Result]:
    basis_s = 0.0
    for strategy in ("least_loaded", "best_fit"):
        site = Site(filled_fleet(sizes.many).snapshot(), strategy)
        create_s = site.spend(site.create, decide=False)
        basis_s = basis_s or create_s
        goal_s = _SAME_CLASS * basis_s
        ratio = create_s / site.plain_s
        name = f"churn {strategy}"
        yield at_most(f"{name}: create", create_s * 1e6, "us", None, ratio=ratio)
        both_s = site.spend(site.create_or_delete, decide=False)
        ratio = both_s / (site.plain_s / 2)
        yield _row(sizes, f"{name}: half creates, half deletes", both_s, goal_s, ratio)
    site = Site(filled_fleet(sizes.many).snapshot(), "least_loaded")
    for what, change in site.changes():
        each_s = site.spend(change, decide=True, labelled=what == "label change")
        row = f"churn least_loaded: {what} and decision"
        yield _row(sizes, row, each_s, goal_s, each_s / site.plain_s)


def _row(sizes: Sizes, row: str, each_s: float, goal_s: float, ratio: float) -> Result:
    note = f"goal: {_SAME_CLASS:g} x create"
    return at_most(row, each_s * 1e6, "us", sizes.goal(goal_s * 1e6), ratio=ratio, note=note)


class Site:
    """A fleet to which things happen, with an engine and a plain scan that both look at it."""

    def __init__(self, fleet: Fleet, strategy: str) -> None:
        self.fleet = fleet
        self.strategy = strategy
        self.engine = Engine(fleet, strategy)
        self.plain = PlainScan(fleet, strategy)
        self.columns = FLAVORED.columns(fleet, 4 * _OPERATIONS, seed=9)
        self.requests = requests_of(fleet, self.columns, "new", strategy)
        self.plain_s = time_plain(self.plain, self.columns.part(0, _CHECKED))
        self._hosts = fleet.hosts.count
        rng = np.random.default_rng(10)
        alive = np.flatnonzero(fleet.vms.host[: fleet.vms.count] >= 0)
        self._victims = iter(rng.permutation(alive).tolist())
        self._resized = rng.permutation(alive)[:_OPERATIONS].tolist()
        self._rows = rng.permutation(self._hosts)[:_OPERATIONS].tolist()
        self._new = iter(self.requests)
        self._joining = [
            host_spec(self._hosts + n, PLAIN_POOLS, rng, cells=False)
            for n in range(_OPERATIONS + 2 * _CHECKED)
        ]

    def spend(self, change: Change, *, decide: bool, labelled: bool = False) -> float:
        """Return the seconds of a change (and a decision after it), checked before and after."""
        requests, columns = self._questions(labelled)
        engine, questions = self.engine, cycle(requests)
        end = _CHECKED + _OPERATIONS
        self._checked(change, range(_CHECKED), requests, columns)
        best = float("inf")
        for start in range(_CHECKED, end, _ROUND):
            with timed() as span:
                for number in range(start, start + _ROUND):
                    change(number)
                    if decide:
                        engine.find(next(questions))
            best = min(best, span.cpu_s / _ROUND)
        self._checked(change, range(end, end + _CHECKED), requests, columns)
        return best

    def _questions(self, labelled: bool) -> tuple[list[PlaceRequest], RequestColumns]:
        """Return what is asked after a change, if need be only requests with a label rule."""
        wanted = np.arange(len(self.requests) // 2)
        if labelled:
            ruled = [bool(self.requests[n].constraints.labels) for n in wanted.tolist()]
            wanted = wanted[np.array(ruled)]
        return [self.requests[n] for n in wanted.tolist()], pick(self.columns, wanted)

    def _checked(
        self,
        change: Change,
        numbers: range,
        requests: list[PlaceRequest],
        columns: RequestColumns,
    ) -> None:
        for number in numbers:
            change(number)
            at = number % len(requests)
            part = columns.part(at, at + 1)
            what = f"churn, after change {number}"
            check_finds(what, self.engine, self.plain, requests[at : at + 1], part)

    # The changes

    def changes(self) -> Iterator[tuple[str, Change]]:
        """Return the changes that are each followed by a decision."""
        yield "delete", self.delete
        yield "resize", self.resize
        yield "host joining", self.join
        yield "host leaving", self.leave
        yield "label change", self.relabel

    def create(self, number: int) -> None:
        """Decide and commit."""
        request = next(self._new)
        placement = self.engine.find(request)
        if placement is not None:
            self.engine.commit(request, placement)

    def delete(self, number: int) -> None:
        """Take a VM away."""
        self.fleet.remove(next(self._victims))

    def create_or_delete(self, number: int) -> None:
        """Do the one and the other in turn."""
        if number % 2:
            self.delete(number)
        else:
            self.create(number)

    def resize(self, number: int) -> None:
        """Halve a VM's demand."""
        vm = self._resized[number % len(self._resized)]
        if self.fleet.vms.host[vm] >= 0:
            self.fleet.resize(vm, self.fleet.vms.demand[vm] // 2)

    def join(self, number: int) -> None:
        """Register one more host."""
        self.fleet.register(self._joining[number])

    def leave(self, number: int) -> None:
        """Remove one of the hosts that joined, which have no VMs yet."""
        self.fleet.remove_host(self._joining[number].name)

    def relabel(self, number: int) -> None:
        """Give a host another label profile."""
        row = self._rows[number % len(self._rows)]
        self.fleet.set_labels(self.fleet.hosts.names[row], PROFILES[number % len(PROFILES)])
