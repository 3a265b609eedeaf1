"""Boards for tests: hosts, and VMs put on them by name."""

from dataclasses import replace

from roost.base.units import GIB
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Candidate, Limits
from roost.planner.cost import Load
from tests.builders import engine_on


def board_of(
    hosts: list[HostSpec],
    placed: dict[str, list[PlaceRequest]],
    limits: Limits | None = None,
    budgets: dict[str, int] | None = None,
    **each: dict[str, object],
) -> Board:
    """Return a board with these VMs on these hosts; `each` are fields of candidates by VM."""
    engine = engine_on(*hosts)
    world = WhatIf.like(engine)
    candidates = {}
    for name, requests in placed.items():
        row = world.fleet.row(name)
        for request in requests:
            request = replace(request, key=f"{request.name}:run")
            world.fleet.apply(
                request.key,
                row,
                world.fleet.vector(request.demand),
                world.terms_number(request),
                world.fleet.groups.set_number(request.groups) if request.groups else 0,
            )
            given = each.get(request.name.replace("-", "_"), {})
            candidates[request.name] = Candidate(
                request.name,
                request.name,
                request,
                row + 1,
                **{"load": Load(GIB), **given},  # type: ignore[arg-type]
            )
    numbers = {row: row + 1 for row in range(len(hosts))}
    board = Board(world, candidates, numbers)
    if limits is not None:
        board.limits = limits
    board.budgets = budgets or {}
    return board


def where(board: Board) -> dict[str, str]:
    """Return the host of every VM."""
    return {vm: board.name(board.row_of(who)) for vm, who in board.candidates.items()}
