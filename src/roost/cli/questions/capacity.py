"""`roost capacity`: how many more of these VMs fit, counted by placing them."""

from enum import StrEnum
from typing import Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.questions.place import refuse_file_options
from roost.cli.words.lifeoptions import (
    ForOption,
    PolicyOption,
    ReservationOption,
    UntilOption,
    VMLabelOption,
    end_of,
)
from roost.cli.words.opening import fleet_file, open_engine
from roost.cli.words.options import FleetOption, RequestWords, VMsOption, takes_request
from roost.cli.words.session import Session, asks_server


class Survive(StrEnum):
    """What may be lost."""

    HOST = "host"
    RACK = "rack"
    ZONE = "zone"


@asks_server
@takes_request
def capacity(
    session: Session,
    words: RequestWords,
    fleet: FleetOption = None,
    vms: VMsOption = None,
    survive: Annotated[
        Survive | None,
        typer.Option(help="Count only while the loss of any one of these could be restarted."),
    ] = None,
    losses: Annotated[
        int,
        typer.Option(
            min=1, max=16, help="Losses at the same time; at most 64 combinations are tried."
        ),
    ] = 1,
    vm_label: VMLabelOption = None,
    policy: PolicyOption = None,
    until: UntilOption = None,
    lives: ForOption = None,
    reservation: ReservationOption = None,
) -> None:
    """Count how many more such VMs the fleet takes."""
    lost = None if survive is None else survive.value
    path = fleet_file(fleet)
    given = {"--until": until, "--for": lives, "--reservation": reservation, "--policy": policy}
    given["--vm-label"] = " ".join(vm_label) if vm_label else None
    if path is not None:
        from roost.cli.words import onfile

        refuse_server_options(given)

        onfile.capacity(
            open_engine(path, vms), onfile.on_file(words.request()), lost, losses, session.form
        )
        return
    refuse_file_options({"--vms": vms is not None})
    from roost.cli.show import tables
    from roost.cli.show.remedies import Live
    from roost.cli.words.asking import read_labels
    from roost.cli.words.sized import sized, vm_said
    from roost.wire.bodies import CapacityQuestion

    words = sized(session, words)
    request = words.request()
    fields = vm_said(words, request) | {"survive": lost, "losses": losses}
    fields |= {"until": end_of(until, lives), "reservation": reservation, "policy": policy}
    fields["labels"] = read_labels(vm_label or [], "--vm-label")
    found = session.client.capacity(CapacityQuestion(**fields))
    session.show(found, tables.capacity(found, request, Live()))


def refuse_server_options(given: dict[str, str | None]) -> None:
    """Refuse options that a fleet file knows nothing of."""
    for option, value in given.items():
        if value is not None:
            raise InvalidRequest(
                f"{option} is for a server, and a fleet file is asked",
                hint="Maybe leave --fleet out.",
            )
