"""The questions answered here, by the engine on a fleet file instead of a server.

Importing this module loads the engine; only commands that were given a fleet file do.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import Conflict, InvalidRequest
from roost.cli.show import batches, tables
from roost.cli.show.screen import Output, show, show_document, write
from roost.cli.words.opening import Opened
from roost.cli.words.options import RequestWords
from roost.cli.words.session import document
from roost.fleet.fleet import Fleet
from roost.model.flow import Answer, Placement, PlaceRequest
from roost.model.hosts import Admin, Health, Scope
from roost.placement.capacity import capacity as count_capacity
from roost.placement.explain import explain as explain_request
from roost.placement.group import place_group
from roost.placement.replay import record as record_decision
from roost.placement.scheduling_info import scheduling_info
from roost.wire.answers import answer_body, capacity_body, explanation_body, together_body
from roost.wire.bodies import RejectionBody
from roost.wire.text import fleetfile
from roost.wire.text.records import fleet_digest, record_json


@dataclass(frozen=True, slots=True)
class Placing:
    """How `roost place` places on a file."""

    count: int = 1
    all_or_nothing: bool = False
    cursor: int | None = None
    runners_up: int | None = None
    save: Path | None = None
    record: Path | None = None


def on_file(request: PlaceRequest) -> PlaceRequest:
    """Return a request that a fleet file can answer; it knows no network."""
    if request.constraints.near:
        raise InvalidRequest(
            "--near is of a server with a topology, and a fleet file is asked",
            hint="Maybe --zone or --rack, or a group with affinity.",
        )
    return request


def place(opened: Opened, words: RequestWords, how: Placing, form: Output) -> int:
    """Place one VM or several, and return how many were placed."""
    if how.count > 1 or how.all_or_nothing:
        if how.record is not None or how.cursor is not None:
            raise InvalidRequest("--record and --cursor speak of one VM, not of several")
        placed = _place_many(
            opened, [on_file(each) for each in words.requests(how.count)], how.all_or_nothing, form
        )
    else:
        named = opened.settings.runners_up if how.runners_up is None else how.runners_up
        opened.engine.cursor = opened.engine.cursor if how.cursor is None else how.cursor
        placed = _place_one(opened, on_file(words.request()), named, how.record, form)
    if how.save is not None and placed:
        write(how.save, fleetfile.dump(opened.fleet.to_description()))
    return placed


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
    body = answer_body(answer)
    if form is not Output.TABLE:
        show_document(document(body), form)
    else:
        show(tables.answer(body, request))
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
    how, together = "one by one", None
    if all_or_nothing:
        group = place_group(opened.engine, requests)
        answers, how, together = [*group.placements], group.how, together_body(group)
        for at in group.order:
            opened.engine.commit(requests[at], group.placements[at])
        if group.rejection is not None:
            answers.append(group.rejection)
    else:
        answers = list(_one_by_one(opened, requests))
    placed = sum(isinstance(answer, Placement) for answer in answers)
    bodies = [answer_body(answer) for answer in answers]
    if form is not Output.TABLE:
        found = {
            "answer": "placements",
            "asked": len(requests),
            "placed": placed,
            "how": how,
            "answers": [document(body) for body in bodies],
        }
        if together is not None:
            found["together"] = document(together)
        show_document(found, form)
    else:
        show(tables.many(bodies, requests[0], len(requests), how), *batches.why_not(together))
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


def explain(
    opened: Opened, request: PlaceRequest, hosts: Sequence[str], most: int | None, form: Output
) -> None:
    """Explain a request on every host, or on some."""
    names = [opened.fleet.hosts.names[opened.fleet.row(name)] for name in hosts]
    explanation = explain_request(opened.engine, request)
    # Only the verdicts that are shown: a fleet may have a hundred thousand hosts.
    found = explanation_body(explanation, names, most if form is Output.TABLE else None)
    if isinstance(found.answer, RejectionBody):
        from roost.cli.words.fileboard import tell_moves

        tell_moves(opened, found.answer, request)
    if form is not Output.TABLE:
        show_document(document(found), form)
        return
    show(tables.verdicts(found.verdicts) if names else tables.explanation(found, request, most))


def capacity(
    opened: Opened, request: PlaceRequest, survive: str | None, losses: int, form: Output
) -> None:
    """Count how many more fit."""
    scope = None if survive is None else Scope[survive.upper()]
    found = capacity_body(count_capacity(opened.engine, request, survive=scope, losses=losses))
    if form is not Output.TABLE:
        show_document(document(found), form)
    else:
        show(tables.capacity(found, request))


def info(opened: Opened, host: str, form: Output) -> None:
    """Show what the scheduler knows of a host."""
    if form is not Output.TABLE:
        show_document(_host_json(opened.fleet, host), form)
    else:
        show(scheduling_info(opened.fleet, host))


def _host_json(fleet: Fleet, name: str) -> dict[str, object]:
    row = fleet.row(name)
    units = {"cpu": "milli", "memory": "bytes", "disk": "bytes"}
    arrays = fleet.hosts.arrays
    resources = {}
    for number, resource in enumerate(fleet.hosts.resources.values):
        unit = units.get(resource, "count")
        used = int(fleet.hosts.used[row, number])
        resources[resource] = {
            f"committed_{unit}": int(arrays.committed[row, number]),
            f"held_{unit}": int(fleet.hosts.held[row, number]),
            f"capacity_{unit}": int(arrays.capacity[row, number]),
            f"used_{unit}": used if used >= 0 else None,
        }
    return {
        "host": name,
        "host_number": row,
        "health": Health(int(fleet.hosts.health[row])).label,
        "admin": Admin(int(fleet.hosts.admin[row])).label,
        "takes_vms": bool(arrays.takes[row]),
        "running_vms": int(arrays.vm_count[row]),
        "resources": resources,
    }
