"""`roost demo`: a control plane and twenty virtual hosts, a tour of what they do, then yours.

With --qemu: two hosts and real guests. On a terminal it goes on serving after the tour, until
Ctrl-C; else, or with ONCE=1, it ends. Either way nothing is left running. The stages are
`roost.app.demo` and `roost.app.demoqemu`, the steps are in `demotour` and `qemutour`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.text import Text

from roost.base.errors import Unavailable
from roost.cli.show.screen import Output, console, note, show_document
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from roost.app.demo import Stage
    from roost.base.clock import Clock
    from roost.cli.demo.qemutour import QemuTour
    from roost.cli.demo.tape import Tape
    from roost.cli.demo.tour import Screen, Tour
    from roost.client import AsyncClient

FOLDER = Path(".roost")
PORT = 7070
#: The tour itself, without the start of the control plane; about 25 s on two idle cores.
TOUR_LIMIT_S = 300.0
#: Lines longer than this are hard to read, however wide the terminal is.
_WIDEST = 100
_INTERRUPTED = 130


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
    output: OutputOption = None,
) -> None:
    """Run a control plane with 20 virtual hosts, and show what it does.

    VMs by every strategy, a refusal with its reasons, a queue, a batch, a host that dies and comes
    back. With --qemu: real guests that boot, move while they count, crash and survive their agent.
    Everything is on loopback and in one folder; nothing is left running at the end.
    """
    form = chosen_output(output)
    if serve is None:
        serve = sys.stdout.isatty() and not os.environ.get("ONCE")
    shown = _run_qemu if qemu else _run
    code = asyncio.run(until_stopped(lambda toured: shown(form, folder, port, serve, toured)))
    if code:
        raise typer.Exit(code)


async def until_stopped(run: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> int:
    """Run the demo until it ends or a signal ends it; return the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(sign, stop.set)
    toured = asyncio.Event()
    work = asyncio.create_task(run(toured))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not work.done():
        note("ending everything ...")
        work.cancel()
    try:
        await work
    except asyncio.CancelledError:
        return 0 if toured.is_set() else _INTERRUPTED
    return 0


async def _run(form: Output, folder: Path, port: int, serve: bool, toured: asyncio.Event) -> None:
    """Show twenty virtual hosts."""
    # Only the command that runs needs them: help stays quick.
    from roost.app.demo import VICTIM, Stage, stage
    from roost.base.clock import RealClock
    from roost.cli.demo.tour import Tour

    clock, screen = RealClock(), demo_screen(form)
    screen.lines(
        "roost demo: a control plane and 20 virtual hosts as processes of this machine, and a",
        "tour of what they do. Everything is on loopback and ends with this command.",
    )
    async with stage(Stage, folder, clock, note) as built:
        show = _Show(form, screen, clock, built)

        def tour(client: "AsyncClient", tape: "Tape") -> "Tour":
            return Tour(built, client, tape, clock, screen)

        await show.tour(port, tour)
        toured.set()
        if serve:
            roost = typed_command()
            show.what_next(
                (f"{roost} vm create web-1 --cpu 2 --memory 4GiB --disk 20GiB", "where, and why"),
                (f"{roost} vm explain web-1", "what every host says to it"),
                (f"{roost} vm list --host {VICTIM}", ""),
                (f"{roost} host list --watch", "redrawn when something happens"),
                (f"{roost} host drain host-03", "one move at a time"),
                (f"{roost} capacity --cpu 4 --memory 16GiB", "how many more fit"),
                (f"{roost} events --follow", ""),
                (f"kill -9 {built.victim_pid}", f"{VICTIM} dies again"),
                (f"{roost} host confirm-dead {VICTIM} --reason 'it is off'", "proof by your word"),
            )
            await built.serve()
    screen.lines(f"Everything has ended; the log stays in {_short(built.folder)}/serve.log.")


