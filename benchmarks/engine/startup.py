"""Rows: how long a new process takes until it has imported roost, and until it has decided."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_least, at_most

_ROUNDS = 3
_DECIDE = """
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource
from roost.model.resources import Demand
from roost.placement.engine import Engine

fleet = Fleet()
for number in range(100):
    fleet.register(HostSpec(f"h{number}", Resource(8000), Resource(2**34), Resource(2**40)))
engine = Engine(fleet)
for number in range(2):
    request = PlaceRequest(f"vm{number}", Demand(1000, 2**30))
    engine.commit(request, engine.find(request))
print(*fleet.vms.host[:2])
"""
#: The first two go to two empty hosts, lowest number first.
_DECIDED = "0 1"
#: Nobody can make a folder here, not even root.
_NOWHERE = "/proc/no-such-folder"


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the jobs of this topic."""
    yield Job("startup import", partial(_import, "startup import"))
    yield Job("startup decides", partial(_second_start, "startup decides"))
    if sizes.full:
        name = "startup without a cache folder"
        yield Job(name, partial(_without_cache, name))


def _run(program: str, **environment: str) -> tuple[float, float, str]:
    """Run a program in a new process; return wall and CPU seconds and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s, done.stdout.strip()


def _best(program: str) -> tuple[float, float]:
    """Return the least wall and CPU seconds of some runs, after one that may have to compile."""
    _run(program)
    runs = [_run(program)[:2] for _ in range(_ROUNDS)]
    return min(wall for wall, _ in runs), min(cpu for _, cpu in runs)


def _import(name: str) -> Iterator[Result]:
    for module, goal in (("roost", 0.5), ("roost.placement.engine", None)):
        wall_s, cpu_s = _best(f"import {module}")
        note = f"wall of the whole process, CPU {cpu_s:.2f} s"
        yield at_most(f"{name} {module}", wall_s, "s", goal, note=note)


def _second_start(name: str) -> Iterator[Result]:
    answer = _run(_DECIDE)[2]
    if answer != _DECIDED:
        raise AnswersDiffer(f"{name}: two VMs went to {answer!r} instead of {_DECIDED!r}")
    wall_s, cpu_s = _best(_DECIDE)
    note = f"wall of the whole process, CPU {cpu_s:.2f} s; 100 hosts, two decisions"
    yield at_most(f"{name}, second start", wall_s, "s", 1.0, note=note)


def _without_cache(name: str) -> Iterator[Result]:
    try:
        wall_s, _, answer = _run(_DECIDE, NUMBA_CACHE_DIR=_NOWHERE)
    except subprocess.CalledProcessError:
        wall_s, answer = 0.0, ""
    note = f"decided after {wall_s:.0f} s of compiling" if answer else "failed"
    yield at_least(f"{name}: decides", float(answer == _DECIDED), "yes", 1.0, note=note)
