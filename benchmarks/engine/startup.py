"""Rows: how long a new process takes until it has imported roost, and until it has decided."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_least, at_most

_ROUNDS = 3
_IMPORT = "import roost"
_IMPORT_ENGINE = "import roost.placement.engine"
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


def _run(program: str, **environment: str) -> tuple[float, str]:
    """Run a program in a new process; return wall seconds and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return time.perf_counter() - began, done.stdout.strip()


def _import(name: str) -> Iterator[Result]:
    bare = statistics.median(_run("pass")[0] for _ in range(_ROUNDS))
    whole = statistics.median(_run(_IMPORT)[0] for _ in range(_ROUNDS))
    note = f"wall, whole process; {bare:.2f} s of it is Python itself"
    yield at_most(f"{name} roost", whole, "s", 0.5, note=note)
    _run(_IMPORT_ENGINE)
    whole = statistics.median(_run(_IMPORT_ENGINE)[0] for _ in range(_ROUNDS))
    yield at_most(f"{name} roost.placement.engine", whole, "s", None, note="wall, whole process")


def _decided(name: str, answer: str) -> None:
    if answer != _DECIDED:
        raise AnswersDiffer(f"{name}: two VMs went to {answer!r} instead of {_DECIDED!r}")


def _second_start(name: str) -> Iterator[Result]:
    _decided(name, _run(_DECIDE)[1])  # the first start may have to compile
    spent = []
    for _ in range(_ROUNDS):
        wall_s, answer = _run(_DECIDE)
        _decided(name, answer)
        spent.append(wall_s)
    note = "wall, whole process: 100 hosts registered, two decisions, kernels from the cache"
    yield at_most(f"{name}, second start", min(spent), "s", 1.0, note=note)


def _without_cache(name: str) -> Iterator[Result]:
    try:
        wall_s, answer = _run(_DECIDE, NUMBA_CACHE_DIR=_NOWHERE)
    except subprocess.CalledProcessError:
        wall_s, answer = 0.0, ""
    note = f"decided after {wall_s:.0f} s of compiling" if answer else "failed"
    yield at_least(f"{name}: decides", float(answer == _DECIDED), "yes", 1.0, note=note)
