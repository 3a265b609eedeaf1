"""`roost place`: where would this VM go? Changes nothing unless --save writes the outcome."""

import json
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
from roost.cli.screen import Output, show, show_json, write
from roost.model.flow import Answer, Placement, PlaceRequest
from roost.placement.group import place_group
from roost.placement.replay import record as record_decision
from roost.wire import fleetfile
from roost.wire.answers import answer_json
from roost.wire.records import fleet_digest, record_json

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
        if record is not None or cursor is not None:
            raise InvalidRequest("--record and --cursor speak of one VM, not of several")
        placed = _place_many(opened, words.requests(count), all_or_nothing, form)
    else:
        named = opened.settings.runners_up if runners_up is None else runners_up
        opened.engine.cursor = opened.engine.cursor if cursor is None else cursor
        placed = _place_one(opened, words.request(), named, record, form)
    if save is not None and placed:
        write(save, fleetfile.dump(opened.fleet.to_description()))
    if placed < count:
        raise typer.Exit(NO)


def _place_one(
    opened: Opened, request: PlaceRequest, runners_up: int, record: Path | None, form: Output
) -> int:
    """Place one VM and return how many were placed."""
    if request.name in opened.fleet.vms.numbers:
        raise Conflict(f"VM {request.name!r} is already placed", vm=request.name)
    # Taken first: a request may bring groups along, which the fleet then knows.
    digest = fleet_digest(opened.fleet) if record is not None else ""
    decision = record_decision(opened.engine, request, runners_up=runners_up)
    answer = decision.answer
    if form is Output.JSON:
        show_json(answer_json(answer))
    else:
        show(tables.answer(answer, request))
    if record is not None:
        write(record, json.dumps(record_json(decision, digest, runners_up), indent=2) + "\n")
    if isinstance(answer, Placement):
        opened.engine.commit(request, answer)
        return 1
    return 0


def _place_many(
    opened: Opened, requests: list[PlaceRequest], all_or_nothing: bool, form: Output
) -> int:
    """Place several VMs and return how many were placed."""
    answers: list[Answer]
    how = "one by one"
    if all_or_nothing:
        group = place_group(opened.engine, requests)
        answers, how = [*group.placements], group.how
        for request, placement in zip(requests, group.placements, strict=False):
            opened.engine.commit(request, placement)
        if group.rejection is not None:
            answers.append(group.rejection)
    else:
        answers = list(_one_by_one(opened, requests))
    placed = sum(isinstance(answer, Placement) for answer in answers)
    if form is Output.JSON:
        show_json(
            {
                "answer": "placements",
                "asked": len(requests),
                "placed": placed,
                "how": how,
                "answers": [answer_json(answer) for answer in answers],
            }
        )
    else:
        show(tables.many(answers, requests[0], len(requests), how))
    return placed


def _one_by_one(opened: Opened, requests: list[PlaceRequest]) -> Iterator[Answer]:
    """Place equal requests in turn until one is refused: the rest would be refused alike."""
    for request in requests:
        found = opened.engine.find(request)
        if found is None:
            yield opened.engine.reject(request)
            return
        opened.engine.commit(request, found)
        yield found
