"""`roost demo`: a control plane and twenty virtual hosts, a tour of what they do, then yours.

With --qemu: two hosts and real guests; with --analysis: hosts with a past; with --jobs: no
host, and machines that are rented. The processes are in `roost.app.demo`, `demoqemu`,
`demoanalysis` and `demojobs`, the steps in `tour`, `qemutour`, `analysistour` and `jobtour`;
`runner` runs them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.cli.demo.runner import Screen, Tour, play
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption, reports_errors

FOLDER = Path(".roost")
PORT = 7070


@reports_errors
def demo(
    port: Annotated[
        int,
        typer.Option(
            min=1, max=65535, metavar="N", help="Port on loopback; if taken, the next free one."
        ),
    ] = PORT,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of its context file and its database.")
    ] = FOLDER,
    serve: Annotated[
        bool | None,
        typer.Option(
            "--serve/--once",
            help="Go on serving after the tour, or end (default: serve on a terminal, and end "
            "with ONCE=1 or without one).",
        ),
    ] = None,
    qemu: Annotated[
        bool, typer.Option("--qemu", help="Two hosts with real guests on QEMU instead.")
    ] = False,
    analysis: Annotated[
        bool,
        typer.Option(
            "--analysis", help="Three virtual hosts with two weeks of readings behind them instead."
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="An uneven fleet and a plan for it instead.")
    ] = False,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="A parameter sweep on rented local workers instead.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Run a control plane with 20 virtual hosts, and show what it does.

    VMs by every strategy, a refusal with its reasons, a queue, a batch, a host that dies and comes
    back. With --qemu: real guests that boot, move while they count, crash and survive their agent.
    With --analysis: what VMs will use is learnt from a fortnight, and the next one placed by it.
    With --plan: an uneven fleet, a plan for it, the moves as they happen.
    With --jobs: a sweep on a pool that grows from nothing, loses a worker and goes back to nothing.
    Everything is on loopback and in one folder; nothing is left running at the end.
    """
    stages = {_guests: qemu, _two_weeks: analysis, _planned: plan, _sweep: jobs}
    if sum(stages.values()) > 1:
        raise InvalidRequest("--qemu, --analysis, --plan and --jobs are four demos")
    staged = next((each for each, wanted in stages.items() if wanted), _virtual_hosts)
    play(lambda clock, screen: staged(clock, screen, folder, port), chosen_output(output), serve)


# Only the demo that runs needs what it imports: help stays quick.


@asynccontextmanager
async def _virtual_hosts(
    clock: Clock, screen: Screen, folder: Path, port: int
) -> AsyncIterator[Tour]:
    """Set a stage of twenty virtual hosts."""
    from roost.app.demo import VirtualStage
    from roost.cli.demo.served import started
    from roost.cli.demo.tour import VirtualTour

    screen.lines(
        "roost demo: a control plane and 20 virtual hosts as processes of this machine, and a",
        "tour of what they do. Everything is on loopback and ends with this command.",
    )
    async with started(VirtualStage, VirtualTour, folder, port, clock, screen) as tour:
        yield tour


@asynccontextmanager
async def _two_weeks(clock: Clock, screen: Screen, folder: Path, port: int) -> AsyncIterator[Tour]:
    """Set a stage of three virtual hosts whose VMs have a past."""
    from roost.app.demoanalysis import AnalysisStage
    from roost.cli.demo.analysistour import AnalysisTour
    from roost.cli.demo.served import started

    screen.lines(
        "roost demo: a control plane and three virtual hosts, two weeks of what their VMs use, and",
        "a VM that is placed by it. Everything is on loopback and ends with this command.",
    )
    async with started(AnalysisStage, AnalysisTour, folder, port, clock, screen) as tour:
        yield tour


@asynccontextmanager
async def _planned(clock: Clock, screen: Screen, folder: Path, port: int) -> AsyncIterator[Tour]:
    """Set a stage of twenty virtual hosts for plans."""
    from roost.app.demo import VirtualStage
    from roost.cli.demo.plantour import PlanTour
    from roost.cli.demo.served import started

    screen.lines(
        "roost demo: an uneven fleet of 20 virtual hosts, a plan for it, and its moves.",
        "Everything is on loopback and ends with this command.",
    )
    async with started(VirtualStage, PlanTour, folder, port, clock, screen) as tour:
        yield tour


@asynccontextmanager
async def _sweep(clock: Clock, screen: Screen, folder: Path, port: int) -> AsyncIterator[Tour]:
    """Set a stage without hosts: its machines are rented when jobs need them."""
    from roost.app.demojobs import JobStage
    from roost.cli.demo.jobtour import JobTour
    from roost.cli.demo.served import started

    screen.lines(
        "roost demo: a parameter sweep on workers that are rented for it from this machine, one of",
        "them killed on the way. Everything is on loopback and ends with this command.",
    )
    async with started(JobStage, JobTour, folder, port, clock, screen) as tour:
        yield tour


@asynccontextmanager
async def _guests(clock: Clock, screen: Screen, folder: Path, port: int) -> AsyncIterator[Tour]:
    """Set a stage of two hosts with real guests."""
    from roost.app.demoqemu import QemuStage, build_guest
    from roost.cli.demo.qemutour import QemuTour
    from roost.cli.demo.served import started

    guest = await build_guest()
    screen.lines(
        "roost demo: a control plane, two hosts and three real guests as processes of this",
        "machine, and a tour. Everything is on loopback and ends with this command.",
    )
    made = partial(QemuStage, guest=guest)
    async with started(made, QemuTour, folder, port, clock, screen) as tour:
        yield tour
