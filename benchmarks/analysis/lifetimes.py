"""Hosts without a VM: `lifetime_aware` beside `best_fit` on two traces, by the real engine.

Equal hosts, so many that the peak of cpu is 85% of them, or more if `best_fit` needs more. VMs come
and go as the trace says. In the first half nothing is known of ends, and how long VMs of each kind
live is learnt; from then on every VM has an expected end, again and again as it grows older than
that, and the share of hosts without a VM is averaged over the time of the second half.

A trace is chaotic: one VM more or less sends all that follow elsewhere. So the whole trace is the
row, and a few samples of it, each without a random fiftieth of the VMs, say how far to trust it.
"""

import csv
import gzip
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.analysis.sizes import Sizes
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_least, skipped
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource
from roost.model.outlook import NOTHING_EXPECTED, Expected
from roost.model.resources import Demand
from roost.placement.engine import Engine

Ints = NDArray[np.int64]

HOST_CORES, HOST_MEMORY_GB = 64, 256
PEAK_SHARE = 0.85
GOAL_POINTS = 2.0
#: Ages at which what is left is learnt anew, and how many VMs must have got there.
AGES_S: Ints = np.concatenate([[0], 60 * 2 ** np.arange(15)]).astype(np.int64)
LEAST_SEEN = 20
#: A VM that does not end within the trace.
FOR_EVER_S = 10**8

#: Seconds that a VM will still live, by its index and age.
Remaining = Callable[[int, int], int]


@dataclass(frozen=True)
class Trace:
    """VMs in order of arrival, as columns; `kind` is what VMs must share to be learnt together."""

    name: str
    cores: Ints
    memory_mib: Ints
    arrival_s: Ints
    lifetime_s: Ints
    kind: Ints

    def __len__(self) -> int:
        return len(self.cores)

    @property
    def middle_s(self) -> int:
        """Return the time between the first arrival and the last."""
        return int(self.arrival_s[0] + self.arrival_s[-1]) // 2

    def without(self, share: float, seed: int) -> "Trace":
        """Return the trace without a random share of its VMs."""
        kept = np.random.default_rng(seed).random(len(self)) >= share
        columns = (self.cores, self.memory_mib, self.arrival_s, self.lifetime_s, self.kind)
        return Trace(self.name, *(column[kept] for column in columns))

    def hosts(self) -> int:
        """Return how many hosts have the peak of cpu at 85%."""
        times = np.concatenate([self.arrival_s, self.arrival_s + self.lifetime_s])
        change = np.concatenate([self.cores, -self.cores])
        order = np.lexsort((change, times))  # those that leave first
        peak = int(np.cumsum(change[order]).max())
        return int(np.ceil(peak / PEAK_SHARE / HOST_CORES))


