"""A VM's labels, policy, end and reservation, as they are typed: what rules and room go by."""

import time
from typing import Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.base.timestamps import timestamp
from roost.cli.words.completing import complete_policies, complete_reservations
from roost.cli.words.durations import read_duration

#: The heading under which help lists options about a VM's life.
LIFE = "Its life"

VMLabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vm-label",
        metavar="KEY=VALUE",
        help="A label of the VM itself.",
        rich_help_panel="The VM",
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The policy that it is under (default: its project's).",
        autocompletion=complete_policies,
        rich_help_panel="Where it may go",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="It is deleted then (2026-11-20T08:00:00Z); it may use room that is reserved "
        "from then on.",
        rich_help_panel=LIFE,
    ),
]
ForOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="LENGTH",
        help="It is deleted after 30m, 2h, 7d.",
        rich_help_panel=LIFE,
    ),
]
ReservationOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Reservation that it is to draw on (default: one of its project's, if any).",
        autocompletion=complete_reservations,
        rich_help_panel=LIFE,
    ),
]


def end_of(until: str | None, lives: str | None) -> str | None:
    """Return when a VM is deleted: at a moment, or after a length of time from now."""
    if until is not None and lives is not None:
        raise InvalidRequest("a VM lives until a moment or for a length of time, not both")
    if lives is None:
        return until
    return timestamp(round(1000 * (time.time() + read_duration(lives))))
