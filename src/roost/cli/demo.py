"""`roost demo`: a workload on a generated fleet, what became of it, and one refusal explained.

Needs no terminal, no file and no network, and always ends by itself. Everything is drawn from one
seed, so every run shows the same.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from roost.app.settings import Settings
from roost.base.units import GIB, TIB
from roost.cli import sentences, tables
from roost.cli.opening import Opened, build_engine, chosen_output, settings
from roost.cli.options import OutputOption, reports_errors
from roost.cli.screen import Output, show, show_json
from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, DISK, MEMORY
from roost.model.constraints import Constraints
from roost.model.description import FleetDescription
from roost.model.flow import Answer, Placement, PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Health, HostSpec, Resource, Scope
from roost.model.resources import Demand
from roost.placement.capacity import CapacityAnswer
from roost.placement.capacity import capacity as count_capacity
from roost.wire.answers import answer_json, capacity_json

HOSTS, VMS, SEED = 200, 1800, 7
ZONES = ("north", "south", "west")
STRATEGIES = ("least_loaded", "best_fit", "round_robin", "fragmentation")
#: cores, GiB of memory, GiB of disk, and how common it is: many small VMs, a few large ones.
FLAVORS = ((1, 2, 20, 30), (2, 4, 40, 30), (4, 8, 60, 20), (4, 16, 80, 10), (8, 32, 200, 8),
           (16, 64, 400, 2))  # fmt: skip
#: The VM that will not fit: no open host of its zone has so many cores left, a cordoned one has.
LARGE = Demand(28_000, 112 * GIB, 500 * GIB)
TYPICAL = Demand(4000, 16 * GIB, 80 * GIB)

INTRODUCTION = f"""\
roost demo: {HOSTS} hosts in {len(ZONES)} zones are generated and {VMS} VMs of common sizes are \
placed on them,
once with each of {len(STRATEGIES)} strategies. Then one VM that fits nowhere is explained, and \
what is left is counted.
Nothing is started or stored, and the demo ends by itself."""


@reports_errors
def demo(output: OutputOption = None) -> None:
    """Show it all on a generated fleet."""
    form = chosen_output(output)
    if form is Output.TABLE:
        show(Text(INTRODUCTION), Text(""))
    read = settings()
    fleet, requests = generate_fleet(), generate_requests()
    runs = {name: _run(fleet, requests, name, read) for name in STRATEGIES}
    opened = runs[STRATEGIES[0]].opened
    refused = PlaceRequest("warehouse-1", LARGE, Constraints(zones=(ZONES[0],)))
    answer = opened.engine.place(refused)
    typical = PlaceRequest("app", TYPICAL)
    left = count_capacity(opened.engine, typical)
    safe = count_capacity(opened.engine, typical, survive=Scope.HOST)
    if form is Output.JSON:
        show_json(
            {
                "strategies": [run.as_json(name) for name, run in runs.items()],
                "refused": answer_json(answer),
                "capacity": capacity_json(left),
                "capacity_surviving_a_host": capacity_json(safe),
            }
        )
        return
    show(_heading(f"{VMS} VMs, placed by four strategies"), _strategies(runs), Text(""))
    show(_heading(f"The fleet after {STRATEGIES[0]}"), _zones(opened.fleet), Text(""))
    show(_heading(f"Why {refused.name} waits"), tables.answer(answer, refused), Text(""))
    show(_heading("What is left"), *_left(left, safe, typical))


def _heading(text: str) -> Text:
    return Text(f"── {text} ", style="bold cyan")


def generate_fleet() -> FleetDescription:
    """Return the demo's hosts: two sizes in three zones, some cordoned, some offline."""
    return FleetDescription(
        hosts=tuple(_hosts()), groups=(GroupSpec("web", GroupRule.SPREAD, Scope.ZONE),)
    )


def _hosts() -> Iterator[HostSpec]:
    for number in range(HOSTS):
        large = number % 4 == 0
        yield HostSpec(
            name=f"host-{number:03}",
            cpu=Resource(64_000 if large else 32_000),
            memory=Resource((256 if large else 128) * GIB, reserve=4 * GIB),
            disk=Resource((4 if large else 2) * TIB),
            zone=ZONES[number % len(ZONES)],
            rack=f"{ZONES[number % len(ZONES)]}-{number // 30}",
            health=Health.OFFLINE if number % 67 == 66 else Health.ONLINE,
            admin=Admin.CORDONED if number % 50 == 49 else Admin.OPEN,
        )