def huawei(data: Path) -> Trace:
    """Read Huawei-East-1: VMs whose end was recorded; a kind is a shape."""
    with gzip.open(data / "huawei-east1" / "vms_000000-069999.csv.gz", "rt") as text:
        rows = np.loadtxt(text, delimiter=",", skiprows=1, dtype=np.int64)
    kind = np.unique(rows[:, 1:3], axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    return Trace("Huawei", rows[:, 1], rows[:, 2] * 1024, rows[:, 3], rows[:, 4], kind)


def azure(data: Path) -> Trace:
    """Read Azure 2017; a kind is a shape and how many came with it.

    A lifetime is known by its bin, and drawn evenly from that.
    """
    rng = np.random.default_rng(2017)
    rows = []
    path = data / "azure-v1" / "vm_requests_1800000-2099700.csv.gz"
    with gzip.open(path, "rt", newline="") as text:
        for row in csv.DictReader(text):
            least, most = float(row["life_min_s"]), row["life_max_s"]
            drawn = rng.random()
            lifetime = FOR_EVER_S
            if most and row["censored"] != "1":
                lifetime = max(1, int(least + drawn * (float(most) - least)))
            memory = int(1024 * float(row["mem_gb"]))
            cores, arrival = int(float(row["vcpus"])), int(row["arrival_s"])
            rows.append((cores, memory, arrival, lifetime, int(row["batch"])))
    columns = np.array(rows, np.int64)
    batch, size = np.unique(columns[:, 4], return_inverse=True, return_counts=True)[1:]
    company = np.minimum(np.log2(size[batch.ravel()]), 6).astype(np.int64)
    shapes = np.column_stack([columns[:, :2], company])
    kind = np.unique(shapes, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    return Trace("Azure", *columns.T[:4], kind)


# What is expected


def learnt(trace: Trace) -> Remaining:
    """Return the mean of what is left by kind and age, as the first half shows it.

    Of a VM that still runs in the middle it is only known that it lives longer: that is the ratio
    of time lived after an age to ends after it, for lives that are cut off.
    """
    middle = trace.middle_s
    seen = trace.arrival_s < middle
    lived = np.minimum(trace.lifetime_s, middle - trace.arrival_s)[seen]
    ended = (trace.arrival_s + trace.lifetime_s <= middle)[seen]
    kind = trace.kind[seen]
    table = np.zeros((int(trace.kind.max()) + 1, len(AGES_S)))
    for at, age in enumerate(AGES_S.tolist()):
        after = np.maximum(lived - age, 0)
        reached = lived > age
        whole = after.sum() / max(1, np.count_nonzero(reached & ended))
        ends = np.bincount(kind[reached & ended], minlength=len(table))
        left = np.bincount(kind, weights=after, minlength=len(table)) / np.maximum(ends, 1)
        table[:, at] = np.where(ends >= LEAST_SEEN, left, max(whole, age))

    def remaining(vm: int, age_s: int) -> int:
        at = int(np.searchsorted(AGES_S, age_s, side="right")) - 1
        return max(60, int(table[trace.kind[vm], at]))

    return remaining


def noise(seed: int) -> Remaining:
    """Return lifetimes that have nothing to do with the VMs, from a minute to a month."""
    rng = np.random.default_rng(seed)
    return lambda vm, age_s: int(60 * 43_200 ** rng.random())


def truth(trace: Trace) -> Remaining:
    """Return the ends as they will be, to see how much there is to win."""
    return lambda vm, age_s: max(0, int(trace.lifetime_s[vm]) - age_s)


# The run


class Run:
    """One trace on one fleet under one strategy."""

    def __init__(self, trace: Trace, hosts: int, strategy: str, remaining: Remaining | None):
        self.trace, self._remaining = trace, remaining
        self.fleet = Fleet()
        for number in range(hosts):
            memory = Resource(HOST_MEMORY_GB * GIB)
            cpu = Resource(HOST_CORES * 1000)
            self.fleet.register(HostSpec(f"h{number:05}", cpu, memory, Resource(0)))
        self.engine = Engine(self.fleet, strategy)
        self.refused = 0
        self._empty = hosts
        self._leaving: list[tuple[int, int]] = []
        self._overdue: list[tuple[int, int]] = []
        self._area, self._last = 0.0, trace.middle_s
        self._demands = {
            shape: Demand(shape[0] * 1000, shape[1] * 2**20)
            for shape in {*zip(trace.cores.tolist(), trace.memory_mib.tolist(), strict=True)}
        }

    def empty_share(self) -> float:
        """Play the trace and return the mean share of empty hosts in its second half."""
        trace, known = self.trace, False
        arrivals = trace.arrival_s.tolist()
        for vm, now in enumerate(arrivals):
            self._let_leave(now)
            if not known and now >= trace.middle_s and self._remaining is not None:
                known = True
                self._expect_all(now)
            self._expect_again(now)
            self._count(now)
            self._place(vm, now, known)
        span = arrivals[-1] - trace.middle_s
        return self._area / span / len(self.fleet)

    def _count(self, now: int) -> None:
        if now > self._last:
            self._area += (now - self._last) * self._empty
            self._last = now

    def _let_leave(self, now: int) -> None:
        while self._leaving and self._leaving[0][0] <= now:
            at, vm = heapq.heappop(self._leaving)
            self._count(at)
            number = self.fleet.vm_number(str(vm))
            row = int(self.fleet.vms.host[number])
            self.fleet.remove(number)
            self._empty += self.fleet.hosts.arrays.vm_count.item(row) == 0

    def _expect(self, vm: int, now: int) -> Expected:
        if self._remaining is None:
            return NOTHING_EXPECTED
        end = now + self._remaining(vm, now - int(self.trace.arrival_s[vm]))
        heapq.heappush(self._overdue, (end, vm))
        return Expected(ends_s=end)

    def _expect_all(self, now: int) -> None:
        for name in list(self.fleet.vms.numbers):
            self.fleet.set_expected(name, self._expect(int(name), now))

    def _expect_again(self, now: int) -> None:
        """Expect another end of VMs that are older than they were expected to become."""
        while self._overdue and self._overdue[0][0] < now:
            _, vm = heapq.heappop(self._overdue)
            if str(vm) in self.fleet.vms.numbers:
                self.fleet.set_expected(str(vm), self._expect(vm, now))

    def _place(self, vm: int, now: int, known: bool) -> None:
        trace = self.trace
        demand = self._demands[int(trace.cores[vm]), int(trace.memory_mib[vm])]
        expected = self._expect(vm, now) if known else NOTHING_EXPECTED
        request = PlaceRequest(str(vm), demand, expected=expected)
        found = self.engine.find(request)
        if found is None:
            self.refused += 1
            return
        self._empty -= self.fleet.hosts.arrays.vm_count.item(found.host_row) == 0
        self.engine.commit(request, found)
        heapq.heappush(self._leaving, (now + int(trace.lifetime_s[vm]), vm))


def best_fit(trace: Trace) -> tuple[int, float]:
    """Return how many hosts best fit needs, and the share of them that it leaves empty."""
    hosts = trace.hosts()
    while True:
        run = Run(trace, hosts, "best_fit", None)
        share = run.empty_share()
        if not run.refused:
            return hosts, share
        hosts += max(1, hosts // 100)


def points(trace: Trace, remaining: Remaining, hosts: int, plain: float) -> tuple[float, int]:
    """Return how many points more hosts are empty than under best fit, and who was refused."""
    run = Run(trace, hosts, "lifetime_aware", remaining)
    return 100 * (run.empty_share() - plain), run.refused


def rows(
    data: Path, *, samples: int = 4, names: tuple[str, ...] = ("huawei", "azure")
) -> list[Result]:
    """Judge each trace by what was learnt, by noise and by the truth."""
    found = []
    for read in (each for each in (huawei, azure) if each.__name__ in names):
        whole = read(data)
        traces = [whole, *(whole.without(0.02, seed) for seed in range(samples))]
        bases = [best_fit(trace) for trace in traces]
        for what, goal, of in (
            ("lifetime empty hosts", GOAL_POINTS, learnt),
            ("with noise as predictions", 0.0, lambda trace: noise(len(trace))),
            ("with true ends", None, truth),
        ):
            won = [points(t, of(t), *base) for t, base in zip(traces, bases, strict=True)]
            several = [each for each, _ in won[1:]]
            note = f"{bases[0][0]} hosts, {100 * bases[0][1]:.1f}% empty by best_fit"
            if several:
                note += f"; {samples} samples {np.mean(several):+.2f} on average"
                note += f", {min(several):+.2f} to {max(several):+.2f}"
            if won[0][1]:
                note += f"; {won[0][1]} VMs refused"
            row = f"{what}, {whole.name}"
            found.append(at_least(row, won[0][0], "points", goal, note=note))
    return found


def jobs(data: Path, sizes: Sizes) -> list[Job]:
    """Return a job for each trace; a short run has the smaller one, without samples."""
    if not (data / "huawei-east1").is_dir():
        why = f"no huawei-east1 under {data}. Maybe set DATA to the folder of public data."
        return [Job("lifetime", lambda: [skipped("lifetime empty hosts", "points", why)])]
    names = ("huawei", "azure") if sizes.full else ("huawei",)
    samples = 4 if sizes.full else 0
    return [Job("lifetime", lambda: rows(data, samples=samples, names=names))]
