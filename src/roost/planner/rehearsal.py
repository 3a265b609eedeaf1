"""The rehearsal of a plan: its moves made in waves as agents would make them, on a world of before.

A VM on its way is charged at both ends, and the engine is asked about every arrival; so a wave is
safe whatever becomes of its moves, because none counts on room that another one leaves. The order
is that of `waves`: this is its ground for a fleet. Budgets of groups, and links of a described
network, are lanes beside the hosts.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roost.model.flow import PlaceRequest
from roost.placement.engine import NO_FIT
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Candidate, only_on
from roost.planner.cost import MoveCost
from roost.planner.guards import Guard, Veto
from roost.planner.waves import Limits, Move, order_on

#: Names of a claim that stands for the incoming half of a move.
_INCOMING = "|incoming"
#: Hosts that are tried as a third one, the emptiest first.
_MOST_THIRDS = 64


@dataclass(frozen=True, slots=True)
class Drafted:
    """One move of a draft, with its cost and why it is made."""

    who: Candidate
    source: int  # fleet rows
    target: int
    why: str
    cost: MoveCost
    wave: int = 0
    relief: float = 1.0  # as proposed: what the guards of its cost go by


def in_waves(
    world: WhatIf, board: Board, moves: Sequence[Drafted]
) -> tuple[list[Drafted], tuple[Veto, ...]]:
    """Order moves in waves on the world of before; return those that no order makes possible.

    The world is as after the waves then. VMs that belong together are offered one after the other,
    so that they share a wave or have waves that follow each other.
    """
    grouped = side_by_side(moves)
    ground = WorldGround(world, board, grouped)
    steps = [(at, each.target) for at, each in enumerate(grouped)]
    ordered = order_on(ground, steps, Limits(board.limits.per_host, board.limits.at_once))
    found = []
    for number, wave in enumerate(ordered.waves, 1):
        for move in wave:
            each = grouped[move.vm]
            why = each.why
            if move.detour:
                end = board.name(each.target)
                why = f"makes way on {board.name(move.source)}, and goes on to {end}"
            found.append(
                replace(each, source=move.source, target=move.target, wave=number, why=why)
            )
    why = "hosts wait for each other's room, and no third host has room to break the circle"
    left = [grouped[vm].who for vm, _ in ordered.impossible]
    return found, tuple(Veto(who.vm, who.name, Guard.LIMIT, why) for who in left)


def side_by_side(moves: Sequence[Drafted]) -> list[Drafted]:
    """Return moves in their order, but those of VMs that belong together next to each other."""
    groups: dict[str, list[Drafted]] = {}
    for each in moves:
        groups.setdefault(each.who.together or each.who.vm, []).append(each)
    return [each for group in groups.values() for each in group]


class WorldGround:
    """The ground of waves that is an engine's world; VMs are places in a list of moves."""

    def __init__(self, world: WhatIf, board: Board, moves: Sequence[Drafted]) -> None:
        self._world, self._board, self._moves = world, board, moves
        self._last: dict[int, int] = {}  # by VM, the number of its last move

    def where(self, vm: int) -> int:
        """Return the row of the host that a VM is on."""
        vms = self._world.fleet.vms
        return int(vms.host[vms.numbers[self._request(vm).key]])

    def enter(self, vm: int, target: int, number: int) -> set[int] | None:
        """Charge the target with a VM that still is at its source, if the engine lets it.

        What rests on which departure is not worked out: a wave begins when the one before is over,
        and after a failure the rest is planned anew.
        """
        self._board.check_wanted()
        request, fleet = self._request(vm), self._world.fleet
        asked = only_on(request, fleet.hosts.names[target])
        if asked is None:
            return None
        mark, version = fleet.mark(), fleet.version
        fleet.remove(fleet.vms.numbers[request.key])
        found = self._world.find(asked)
        fleet.undo(mark)
        fleet.version = version
        if found is None:
            return None
        self._world.commit(replace(request, key=request.key + _INCOMING), found)
        waits = {self._last[vm]} if vm in self._last else set()
        self._last[vm] = number
        return waits

    def leave(self, wave: Sequence[Move]) -> None:
        """Let the VMs of a wave be at their targets alone."""
        fleet = self._world.fleet
        vms = fleet.vms
        for move in wave:
            key = self._request(move.vm).key
            number = vms.numbers[key + _INCOMING]
            amounts, expected = vms.demand[number].copy(), vms.expected[number].copy()
            terms, group_set = int(vms.terms[number]), int(vms.group_set[number])
            devices, cells = int(vms.devices[number]), int(vms.cells[number])
            fleet.remove(number)
            fleet.remove(vms.numbers[key])
            fleet.apply(key, move.target, amounts, terms, group_set, devices, cells, expected)

    def lanes(self, vm: int, source: int, target: int) -> Iterable[tuple[Hashable, int]]:
        """Return the budgets of a VM's groups, and the links of its way."""
        board = self._board
        for group in self._moves[vm].who.budgets:
            yield group, board.budgets.get(group, 1)
        for link in board.links(source, target):
            yield ("link", link), board.limits.per_link

    def thirds(self, vm: int) -> Iterable[int]:
        """Return the hosts that would take a VM for a while, the emptiest first."""
        request, fleet = self._request(vm), self._world.fleet
        mark, version = fleet.mark(), fleet.version
        fleet.remove(fleet.vms.numbers[request.key])
        fits = self._world.scores(request) != NO_FIT
        fleet.undo(mark)
        fleet.version = version
        rows = np.flatnonzero(fits & self._board.open_rows())
        loads = replace(self._board, world=self._world).loads()
        chosen: list[int] = rows[np.argsort(loads[rows], kind="stable")][:_MOST_THIRDS].tolist()
        return chosen

    def size(self, vm: int) -> int:
        """Return the memory of a VM: what its moves send."""
        return self._moves[vm].who.load.memory_bytes

    def _request(self, vm: int) -> PlaceRequest:
        return self._moves[vm].who.request
