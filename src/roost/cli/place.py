"""`roost place`: where would this VM go? Changes nothing unless --save writes the outcome."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from roost.base.errors import Conflict, InvalidRequest
from roost.cli import tables
from roost.cli.opening import Opened, chosen_output, open_engine
from roost.cli.options import (
    FleetOption,
    OutputOption,
    RequestWords,
    VMsOption,
    reports_errors,
    takes_request,
)
from roost.cli.screen import Output, note, show, show_json
from roost.model.flow import Answer, Placement, PlaceRequest
from roost.placement.group import place_group
from roost.placement.replay import record as record_decision
from roost.wire import fleetfile
from roost.wire.answers import answer_json
from roost.wire.records import record_json

#: Exit code when a VM finds no host: the answer is no, and nothing is broken.
NO = 1


@reports_errors
@takes_request
def place(
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
        int | None, typer.Option(help="Host number that round_robin goes on after.")
    ] = None,
    runners_up: Annotated[
        int | None, typer.Option(min=0, max=16, help="Name so many hosts that came next.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the fleet with the VM placed.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a record for `roost replay`.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Find a host for a VM, or say why there is none."""
    form = chosen_output(output)
    opened = open_engine(fleet, vms)
    if count > 1 or all_or_nothing:
        _place_many(opened, words, count, all_or_nothing, form)
    else:
        _place_one(opened, words, cursor, runners_up, form, commit=save is not None)
    if save is not None:
        _save(opened, save)


def _place_one(
    opened: Opened,
    words: RequestWords,
    cursor: int | None,
    runners_up: int | None,
    form: Output,
    *,
    commit: bool,
) -> None:
    request = words.request()
    if request.name in opened.fleet.vms.numbers:
        raise Conflict(f"VM {request.name!r} is already placed", vm=request.name)
    named = opened.settings.runners_up if runners_up is None else runners_up
    answer = opened.engine.place(request, runners_up=named, cursor=cursor)
    if form is Output.JSON:
        show_json(answer_json(answer))
    else:
        show(tables.answer(answer, request))
    if not isinstance(answer, Placement):
        raise typer.Exit(NO)
    if commit:
        opened.engine.commit(request, answer)


def _place_many(
    opened: Opened, words: RequestWords, count: int, all_or_nothing: bool, form: Output
) -> None:
    requests = words.requests(count)
    answers: list[Answer]
    how = "one by one"
    if all_or_nothing:
        group = place_group(opened.engine, requests)
        answers = list(group.placements) if group.rejection is None else [group.rejection]
        how = group.how
        if group.rejection is None:
            for request, placement in zip(requests, group.placements, strict=True):
                opened.engine.commit(request, placement)
    else:
        answers = list(_one_by_one(opened, requests))
    placed = [answer for answer in answers if isinstance(answer, Placement)]
    if form is Output.JSON:
        show_json(
            {
                "answer": "placements",
                "asked": count,
                "placed": len(placed),
                "how": how,
                "answers": [answer_json(answer) for answer in answers],
            }
        )
    else:
        show(tables.many(answers, requests[0], count, how))
    if len(placed) < count:
        raise typer.Exit(NO)


def _one_by_one(opened: Opened, requests: list[PlaceRequest]) -> Iterator[Answer]:
    """Place equal requests in turn until one is refused: the rest would be refused alike."""
    for request in requests:
        found = opened.engine.find(request)
        if found is None:
            yield opened.engine.reject(request)
            return
        opened.engine.commit(request, found)
        yield found


def _save(opened: Opened, path: Path) -> None:
    try:
        path.write_text(fleetfile.dump(opened.fleet.to_description()))
    except OSError as error:
        raise InvalidRequest(f"cannot write {str(path)!r}: {error.strerror}") from error
    note(f"wrote {path}")
