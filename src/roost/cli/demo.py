"""`roost demo`: a control plane and twenty virtual hosts, a tour of what they do, then yours.

On a terminal it goes on serving after the tour, until Ctrl-C; else, or with ONCE=1, it ends. Either
way nothing is left running. The stage is `roost.app.demo`, the steps are in `demotour`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from roost.base.errors import Unavailable
from roost.cli.opening import chosen_output
from roost.cli.options import OutputOption, reports_errors
from roost.cli.screen import Output, console, note, show_document

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
    output: OutputOption = None,
) -> None:
    """Run a control plane with 20 virtual hosts, and show what it does.

    VMs by every strategy, a refusal with its reasons, a queue, a batch, a host that dies and comes
    back. Everything is on loopback and in one folder; nothing is left running at the end.
    """
    form = chosen_output(output)
    if serve is None:
        serve = sys.stdout.isatty() and not os.environ.get("ONCE")
    code = asyncio.run(_until_stopped(form, folder, port, serve))
    if code:
        raise typer.Exit(code)


async def _until_stopped(form: Output, folder: Path, port: int, serve: bool) -> int:
    """Run the demo until it ends or a signal ends it; return the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(sign, stop.set)
    toured = asyncio.Event()
    work = asyncio.create_task(_run(form, folder, port, serve, toured))
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
    # Only the command that runs needs them: help stays quick.
    from roost.app.demo import stage
    from roost.base.clock import RealClock
    from roost.cli.demotape import Tape
    from roost.cli.demotour import Screen, Tour
    from roost.client import AsyncClient

    clock = RealClock()
    screen = Screen(_console() if form is Output.TABLE else None)
    began = clock.monotonic()
    screen.lines(
        "roost demo: a control plane and 20 virtual hosts as processes of this machine, and a",
        "tour of what they do. Everything is on loopback and ends with this command.",
    )
    async with stage(folder, clock, note) as built:
        await built.start_server(port)
        context = built.context
        ready_s = clock.monotonic() - began
        screen.lines(
            "",
            f"The control plane is ready after {ready_s:.1f} s: {context.server}",
            f"Try at once, in a second terminal: {_command()} vm list",
        )
        async with AsyncClient(context.server, context.token) as client, Tape(client) as tape:
            tour = Tour(built, client, tape, clock, screen)
            try:
                async with asyncio.timeout(TOUR_LIMIT_S):
                    await tour.run()
            except TimeoutError as late:
                raise Unavailable(
                    f"the tour has not ended after {TOUR_LIMIT_S:g} s",
                    hint=f"Maybe {built.folder / 'serve.log'} tells why.",
                ) from late
        tour.summary["seconds"] = round(clock.monotonic() - began, 1)
        tour.summary["ready_s"] = round(ready_s, 1)
        toured.set()
        if form is not Output.TABLE:
            show_document(tour.summary, form)
        screen.lines("", f"The tour took {tour.summary['seconds'] - ready_s:.0f} s.")
        if serve:
            screen.show("", *_what_next(context.server, built.victim_pid, built.folder))
            await built.serve()
    screen.lines(f"Everything has ended; the log stays in {_short(built.folder)}/serve.log.")


def _console() -> Console:
    made = console()
    made.width = min(made.width, _WIDEST)
    return made


def _command() -> str:
    """Return how `roost` is typed here: a checkout has it at its root."""
    return "./roost" if Path("roost").is_file() else "roost"


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _what_next(server: str, victim: int, folder: Path) -> list[Text]:
    from roost.app.demo import VICTIM

    roost = _command()
    tries = (
        (f"{roost} vm create web-1 --cpu 2 --memory 4GiB --disk 20GiB", "where it goes, and why"),
        (f"{roost} vm explain web-1", "what every host says to it"),
        (f"{roost} vm list --host {VICTIM}", ""),
        (f"{roost} host list --watch", "redrawn when something happens"),
        (f"{roost} host drain host-03", "one move at a time"),
        (f"{roost} capacity --cpu 4 --memory 16GiB", "how many more fit"),
        (f"{roost} events --follow", ""),
        (f"kill -9 {victim}", f"{VICTIM} dies again"),
        (f"{roost} host confirm-dead {VICTIM} --reason 'it is off'", "the proof, by your word"),
    )
    width = max(len(command) for command, _ in tries)
    lines = [Text("Now yours, in a second terminal in this folder:", style="bold"), Text("")]
    lines += [
        Text.assemble(f"  {command:<{width}}", (f"  {about}".rstrip(), "dim"))
        for command, about in tries
    ]
    lines += [
        Text(""),
        Text(f"The API documents itself at {server}/api/v1/docs; log: {_short(folder)}/serve.log"),
        Text("It serves until Ctrl-C.", style="bold"),
    ]
    return lines
