"""`roost analyze`: what VMs and hosts use over time: understood, brought in and taken out."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, console, note, show, show_document, write
from roost.cli.words.completing import complete_hosts, complete_vms
from roost.cli.words.loading import new_group
from roost.cli.words.nouns import ProjectOption
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.cli.words.seriesfiles import Part
    from roost.wire.profiles import ProfileBody
    from roost.wire.reports import FleetReport

#: Moments that are sent at once.
_PIECE = 20_000


class Fineness(StrEnum):
    """How fine a series is."""

    RAW = "raw"
    FIVE_MINUTES = "5m"
    HOUR = "1h"
    DAY = "1d"


class Resource(StrEnum):
    """What a picture shows."""

    CPU = "cpu"
    MEMORY = "memory"
    DISK_IO = "disk-io"
    NETWORK = "network"

    @property
    def called(self) -> str:
        """Return what profiles call it."""
        return self.value.replace("-", " ")


VMOption = Annotated[
    str | None,
    typer.Option(
        "--vm", metavar="VM", help="A VM, by its name or id.", autocompletion=complete_vms
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="A host.", autocompletion=complete_hosts),
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From here on: 2026-11-20T08:00:00Z.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Up to, and without, this moment.")
]


@asks_server
def export(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .csv, .parquet or .openmetrics file.")
    ],
    vm: VMOption = None,
    host: HostOption = None,
    project: ProjectOption = None,
    figure: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one; repeatable.")
    ] = None,
    resolution: Annotated[
        Fineness, typer.Option(help="Readings as they came, or rolled up.")
    ] = Fineness.RAW,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Write what a VM or host has used to a file; the last hours when no time is named."""
    from roost.cli.words.seriesfiles import write_parts

    kind, name = _whom(vm, host)
    pages = _pages(session, kind, name, project, figure or [], resolution, since, until)
    count = write_parts(file, pages)
    _told(session, {"file": str(file), "moments": count}, f"wrote {count} moments to {file}")


@asks_server
def import_(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A .csv or .parquet file.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Instead of a file: a Prometheus.")
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE=PROMQL",
            help="What to ask it for a figure; $name is the VM or host. Repeatable.",
        ),
    ] = None,
    vm: VMOption = None,
    host: HostOption = None,
    project: ProjectOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    step: Annotated[
        int, typer.Option(metavar="S", min=1, help="Seconds between two moments of a Prometheus.")
    ] = 15,
) -> None:
    """Bring in readings of a file, or of one VM or host from a Prometheus."""
    from roost.cli.words.seriesfiles import count_moments, read_parts
    from roost.wire.series import ImportSeries

    if (file is None) == (prometheus is None):
        raise InvalidRequest("either a file or --prometheus is imported")
    if file is not None:
        parts = read_parts(file, _PIECE)
    else:
        assert prometheus is not None
        parts = _asked(prometheus, query or [], _whom(vm, host), since, until, step)
    kept = left_out = 0
    for part in _shown(parts, lambda: None if file is None else count_moments(file)):
        found = session.client.import_series(
            ImportSeries(
                kind=part.kind,
                name=part.name,
                at_ms=part.at_ms,
                figures=part.figures,
                project=project,
            )
        )
        kept, left_out = kept + found.kept, left_out + found.left_out
    _told(
        session,
        {"kept": kept, "left_out": left_out},
        f"kept {kept} moments, left out {left_out}",
    )


@asks_server
def vm(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(metavar="VM", help="By name or id.", autocompletion=complete_vms),
    ],
    project: ProjectOption = None,
    hours: Annotated[
        int, typer.Option(metavar="H", min=1, max=168, help="How far ahead to look.")
    ] = 24,
    resource: Annotated[Resource, typer.Option(help="What the picture shows.")] = Resource.CPU,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the picture to a .svg or .png file as well."),
    ] = None,
) -> None:
    """Show what a VM does over time, what it will do, and what size would do."""
    from roost.cli.show.profiles import profile

    if save is not None and save.suffix not in (".svg", ".png"):
        raise InvalidRequest(
            f"{str(save)!r} is no picture: only .svg and .png files are written", file=str(save)
        )
    found = session.client.vm_profile(name, project=project, hours=hours)
    if save is not None:
        if resource.called not in found.resources:
            raise InvalidRequest(f"this server tells nothing of {resource.called}")
        _save(save, found, resource.called)
    session.show(found, profile(found, resource.called, console().width))


