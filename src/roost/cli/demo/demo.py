"""`roost demo`: a control plane and twenty virtual hosts, a tour of what they do, then yours.

With --qemu: two hosts and real guests; with --analysis: hosts with a past; with --plan: an uneven
fleet; with --jobs: no host, and machines that are rented. Each is a tour, which has the steps and
names the stage that they need (`roost.app.demo` and its siblings); `served` sets a stage and starts
its control plane, `runner` runs all of them and `roost kube demo` too.
"""

from pathlib import Path
from typing import Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.demo.runner import play
from roost.cli.words.loading import load
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption, reports_errors

FOLDER = Path(".roost")
PORT = 7070

#: The tours. Only the one that is taken is imported: help stays quick.
_VIRTUAL_HOSTS = "roost.cli.demo.tour:VirtualTour"
_GUESTS = "roost.cli.demo.qemutour:QemuTour"
_TWO_WEEKS = "roost.cli.demo.analysistour:AnalysisTour"
_PLAN = "roost.cli.demo.plantour:PlanTour"
_SWEEP = "roost.cli.demo.jobtour:JobTour"


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
    others = {_GUESTS: qemu, _TWO_WEEKS: analysis, _PLAN: plan, _SWEEP: jobs}
    if sum(others.values()) > 1:
        raise InvalidRequest("--qemu, --analysis, --plan and --jobs are four demos")
    chosen = next((each for each, wanted in others.items() if wanted), _VIRTUAL_HOSTS)
    from roost.cli.demo.served import staging

    play(staging(load(chosen), folder, port), chosen_output(output), serve)