def generate_requests() -> list[PlaceRequest]:
    """Return the demo's VMs, drawn from the flavors by how common they are."""
    draw = np.random.default_rng(SEED)
    weights = np.array([flavor[3] for flavor in FLAVORS], np.float64)
    picks = draw.choice(len(FLAVORS), size=VMS, p=weights / weights.sum()).tolist()
    demands = [Demand(cpu * 1000, mem * GIB, disk * GIB) for cpu, mem, disk, _ in FLAVORS]
    return [
        PlaceRequest(f"vm-{number:04}", demands[pick], groups=("web",) if number % 20 == 0 else ())
        for number, pick in enumerate(picks)
    ]


class _Run:
    """What became of the workload under one strategy."""

    def __init__(self, opened: Opened, answers: Sequence[Answer], seconds: float) -> None:
        self.opened = opened
        self.seconds = seconds
        self.placed = sum(isinstance(answer, Placement) for answer in answers)
        arrays = opened.fleet.hosts.arrays
        rows = opened.fleet.present_rows()
        self.hosts_used = int(np.count_nonzero(arrays.vm_count[rows]))
        capacity = arrays.capacity[rows][:, : DISK + 1]
        self.shares = arrays.committed[rows][:, : DISK + 1].sum(axis=0) / capacity.sum(axis=0)
        busy = arrays.takes[rows]
        loads = arrays.committed[rows, MEMORY][busy] / capacity[busy, MEMORY]
        self.lowest, self.highest = float(loads.min()), float(loads.max())

    def as_json(self, name: str) -> dict[str, object]:
        """Return the outcome as a dict."""
        return {
            "strategy": name,
            "asked": VMS,
            "placed": self.placed,
            "hosts_used": self.hosts_used,
            "cpu_committed_share": round(float(self.shares[CPU]), 4),
            "memory_committed_share": round(float(self.shares[MEMORY]), 4),
            "disk_committed_share": round(float(self.shares[DISK]), 4),
        }


def _run(
    fleet: FleetDescription, requests: list[PlaceRequest], strategy: str, read: Settings
) -> _Run:
    opened = build_engine(fleet, read, strategy)
    began = time.perf_counter()
    answers = opened.engine.place_batch(requests)
    return _Run(opened, answers, time.perf_counter() - began)


def _strategies(runs: dict[str, _Run]) -> RenderableType:
    numbers = ("placed", "hosts used", "each", "emptiest to fullest host")
    listed = tables.table("strategy", *numbers, "memory committed", right=numbers)
    for name, run in runs.items():
        listed.add_row(
            Text(name, style="bold"),
            f"{run.placed} of {VMS}",
            str(run.hosts_used),
            f"{run.seconds / VMS * 1e6:.0f} µs",
            f"{run.lowest:.0%} to {run.highest:.0%}",
            tables.bar(float(run.shares[MEMORY])),
        )
    return listed


def _zones(fleet: Fleet) -> RenderableType:
    arrays = fleet.hosts.arrays
    listed = tables.table("zone", "hosts", "VMs", "cpu", "memory", right=("hosts", "VMs"))
    rows = fleet.present_rows()
    zones = arrays.domain[rows, Scope.ZONE]
    for number in np.unique(zones).tolist():
        inside = rows[zones == number]
        committed = arrays.committed[inside].sum(axis=0)
        capacity = arrays.capacity[inside].sum(axis=0)
        listed.add_row(
            Text(fleet.hosts.zones[number], style="bold"),
            str(len(inside)),
            str(int(arrays.vm_count[inside].sum())),
            tables.bar(float(committed[CPU] / capacity[CPU])),
            tables.bar(float(committed[MEMORY] / capacity[MEMORY])),
        )
    closed = int(np.count_nonzero(~arrays.takes[rows]))
    return Group(listed, Text(f"{sentences.hosts(closed)} cordoned or offline", style="dim"))


def _left(left: CapacityAnswer, safe: CapacityAnswer, typical: PlaceRequest) -> list[Text]:
    size = sentences.demand(typical.demand)
    return [
        Text.assemble((f"{left.count:>5} more", "bold green"), f" VMs of {size} fit"),
        Text.assemble(
            (f"{safe.count:>5} more", "bold green"),
            " if after the loss of any one host its VMs must fit elsewhere",
        ),
        Text(""),
        Text("Next: roost explain --fleet examples/full.fleet --cpu 4 --memory 16GiB"),
    ]
