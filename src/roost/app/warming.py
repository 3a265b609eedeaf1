"""Make the kernels ready before the first request: compiled once per machine, loaded each time."""

from dataclasses import replace

import numpy as np

from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import Constraints
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource, Scope
from roost.model.resources import Demand
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.strategies import STRATEGIES


def warm_up() -> None:
    """Decide by every strategy on a fleet of two hosts; takes minutes the first time."""
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
    _warm_analysis()


def _warm_analysis() -> None:
    """Forecast and describe two days of two series: compiling holds Python's lock for seconds."""
    from roost.analysis.forecasting import forecast_batch
    from roost.analysis.profiles import profile_batch

    steps = np.arange(576)
    series = np.stack([np.sin(steps / 45.0) + 2.0, np.ones(len(steps))])
    forecast_batch(series, 48)
    profile_batch(series, 0, 300)