@asks_server
def fleet(
    session: Session,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the report to an HTML file that needs no other."),
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Entries of each list at most.")
    ] = 20,
) -> None:
    """Report on all VMs and hosts: busy hours, sizes, zombies, shared peaks, hosts running short.

    The control plane reads a week of every VM for it, which takes a while where there are many;
    what it found is kept for ten minutes.
    """
    from roost.cli.show.fleetreports import report

    found = _report(session, top)
    if html is not None:
        from roost.cli.show.fleethtml import page

        write(html, page(found))
    session.show(found, report(found))


def _report(session: Session, top: int) -> "FleetReport":
    """Ask until the report is there, and show how far it is on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    words = TextColumn("reading hosts")
    columns = (words, BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)
        while (found := session.client.fleet_report(top=top)).report is None:
            progress.update(bar, completed=found.done, total=max(1, found.total))
    return found.report


def _shown(parts: Iterable["Part"], count: Callable[[], int | None]) -> Iterator["Part"]:
    """Yield what is sent, and show on a terminal how much of it was."""
    from rich.progress import BarColumn, Progress, TextColumn

    screen = console(stderr=True)
    sent = TextColumn("{task.completed:,} moments")
    columns = (TextColumn("importing"), BarColumn(bar_width=30), sent)
    with Progress(
        *columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as progress:
        bar = progress.add_task("", total=count() if screen.is_terminal else None)
        for part in parts:
            yield part
            progress.advance(bar, len(part.at_ms))


def _save(path: Path, found: "ProfileBody", resource: str) -> None:
    from roost.cli.show.fleetreports import amount

    def label(value: float) -> str:
        return amount(resource, value)

    if path.suffix == ".svg":
        from roost.cli.show.drawing.svg import forecast

        write(path, forecast(found, resource, label))
    else:
        from roost.cli.show.drawing.png import write_png

        write_png(path, found, resource, label)
        note(f"wrote {path}")


def _whom(vm: str | None, host: str | None) -> tuple[Literal["vm", "host"], str]:
    if vm is not None and host is None:
        return "vm", vm
    if host is not None and vm is None:
        return "host", host
    raise InvalidRequest("either --vm or --host is needed")


def _moment(text: str | None, what: str) -> int | None:
    from roost.base.timestamps import read_timestamp

    return None if text is None else read_timestamp(text, what)


def _pages(
    session: Session,
    kind: Literal["vm", "host"],
    name: str,
    project: str | None,
    figures: list[str],
    resolution: Fineness,
    since: str | None,
    until: str | None,
) -> Iterator["Part"]:
    from roost.cli.words.seriesfiles import Part

    first, last = _moment(since, "--since"), _moment(until, "--until")
    while True:
        if kind == "vm":
            page = session.client.vm_series(
                name, project=project, figures=figures, resolution=resolution.value,
                since_ms=first, until_ms=last,
            )  # fmt: skip
        else:
            page = session.client.host_series(
                name, figures=figures, resolution=resolution.value, since_ms=first, until_ms=last
            )
        yield Part(kind, name, page.at_ms, page.figures)
        if page.next_ms is None:
            return
        first = page.next_ms


def _asked(
    url: str,
    queries: list[str],
    whom: tuple[Literal["vm", "host"], str],
    since: str | None,
    until: str | None,
    step: int,
) -> Iterator["Part"]:
    import math

    from roost.app.prometheus import read_prometheus
    from roost.cli.words.seriesfiles import Part
    from roost.model.series import Subject

    first, last = _moment(since, "--since"), _moment(until, "--until")
    if first is None or last is None:
        raise InvalidRequest("--since and --until say what to ask a Prometheus for")
    asked = {}
    for each in queries:
        figure, equals, text = each.partition("=")
        if not equals or not text:
            raise InvalidRequest(f"--query {each!r} is not FIGURE=PROMQL")
        asked[figure] = text
    if not asked:
        raise InvalidRequest("--query says what to ask a Prometheus for a figure")
    found = read_prometheus(url, asked, Subject(*whom), first, last, step_s=step)
    for begin in range(0, len(found), _PIECE):
        end = begin + _PIECE
        figures: dict[str, list[float | None]] = {
            name: [None if math.isnan(value) else value for value in values[begin:end].tolist()]
            for name, values in found.figures.items()
        }
        yield Part(*whom, found.at_ms[begin:end].tolist(), figures)


def _told(session: Session, document: dict[str, object], text: str) -> None:
    if session.form is Output.TABLE:
        show(Text(text))
    else:
        show_document(document, session.form)


analyze = new_group(
    "analyze",
    "What VMs and hosts use over time.",
    {"vm": vm, "fleet": fleet, "export": export, "import": import_},
)
