"""Make the kernels ready before the first request: compiled once per machine, loaded each time."""

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from roost.app.childprocess import die_with_parent
from roost.base.private import plain_environment
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import Constraints
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource, Scope
from roost.model.resources import Demand
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.kernels.compiling import CACHE_FOLDER
from roost.placement.kernels.decide import judge
from roost.placement.strategies import STRATEGIES

#: Whether kernels are compiled at all, or run as Python.
COMPILES = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def _sign() -> Path | None:
    """Return the file that says that everything was compiled: its name says from what, for what.

    An image may be started on another processor than it was made on: its code is no use there.
    """
    from roost.analysis.kernels import compiling as analysis
    from roost.planner.kernels import compiling as planner

    if CACHE_FOLDER is None or analysis.FOLDER is None or planner.FOLDER is None or not COMPILES:
        return None
    return CACHE_FOLDER / f"warm-{analysis.FOLDER.name}-{planner.FOLDER.name}-{_processor()}"


def _processor() -> str:
    """Return a digest of the processor that kernels are compiled for, as the compiler names it."""
    named = cast(Any, judge).targetctx.codegen().magic_tuple()
    return sha256(repr(named).encode()).hexdigest()[:8]


def is_warm() -> bool:
    """Say whether the kernels of these sources were compiled before; without a folder, never."""
    sign = _sign()
    return not COMPILES or (sign is not None and sign.exists())


def can_keep() -> bool:
    """Say whether there is a folder in which one process leaves compiled code for others."""
    return _sign() is not None


async def compile_elsewhere() -> None:
    """Compile the kernels in another process, which ends with this one.

    It takes what processors others leave. Whatever becomes of it, this process can go on.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import os; os.nice(5); from roost.app.warming import warm_up; warm_up()",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=plain_environment(),
        preexec_fn=die_with_parent,
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def warm_up() -> None:
    """Decide by every strategy on a fleet of two hosts; takes minutes the first time."""
    _decide_by_all()
    _warm_analysis()
    if (sign := _sign()) is not None:
        if not sign.exists():  # few processes ever plan for a large fleet: others load nothing
            _compile_planner()
        with suppress(OSError):
            sign.touch()


def _decide_by_all() -> None:
    fleet = Fleet()
    for name in ("a", "b"):
        whole = Resource(64 * GIB)
        fleet.register(HostSpec(name, Resource(16_000), whole, whole, zone=name))
    engine = Engine(fleet)
    request = PlaceRequest("warm", Demand(1000, GIB, GIB))
    for name in STRATEGIES:
        engine.place(replace(request, strategy=name), runners_up=2)
    engine.place_batch([replace(request, name=f"warm-{at}") for at in range(2)])
    found = engine.find(request)
    assert found is not None
    fleet.remove(engine.commit(request, found))
    engine.place(PlaceRequest("zone", Demand(1000, GIB), Constraints(zones=("a",))))
    engine.place(PlaceRequest("large", Demand(64_000, 512 * GIB)))
    # Questions have kernels of their own: compiled by the first who asks, they would hold up the
    # renewal of leases for a minute.
    explain(engine, request)
    capacity(engine, request)
    capacity(engine, request, Scope.HOST)


def _warm_analysis() -> None:
    """Forecast and describe two days of two series: compiling holds Python's lock for seconds."""
    from roost.analysis.forecasting import forecast_batch
    from roost.analysis.profiles import profile_batch

    steps = np.arange(576)
    series = np.stack([np.sin(steps / 45.0) + 2.0, np.ones(len(steps))])
    forecast_batch(series, 48)
    profile_batch(series, 0, 300)


def _compile_planner() -> None:
    """Search better places for two VMs, all and one: a minute, which no plan waits for."""
    from roost.planner.problem import simple
    from roost.planner.search import propose, search

    two, room = np.zeros(2, np.int32), np.full((2, 1), 4, np.int64)
    problem = simple(two, np.ones((2, 1), np.int64), room)
    propose(problem, steps=1)
    search(problem, steps=1, heat=0.0, most=1)
