"""The engine as a server runs it, on the two protocols: fleet empty, nothing known of requests.

Every request is first counted among what is asked and then placed by the default engine with the
strategy `fragmentation`, exactly as a create is. No policy is handed a list of typical requests.
"""

import numpy as np

from benchmarks.packing import huawei, openb
from benchmarks.packing.huawei_trace import ARRIVAL, CPU, LIFETIME, MEMORY, SPLIT_ABOVE_GB, Ints
from roost.base.units import GIB, MIB
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import Cell, Device, HostSpec, Resource
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.placement.asked import Asked
from roost.placement.engine import Engine

STRATEGY = "fragmentation"


def new_engine(fleet: Fleet, strategy: str, asked: Asked | None = None) -> Engine:
    """Return an engine that learns what is typical from what it is asked."""
    engine = Engine(fleet, strategy)
    engine.asked = Asked() if asked is None else asked
    return engine


def place(engine: Engine, name: str, demand: Demand) -> bool:
    """Ask for one VM as a create does; say whether it was placed."""
    assert engine.asked is not None
    engine.asked.note(demand)
    request = PlaceRequest(name, demand)
    placement = engine.find(request)
    if placement is None:
        return False
    engine.commit(request, placement)
    return True


# openb


def _openb_host(number: int, node: Ints) -> HostSpec:
    cpu, memory, gpus, model = node.tolist()
    return HostSpec(
        name=f"n{number:04}",
        cpu=Resource(cpu),
        memory=Resource(memory * MIB),
        disk=Resource(0),
        devices=tuple(Device(f"m{model}") for _ in range(gpus)),
    )


def _openb_demand(pod: Ints, models: int) -> Demand:
    cpu, memory, gpus, share, mask = pod.tolist()
    devices = None
    if gpus:
        named = tuple(f"m{1 << bit}" for bit in range(models) if mask >> bit & 1)
        any_model = mask == (1 << models) - 1
        devices = DeviceDemand(gpus, share, () if any_model else named)
    return Demand(max(1, cpu), max(1, memory) * MIB, devices=devices)


def run_openb(workload: openb.Workload, seed: int, strategy: str = STRATEGY) -> float:
    """Return GPU allocation % at 130% arrived."""
    fleet = Fleet()
    for number, node in enumerate(workload.nodes):
        fleet.register(_openb_host(number, node))
    engine = new_engine(fleet, strategy)
    models = int(workload.nodes[:, 3].max()).bit_length()
    demands = [_openb_demand(pod, models) for pod in workload.classes]
    sizes = (workload.classes[:, openb.GPUS] * workload.classes[:, openb.SHARE]).tolist()
    capacity, arrived, allocated = workload.capacity, 0, 0
    figures = []
    for at, k in enumerate(workload.arrivals(seed).tolist()):
        arrived += sizes[k]
        if place(engine, f"p{at}", demands[k]):
            allocated += sizes[k]
        if np.rint(100 * arrived / capacity) == openb.ARRIVED_PCT:
            figures.append(100 * allocated / capacity)
    return float(np.mean(figures))


# Huawei-East-1


def _server(number: int) -> HostSpec:
    cell = Cell(huawei.CELL_CORES * 1000, huawei.CELL_MEMORY_GB * GIB)
    return HostSpec(
        name=f"s{number}",
        cpu=Resource(2 * huawei.CELL_CORES * 1000),
        memory=Resource(2 * huawei.CELL_MEMORY_GB * GIB),
        disk=Resource(0),
        cells=(cell, cell),
    )


def _vm_demand(vm: Ints) -> Demand:
    split = int(vm[MEMORY]) > SPLIT_ABOVE_GB
    mode = NumaMode.SPLIT if split else NumaMode.ONE_CELL
    return Demand(int(vm[CPU]) * 1000, int(vm[MEMORY]) * GIB, numa=mode)


def run_episode(
    vms: Ints, start: int, length: int, servers: int, strategy: str = STRATEGY, known: int = 0
) -> int:
    """Return the total wait of one episode on an empty fleet.

    The server has been asked for `known` VMs of the trace before; with 0 it knows nothing.
    """
    fleet = Fleet()
    for number in range(servers):
        fleet.register(_server(number))
    engine = new_engine(fleet, strategy)
    assert engine.asked is not None
    engine.asked.note_all(_vm_demand(vm) for vm in vms[max(0, start - known) : start])
    running: list[tuple[int, int]] = []
    now = wait = 0

    def release() -> None:
        nonlocal running
        for end, number in running:
            if end <= now:
                fleet.remove(number)
        running = [each for each in running if each[0] > now]

    for index in range(start, start + length):
        demand = _vm_demand(vms[index])
        engine.asked.note(demand)
        now = max(now, int(vms[index, ARRIVAL]))
        release()
        request = PlaceRequest(f"v{index}", demand)
        while (found := engine.find(request)) is None:
            now = min(end for end, _ in running)
            release()
        number = engine.commit(request, found)
        running.append((now + int(vms[index, LIFETIME]), number))
        wait += now - int(vms[index, ARRIVAL])
    return wait


def run_huawei(
    vms: Ints,
    episodes: huawei.Episodes,
    servers: int,
    strategy: str = STRATEGY,
    known: int = 0,
) -> Ints:
    """Return the total wait of each episode."""
    pairs = zip(episodes.starts.tolist(), episodes.lengths.tolist(), strict=True)
    return np.array(
        [run_episode(vms, start, length, servers, strategy, known) for start, length in pairs],
        np.int64,
    )
