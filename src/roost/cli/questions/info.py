"""`roost info`: what the scheduler knows of one host."""

from typing import Annotated

import typer

from roost.cli.questions.place import refuse_file_options
from roost.cli.words.completing import complete_hosts
from roost.cli.words.opening import fleet_file, open_engine
from roost.cli.words.options import FleetOption, VMsOption
from roost.cli.words.session import Session, asks_server


@asks_server
def info(
    session: Session,
    host: Annotated[
        str,
        typer.Argument(metavar="HOST", help="Name of the host.", autocompletion=complete_hosts),
    ],
    fleet: FleetOption = None,
    vms: VMsOption = None,
) -> None:
    """Show what the scheduler knows of one host."""
    path = fleet_file(fleet)
    if path is not None:
        from roost.cli.words import onfile

        onfile.info(open_engine(path, vms), host, session.form)
        return
    refuse_file_options({"--vms": vms is not None})
    found = session.client.scheduling_info(host)
    session.show(found, found.text)
