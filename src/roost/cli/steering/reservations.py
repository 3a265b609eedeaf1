"""`roost reservation`: capacity kept for a project, a user or a purpose, and when."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.watch.lists import lists
from roost.cli.words.completing import (
    complete_flavors,
    complete_from,
    complete_hosts,
    complete_projects,
    complete_reservations,
    complete_zones,
)
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import KeyOption, every_page
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import DemandBody
    from roost.wire.reservations import ReservationDetail

#: How many reservations a command asks for at once.
_PAGE = 1000

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the reservation.", autocompletion=complete_reservations
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", help="Names of reservations.", autocompletion=complete_reservations
    ),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--end", metavar="TIME", help="When it ends (default: never); as --start is written."
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="Only on this host.", autocompletion=complete_hosts),
]
UnitsOption = Annotated[
    int | None, typer.Option("--units", metavar="N", min=1, help="So many of it, each on a host.")
]


@lists
def list_(
    session: Session,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this project, user or purpose.")
    ] = None,
    host: HostOption = None,
) -> None:
    """List reservations."""
    from roost.cli.show import reservations
    from roost.wire.reservations import ReservationPage

    ask = partial(session.client.list_reservations, owner=owner, host=host, limit=_PAGE)
    found = every_page(lambda after: ask(after=after), lambda page: page.reservations)
    session.show(ReservationPage(reservations=found), reservations.listed(found))


@asks_server
def show_(session: Session, name: NameArgument) -> None:
    """Show a reservation, the hosts of its units and the times in which it is live."""
    _show(session, session.client.get_reservation(name))


@asks_server
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new reservation.")],
    cpu: Annotated[
        str | None, typer.Option("--cpu", metavar="CORES", help="Cores of one unit.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Memory of one unit, with its unit."),
    ] = None,
    disk: Annotated[
        str | None, typer.Option("--disk", metavar="SIZE", help="Disk of one unit, with its unit.")
    ] = None,
    extended: Annotated[
        list[str] | None,
        typer.Option(
            "--x", metavar="NAME=N", help="Amount of an extended resource of one unit; repeatable."
        ),
    ] = None,
    gpu: Annotated[
        int | None, typer.Option("--gpu", metavar="N", min=1, max=62, help="GPUs of one unit.")
    ] = None,
    gpu_share: Annotated[
        int | None,
        typer.Option(
            "--gpu-share", metavar="N", min=1, max=1000, help="Thousandths of each GPU (1 to 1000)."
        ),
    ] = None,
    gpu_model: Annotated[
        list[str] | None,
        typer.Option("--gpu-model", metavar="MODEL", help="GPU models that will do; repeatable."),
    ] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option("--gpu-memory", metavar="SIZE", help="Least memory of each GPU."),
    ] = None,
    numa: Annotated[
        str | None,
        typer.Option(
            "--numa",
            metavar="MODE",
            help="any, one (cell) or split (over two).",
            autocompletion=complete_from("any", "one", "split"),
        ),
    ] = None,
    flavor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Flavor of one unit, in place of its amounts.",
            autocompletion=complete_flavors,
        ),
    ] = None,
    units: UnitsOption = None,
    project: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For the VMs of this project.",
            autocompletion=complete_projects,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For VMs that are created with a token of this name."),
    ] = None,
    purpose: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="For VMs that name it (roost vm create --reservation)."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="HOST",
            help="Only on these hosts; repeatable.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    zone: Annotated[
        list[str] | None,
        typer.Option(
            "--zone",
            metavar="ZONE",
            help="Only in these zones; repeatable.",
            autocompletion=complete_zones,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="Only on hosts for which this condition holds."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="When it begins (default: now), such as 2026-11-20T08:00 by the clock of "
            "--timezone, or with an offset.",
        ),
    ] = None,
    end: EndOption = None,
    recurrence: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="RRULE", help="It recurs, as in FREQ=WEEKLY;BYDAY=MO (RFC 5545)."
        ),
    ] = None,
    lasts: Annotated[
        str | None,
        typer.Option("--lasts", metavar="LENGTH", help="How long each occurrence lasts (8h)."),
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone whose clock counts (Europe/Berlin).")
    ] = "UTC",
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it is there for.")
    ] = None,
    key: KeyOption = None,
) -> None:
    """Reserve capacity; refused with where or when it could be, if it cannot be kept."""
    from roost.cli.words.durations import read_duration
    from roost.wire.reservations import CreateReservation

    devices = {
        "count": gpu, "share_milli": gpu_share, "models": gpu_model, "memory": gpu_memory,
    }  # fmt: skip
    devices = {word: value for word, value in devices.items() if value}
    asked = {
        "cpu": cpu, "memory": memory, "disk": disk, "gpu": devices, "numa": numa,
        "extended": extended,
    }  # fmt: skip
    asked = {word: value for word, value in asked.items() if value}
    if flavor is not None and asked:
        raise InvalidRequest(f"--flavor {flavor!r} says all amounts", hint="Maybe leave --cpu out.")
    given: dict[str, Any] = {
        "project": project, "user": user, "purpose": purpose, "description": description,
        "units": units, "hosts": on, "zones": zone, "rule": rule, "start": start, "end": end,
        "recurrence": recurrence,
        "lasts_s": None if lasts is None else read_duration(lasts),
    }  # fmt: skip
    body = CreateReservation(
        name=name,
        demand=_demand(asked) if flavor is None else None,
        flavor=flavor,
        timezone=timezone,
        **{word: value for word, value in given.items() if value is not None},
    )
    _show(session, session.client.create_reservation(body, key=key))


def _demand(asked: dict[str, Any]) -> "DemandBody":
    import msgspec

    from roost.wire.bodies import DemandBody

    for word in ("cpu", "memory"):
        if word not in asked:
            raise InvalidRequest(f"one unit has no --{word}", hint="Maybe --cpu 4 --memory 16GiB.")
    if "count" not in asked.get("gpu", {"count": 1}):
        raise InvalidRequest("--gpu says of how many GPUs it is", hint="Maybe --gpu 1.")
    if "extended" in asked:
        asked = {**asked, "extended": dict(map(_extended, asked["extended"]))}
    try:
        return msgspec.convert(asked, DemandBody)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from error


def _extended(text: str) -> tuple[str, int]:
    name, _, amount = text.partition("=")
    if not name or not (amount.isascii() and amount.isdigit()):
        raise InvalidRequest(f"--x {text!r} is not NAME=AMOUNT", hint="Maybe --x licences=2.")
    return name, int(amount)


@asks_server
def change(
    session: Session,
    name: NameArgument,
    units: UnitsOption = None,
    end: EndOption = None,
    no_end: Annotated[bool, typer.Option("--no-end", help="It has no end.")] = False,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it is there for.")
    ] = None,
) -> None:
    """Change a reservation; what is not named stays."""
    from roost.wire.reservations import ChangeReservation

    if no_end and end is not None:
        raise InvalidRequest("a reservation has an end or none, not both")
    fields: dict[str, Any] = {"units": units, "end": end, "description": description}
    fields = {word: value for word, value in fields.items() if value is not None}
    if no_end:
        fields["end"] = None
    _show(session, session.client.change_reservation(name, ChangeReservation(**fields)))


@asks_server
def delete(session: Session, name: NamesArgument) -> None:
    """Delete reservations; VMs that draw on them run on."""
    delete_each(session, "reservation", name, session.client.delete_reservation)


@asks_server
def calendar(
    session: Session,
    start: Annotated[
        str | None, typer.Option("--start", metavar="TIME", help="From then on (default: now).")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="What begins before then.")
    ] = None,
    host: HostOption = None,
) -> None:
    """List when which reservation is live, in the order of time; times are UTC."""
    from roost.cli.show import reservations

    found = session.client.reservation_calendar(start=start, end=end, host=host)
    session.show(found, reservations.calendar(found))


def _show(session: Session, found: "ReservationDetail") -> None:
    from roost.cli.show import reservations

    session.show(found, reservations.detail(found))


reservation = new_group(
    "reservation",
    "Capacity kept for a project, a user or a purpose.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "change": change,
        "delete": delete,
        "calendar": calendar,
    },
)
