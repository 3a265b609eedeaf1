"""`roost explain`: why this host and not the others, or why none at all."""

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
from roost.placement.explain import explain as explain_request
from roost.wire.answers import explanation_json

#: Hosts that a table lists when nobody asked for all.
SOME_HOSTS = 20


@reports_errors
@takes_request
def explain(
    words: RequestWords,
    fleet: FleetOption = None,
    vms: VMsOption = None,
    host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Speak of this host only.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every host.")] = False,
    output: OutputOption = None,
) -> None:
    """Say why a VM fits on some hosts or on none.

    Counts the reasons, lists the hosts, names the nearest miss and the smallest fix.
    """
    form = chosen_output(output)
    opened = open_engine(fleet, vms)
    request = words.request()
    rows = [opened.fleet.row(name) for name in host or []]
    names = [opened.fleet.hosts.names[row] for row in rows]
    explanation = explain_request(opened.engine, request)
    if form is Output.JSON:
        show_json(explanation_json(explanation, names))
        return
    show(tables.explanation(explanation, names, None if everything else SOME_HOSTS))
