"""`roost place`: where would this VM go? Creates nothing; --save writes the outcome of a file."""

from pathlib import Path
from typing import Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, show, show_document
from roost.cli.words.opening import fleet_file, open_engine
from roost.cli.words.options import FleetOption, RequestWords, VMsOption, takes_request
from roost.cli.words.session import Session, asks_server, document

#: Exit code when a VM finds no host: the answer is no, and nothing is broken.
NO = 1


@asks_server
@takes_request
def place(
    session: Session,
    words: RequestWords,
    fleet: FleetOption = None,
    vms: VMsOption = None,
    count: Annotated[
        int, typer.Option(min=1, max=100_000, help="Place so many equal VMs, one by one.")
    ] = 1,
    all_or_nothing: Annotated[
        bool, typer.Option("--all-or-nothing", help="Place all of them or none.")
    ] = False,
    cursor: Annotated[
        int | None, typer.Option(help="Host number that round_robin goes on after (fleet file).")
    ] = None,
    runners_up: Annotated[
        int | None, typer.Option(min=0, max=16, help="Name so many hosts that came next.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the fleet with the VM placed (fleet file)."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a record for `roost replay` (fleet file)."),
    ] = None,
) -> None:
    """Find a host for a VM, or say why there is none."""
    path = fleet_file(fleet)
    if path is not None:
        from roost.cli.words import onfile

        how = onfile.Placing(count, all_or_nothing, cursor, runners_up, save, record)
        placed = onfile.place(open_engine(path, vms), words, how, session.form)
    else:
        only = {"--cursor": cursor is not None}
        only |= {"--save": save is not None, "--record": record is not None}
        refuse_file_options(only | {"--vms": vms is not None})
        placed = _ask_server(session, words, count, runners_up, all_or_nothing)
    if placed < count:
        raise typer.Exit(NO)


def refuse_file_options(given: dict[str, bool]) -> None:
    """Refuse options that a server knows nothing of."""
    for option, was_given in given.items():
        if was_given:
            raise InvalidRequest(
                f"{option} works on a fleet file, and a server is asked",
                hint="Maybe add --fleet FILE.",
            )


def _ask_server(
    session: Session,
    words: RequestWords,
    count: int,
    runners_up: int | None,
    all_or_nothing: bool,
) -> int:
    """Ask for a dry run and return how many would be placed."""
    from roost.cli.show import batches, tables
    from roost.cli.show.remedies import Live
    from roost.cli.words.sized import sized, vm_said
    from roost.wire.bodies import CreateVM, DryRun, PlacementBody

    words = sized(session, words)
    request = words.request()
    if count == 1:
        named = 2 if runners_up is None else runners_up
        found = session.client.dry_run(DryRun(**vm_said(words, request), runners_up=named))
        session.show(found, tables.answer(found, request, Live()))
        return int(isinstance(found, PlacementBody))
    vms = [CreateVM(**vm_said(words, each)) for each in words.requests(count)]
    body = session.client.dry_run_batch(vms, atomic=all_or_nothing)
    placed = sum(isinstance(each, PlacementBody) for each in body.answers)
    how = body.together.how if body.together is not None else "one by one"
    if session.form is Output.TABLE:
        show(
            tables.many(body.answers, request, count, how, Live()), *batches.why_not(body.together)
        )
    else:
        show_document({"answer": "placements", "asked": count, "placed": placed,
                       "how": how, **document(body)}, session.form)  # fmt: skip
    return placed