async def _run_qemu(
    form: Output, folder: Path, port: int, serve: bool, toured: asyncio.Event
) -> None:
    """Show real guests on two hosts."""
    from roost.app.demo import stage
    from roost.app.demoqemu import QemuStage, build_guest
    from roost.base.clock import RealClock
    from roost.cli.demo.qemutour import QemuTour

    clock, screen, roost = RealClock(), demo_screen(form), typed_command()
    guest = await build_guest()
    screen.lines(
        "roost demo: a control plane, two hosts and three real guests as processes of this",
        "machine, and a tour. Everything is on loopback and ends with this command.",
    )
    async with stage(QemuStage, folder, clock, note) as built:
        built.guest = guest
        show = _Show(form, screen, clock, built)

        def tour(client: "AsyncClient", tape: "Tape") -> "QemuTour":
            return QemuTour(built, client, tape, clock, screen, roost)

        await show.tour(port, tour)
        toured.set()
        if serve:
            show.what_next(
                (f"{roost} vm console web-1 --follow", "it counts; Ctrl-C ends the looking"),
                (f"{roost} vm migrate web-1 --wait", "while you look"),
                (f"{roost} vm migrate web-1 --bandwidth 4MiB", "slowly"),
                (f"{roost} vm migrate web-1 --cancel", "and then not"),
                (f"{roost} vm pause web-2", "and resume"),
                (f"{roost} host drain qemu-1 --wait", "then: host uncordon qemu-1"),
                (f"{roost} events --follow", ""),
                ("pgrep -a qemu-system", "any of them may be killed; so may the agents"),
            )
            await built.serve()
    screen.lines(f"Everything has ended; the logs stay in {_short(built.folder)}.")


class _Tour(Protocol):
    summary: dict[str, Any]

    async def run(self) -> None: ...


class _Show:
    """What both demos have in common: a control plane, a tour with a limit, a last word."""

    def __init__(self, form: Output, screen: "Screen", clock: "Clock", stage: "Stage") -> None:
        self._form, self._screen, self._clock, self._stage = form, screen, clock, stage

    async def tour(self, port: int, make: "Callable[[AsyncClient, Tape], _Tour]") -> None:
        """Start the control plane and take every step."""
        from roost.cli.demo.tape import Tape
        from roost.client import AsyncClient

        began = self._clock.monotonic()
        await self._stage.start_server(port)
        context = self._stage.context
        ready_s = self._clock.monotonic() - began
        self._screen.lines(
            "",
            f"The control plane is ready after {ready_s:.1f} s: {context.server}",
            f"Try at once, in a second terminal: {typed_command()} vm list",
        )
        async with AsyncClient(context.server, context.token) as client, Tape(client) as tape:
            tour = make(client, tape)
            try:
                async with asyncio.timeout(TOUR_LIMIT_S):
                    await tour.run()
            except TimeoutError as late:
                raise Unavailable(
                    f"the tour has not ended after {TOUR_LIMIT_S:g} s",
                    hint=f"Maybe {self._stage.folder / 'serve.log'} tells why.",
                ) from late
        tour.summary["seconds"] = round(self._clock.monotonic() - began, 1)
        tour.summary["ready_s"] = round(ready_s, 1)
        if self._form is not Output.TABLE:
            show_document(tour.summary, self._form)
        self._screen.lines("", f"The tour took {tour.summary['seconds'] - ready_s:.0f} s.")

    def what_next(self, *tries: tuple[str, str]) -> None:
        """Say what can be tried while it serves."""
        log = f"{_short(self._stage.folder)}/serve.log"
        docs = f"{self._stage.context.server}/api/v1/docs"
        self._screen.show(
            *to_try(tries),
            Text(f"The API documents itself at {docs}; log: {log}"),
            Text("It serves until Ctrl-C.", style="bold"),
        )


def to_try(tries: Sequence[tuple[str, str]], *, wide: Sequence[str] = ()) -> "list[Text | str]":
    """Return lines with commands and what they are for; those that are `wide` may stick out."""
    width = max(len(command) for command, _ in tries if command not in wide)
    return [
        "",
        Text("Now yours, in a second terminal in this folder:", style="bold"),
        "",
        *(
            Text.assemble(f"  {command:<{width}}", (f"  {about}".rstrip(), "dim"))
            for command, about in tries
        ),
        "",
    ]


def demo_screen(form: Output) -> "Screen":
    """Return where a demo is shown: nowhere when only its summary is wanted."""
    from roost.cli.demo.tour import Screen

    return Screen(_console() if form is Output.TABLE else None)


def _console() -> Console:
    made = console()
    made.width = min(made.width, _WIDEST)
    return made


def typed_command() -> str:
    """Return how `roost` is typed here: a checkout has it at its root."""
    return "./roost" if Path("roost").is_file() else "roost"


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
