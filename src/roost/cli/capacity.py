"""`roost capacity`: how many more of these VMs fit, counted by placing them."""

from enum import StrEnum
from typing import Annotated

import typer

from roost.cli import tables
from roost.cli.opening import chosen_output, open_engine
from roost.cli.options import (
    FleetOption,
    OutputOption,
    RequestWords,
    VMsOption,
    reports_errors,
    takes_request,
)
from roost.cli.screen import Output, show, show_json
from roost.model.hosts import Scope
from roost.placement.capacity import capacity as count_capacity
from roost.wire.answers import capacity_json


class Survive(StrEnum):
    """What may be lost."""

    HOST = "host"
    RACK = "rack"
    ZONE = "zone"


@reports_errors
@takes_request
def capacity(
    words: RequestWords,
    fleet: FleetOption = None,
    vms: VMsOption = None,
    survive: Annotated[
        Survive | None,
        typer.Option(help="Count only while the loss of any one of these could be restarted."),
    ] = None,
    losses: Annotated[
        int, typer.Option(min=1, max=16, help="Losses at the same time; from 2 on it is sampled.")
    ] = 1,
    output: OutputOption = None,
) -> None:
    """Count how many more such VMs the fleet takes."""
    form = chosen_output(output)
    opened = open_engine(fleet, vms)
    request = words.request()
    scope = None if survive is None else Scope[survive.name]
    answer = count_capacity(opened.engine, request, survive=scope, losses=losses)
    if form is Output.JSON:
        show_json(capacity_json(answer))
    else:
        show(tables.capacity(answer, request))
