"""CPU time, sizes, and the unit of work that the command line chooses from."""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.results import Result

_BEGAN = time.perf_counter()
#: Processes that run on a machine on which nothing else goes on.
_QUIET = 0.7


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the fleets are. Goals are stated for the full sizes; a short run has none."""

    many: int
    few: int
    rule_hosts: int
    numa_hosts: int
    batch_vms: int
    continuous_vms: int
    full: bool

    def goal(self, value: float | None) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(100_000, 1_000, 5_000, 20_000, 1_000_000, 600_000, full=True)
SHORT = Sizes(10_000, 1_000, 500, 2_000, 100_000, 60_000, full=False)


class Job(NamedTuple):
    """Some rows that are measured together; their names begin with the job's."""

    name: str
    run: Callable[[], Iterable[Result]]


def named(jobs: Iterable[Job], prefix: str) -> list[Job]:
    """Return the jobs that have rows whose names begin so."""
    return [j for j in jobs if j.name.startswith(prefix) or prefix.startswith(j.name)]


def say_if_busy() -> None:
    """Tell the user when other work will make the numbers worse."""
    if (busy := os.getloadavg()[0]) > _QUIET:
        say(f"the machine is busy already (load {busy:.1f}); the numbers will be worse for it")


def say(text: str) -> None:
    """Tell the user what is going on."""
    print(f"[{time.perf_counter() - _BEGAN:5.0f} s] {text}", file=sys.stderr, flush=True)


class Span:
    """The CPU and wall seconds that a `with timed()` block took."""

    cpu_s = 0.0
    wall_s = 0.0


@contextmanager
def timed() -> Iterator[Span]:
    """Measure a block, with the garbage collector out of the way as timeit does it."""
    span = Span()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield span
    finally:
        span.cpu_s = time.process_time() - cpu
        span.wall_s = time.perf_counter() - wall
        gc.enable()
