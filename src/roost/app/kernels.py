"""Loading the compiled kernels, with a word to the user when it takes long.

The first run on a machine compiles them, which takes a while; later runs load them from a cache.
"""

import threading
from collections.abc import Callable

from roost.fleet.fleet import Fleet
from roost.model.description import FleetDescription
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource, Scope
from roost.model.resources import Demand
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.kernels.compiling import is_warm
from roost.placement.strategies import STRATEGIES

#: A wait longer than this wants a word.
PATIENCE_S = 1.0
#: What compiling everything takes on a common machine; only said, never relied upon.
USUAL_S = 60

_FIRST = PlaceRequest("first-decision", Demand(1, 1))


def ready(engine: Engine, say: Callable[[str], None]) -> None:
    """Load the kernels that an engine needs; compile all there are when none was kept."""
    warm((lambda: engine.find(_FIRST)) if is_warm() else compile_everything, say)


def warm(load: Callable[[], object], say: Callable[[str], None]) -> None:
    """Call `load`, and `say` that kernels are being compiled once that takes noticeably long."""
    notice = threading.Timer(
        PATIENCE_S, say, [f"compiling kernels (first run only, about {USUAL_S} s) ..."]
    )
    notice.daemon = True
    notice.start()
    try:
        load()
    finally:
        notice.cancel()


def compile_everything() -> None:
    """Ask a tiny fleet every kind of question, so that no later question has to wait."""
    hosts = tuple(
        HostSpec(name, Resource(4000), Resource(4), Resource(0), zone=name) for name in ("a", "b")
    )
    engine = Engine(Fleet.from_description(FleetDescription(hosts)))
    requests = [PlaceRequest(name, Demand(1000, 1), strategy=name) for name in STRATEGIES]
    engine.place_batch(requests[:2])
    for request in requests:
        explain(engine, request)
    capacity(engine, requests[0])
    capacity(engine, requests[0], survive=Scope.HOST)
