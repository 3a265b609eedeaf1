"""A board of a fleet file: its VMs as they may move, of which nothing is known but the file."""

from roost.cli.words.opening import Opened
from roost.control.plans.aftermoves import MOST_MOVES, after_moves, may_help
from roost.model.flow import PlaceRequest
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Candidate, Limits
from roost.planner.cost import Load
from roost.wire.bodies import RejectionBody


def tell_moves(opened: Opened, found: RejectionBody, request: PlaceRequest) -> None:
    """Add to a refusal for want of room the moves after which the VM would fit, if few do."""
    if may_help(found, opened.fleet):
        found.after_moves = after_moves(board_of(opened), request, live=False)


def board_of(opened: Opened) -> Board:
    """Return the board of a fleet file; a command has a copy of its own."""
    told = opened.fleet.to_description()
    groups = {each.name: each for each in told.groups}
    rows = {each.name: opened.fleet.row(each.name) for each in told.hosts}
    candidates = {
        vm.name: Candidate(
            vm.name,
            vm.name,
            PlaceRequest(
                vm.name,
                vm.demand,
                vm.constraints,
                groups=tuple(groups[name] for name in vm.groups),
                key=vm.name,
            ),
            rows[vm.host],
            Load(vm.demand.memory_bytes),
        )
        for vm in told.vms
    }
    world = WhatIf.like(opened.engine)
    return Board(world, candidates, {row: row for row in rows.values()}, 0, Limits(most=MOST_MOVES))
