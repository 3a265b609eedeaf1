"""Runs any demo: a stage is set, a tour of it taken and timed, and all of it ended again.

`roost demo`, `roost demo --qemu` and `roost kube demo` each hand in a stage, which yields a tour
once everything is up and has ended everything when it is left. On a terminal the stage stays up
after the tour until Ctrl-C; else, or with ONCE=1, it ends. A signal ends it too: with exit code 0
after the tour, 130 before. What the steps do and show is the tour's own business.
"""

import asyncio
import os
import signal
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.text import Text

from roost.base.clock import Clock, RealClock
from roost.base.errors import Unavailable
from roost.cli.show.screen import Output, console, note, show_document

Step = Callable[[], Awaitable[None]]
#: A command that can be tried, and what it is for.
Try = tuple[str, str]

#: Lines longer than this are hard to read, however wide the terminal is.
_WIDEST = 100
_INTERRUPTED = 130


class Screen:
    """Where a tour is shown; nowhere when only its summary is wanted."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._step = 0

    @classmethod
    def of(cls, form: Output) -> "Screen":
        """Return the screen for a form of output: only tables are shown step by step."""
        if form is not Output.TABLE:
            return cls(None)
        made = console()
        made.width = min(made.width, _WIDEST)
        return cls(made)

    def heading(self, title: str, about: str) -> None:
        """Print the heading of a step."""
        self._step += 1
        self.show("", Rule(f"[bold]{self._step}. {title}[/]", align="left", style="cyan"))
        self.show(Text(about, style="dim"), "")

    def show(self, *renderables: RenderableType) -> None:
        """Print the tables and texts of a step."""
        if self._console is not None:
            for each in renderables:
                self._console.print(each)

    def lines(self, *lines: str) -> None:
        """Print lines of text as they are."""
        self.show(*map(Text, lines))


class Tour(ABC):
    """The steps of a demo on a stage that is ready, and what can be tried afterwards.

    What the steps found goes into the summary too, which is what `-o json` prints.
    """

    #: All steps together: many times what they take, for machines that are busy.
    limit_s: float = 300.0

    def __init__(self, clock: Clock, screen: Screen, began: float) -> None:
        self._clock, self._screen = clock, screen
        self.began = began  # when the stage began to be set
        self.summary: dict[str, Any] = {}
        self.steps: Sequence[Step] = ()
        self.stays: Sequence[str] = ("It stays up until Ctrl-C.",)  # the last line is bold
        self.closing = "Everything has ended."
        self.hint: str | None = None  # where to read why the tour does not end

    async def run(self) -> None:
        """Take every step of the tour."""
        for step in self.steps:
            await step()

    @abstractmethod
    def tries(self) -> Sequence[Try]:
        """Return commands to try in a second terminal; those without a purpose may be wide."""

    async def stay(self) -> None:
        """Keep the stage up until cancelled."""
        await asyncio.Event().wait()


#: Sets a stage and yields its tour; everything on it has ended when this is left.
Stage = Callable[[Clock, Screen], AbstractAsyncContextManager[Tour]]


def play(stage: Stage, form: Output, serve: bool | None) -> None:
    """Run a demo until it ends or a signal ends it; leave with its exit code."""
    if serve is None:
        serve = sys.stdout.isatty() and not os.environ.get("ONCE")
    if code := asyncio.run(_until_stopped(stage, form, serve)):
        raise typer.Exit(code)


async def _until_stopped(stage: Stage, form: Output, serve: bool) -> int:
    stop, toured = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(sign, stop.set)
    work = asyncio.create_task(_run(stage, form, serve, toured))
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


async def _run(stage: Stage, form: Output, serve: bool, toured: asyncio.Event) -> None:
    clock, screen = RealClock(), Screen.of(form)
    async with stage(clock, screen) as tour:
        ready_s = clock.monotonic() - tour.began
        async with limit(tour.limit_s, "the end of the tour", hint=tour.hint):
            await tour.run()
        seconds = clock.monotonic() - tour.began
        tour.summary |= {"seconds": round(seconds, 1), "ready_s": round(ready_s, 1)}
        if form is not Output.TABLE:
            show_document(tour.summary, form)
        screen.lines("", f"The tour took {seconds - ready_s:.0f} s.")
        toured.set()
        if serve:
            *others, last = tour.stays
            screen.show(*_to_try(tour.tries()), *map(Text, others), Text(last, style="bold"))
            await tour.stay()
    screen.lines(tour.closing)


def _to_try(tries: Sequence[Try]) -> list[Text]:
    """Return lines with commands and what they are for, in two columns."""
    width = max(len(command) for command, about in tries if about)
    return [
        Text(""),
        Text("Now yours, in a second terminal in this folder:", style="bold"),
        Text(""),
        *(
            Text.assemble(f"  {command:<{width}}", (f"  {about}".rstrip(), "dim"))
            for command, about in tries
        ),
        Text(""),
    ]


@asynccontextmanager
async def limit(
    seconds: float,
    what: str,
    *,
    hint: str | None = "Maybe this machine is very busy; the demo can simply be started again.",
) -> AsyncIterator[None]:
    """Limit the time of a wait; the error says what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as late:
        raise Unavailable(f"waited {seconds:g} s in vain for: {what}", hint=hint) from late


def typed(command: str) -> str:
    """Return a command as it is typed, over several lines when it is long."""
    lines = textwrap.wrap(command, 92, break_long_words=False, break_on_hyphens=False)
    return "$ " + " \\\n    ".join(lines)


def typed_command() -> str:
    """Return how `roost` is typed here: a checkout has it at its root."""
    return "./roost" if Path("roost").is_file() else "roost"


def typed_path(path: Path) -> str:
    """Return a path as it is typed in this folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
