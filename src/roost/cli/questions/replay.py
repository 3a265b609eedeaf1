"""`roost replay`: take a recorded decision again; it must come out byte for byte."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, show, show_document
from roost.cli.words.opening import chosen_output, fleet_file, open_engine
from roost.cli.words.options import FleetOption, OutputOption, VMsOption, reports_errors


@reports_errors
def replay(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="File that `roost place --record` wrote.")
    ],
    fleet: FleetOption = None,
    vms: VMsOption = None,
    output: OutputOption = None,
) -> None:
    """Take a recorded decision again and compare."""
    from roost.cli.show import tables
    from roost.cli.words.session import document as plain
    from roost.wire.answers import answer_body
    from roost.wire.text.records import load_record, replay_record
    from roost.wire.text.requestwords import parse_line

    form = chosen_output(output)
    document = load_record(record)
    path = fleet_file(fleet)
    if path is None:
        raise InvalidRequest(
            "a record is replayed on the fleet file it was made on",
            hint="Maybe --fleet examples/small.fleet?",
        )
    opened = open_engine(path, vms)
    answer, same = replay_record(document, opened.engine)
    body = answer_body(answer)
    if form is not Output.TABLE:
        found = {"answer": "replay", "same": same, "decision": plain(body)}
        show_document(found, form)
    else:
        verdict = Text("the same decision, byte for byte", style="bold green")
        differs = Text("another decision than the recorded one", style="bold red")
        request = parse_line(str(document["request"]))
        show(verdict if same else differs, tables.answer(body, request))
    if not same:
        raise typer.Exit(1)
