"""The goal talkers: nearer to partners, never farther in sum, and not onto full hosts."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from roost.model.constraints import Talk
from roost.model.flow import PlaceRequest
from roost.placement.nearness import HostNetwork
from roost.planner.board import Board
from roost.planner.drafting import Wish, draft
from roost.planner.goals.talkers import MOST_LOAD
from roost.topology.distances import Distances
from roost.topology.network import Link, Node, checked
from tests.builders import host, request
from tests.unit.planner.boards import board_of, where

HOSTS = ("a", "b", "c", "d")
#: Hosts on a line of switches, 1 ms from one to the next.
LINE = checked(
    [Node(name, "host") for name in HOSTS] + [Node(f"s{name}", "switch") for name in HOSTS],
    [Link(name, f"s{name}", 10_000, 0.1) for name in HOSTS]
    + [Link(f"s{one}", f"s{two}", 10_000, 1.0) for one, two in pairwise(HOSTS)],
)

Pairs = dict[tuple[str, str], int]


def line(placed: dict[str, list[str]], pairs: Pairs, cpu: int = 8000) -> Board:
    """Return a board of VMs of one core on the line, with who talks in Mbit/s."""

    def talking(name: str) -> PlaceRequest:
        others = {b if a == name else a: mbit for (a, b), mbit in pairs.items() if name in (a, b)}
        talks = tuple(Talk(f"{vm}:run", vm, 1000 * mbit) for vm, mbit in sorted(others.items()))
        return replace(request(name, 1000), talks=talks)

    vms = {name: [talking(vm) for vm in names] for name, names in placed.items()}
    board = board_of([host(name, cpu) for name in HOSTS], vms)
    board.world.set_network(HostNetwork(Distances(LINE)))
    return board


def far(board: Board) -> int:
    """Return traffic times distance of all VMs."""
    total = 0
    for who in board.candidates.values():
        near = board.world.question(who.request).near
        rows = board.world.fleet.present_rows()
        sums = near.sums(who.request.talks, rows)
        total += int(sums[rows.tolist().index(board.row_of(who))])
    return total


def test_a_vm_goes_to_its_heaviest_partner_and_others_follow() -> None:
    board = line(
        {"a": ["web"], "c": ["db"], "d": ["app"]}, {("web", "db"): 500, ("web", "app"): 20}
    )
    found = draft(board, Wish("talkers"))
    went = {each.who.name: board.name(each.target) for each in found.moves}
    assert went == {"web": "c", "app": "c"}  # the second follows the first
    assert "Mbit/s go" in found.moves[0].why


def test_a_full_host_is_passed_over_for_the_next_nearest() -> None:
    full = [f"v{number}" for number in range(6)]
    board = line({"a": ["web"], "d": ["db", *full]}, {("web", "db"): 500})
    board.candidates = {
        vm: replace(who, stays="" if vm == "web" else "it stays")
        for vm, who in board.candidates.items()
    }
    found = draft(board, Wish("talkers"))
    assert [board.name(each.target) for each in found.moves] == ["c"]


def test_little_traffic_and_unknown_networks_move_nobody() -> None:
    board = line({"a": ["web"], "d": ["db"]}, {("web", "db"): 2})
    assert draft(board, Wish("talkers")).moves == ()
    board = line({"a": ["web"], "d": ["db"]}, {("web", "db"): 500})
    board.world.set_network(None)
    assert draft(board, Wish("talkers")).moves == ()


@pytest.mark.parametrize("seed", range(6))
def test_every_plan_shortens_ways_and_leaves_hosts_below_their_mark(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"v{number}" for number in range(16)]
    placed: dict[str, list[str]] = {name: [] for name in HOSTS}
    for name in names:
        placed[chance.choice([each for each in HOSTS if len(placed[each]) < 6])].append(name)
    pairs = {
        (a, b): chance.choice([1, 20, 100, 900])
        for a, b in (sorted(chance.sample(names, 2)) for _ in range(20))
    }
    board = line(placed, pairs)
    before, was = far(board), where(board)
    found = draft(board, Wish("talkers"))
    targets = {each.target for each in found.moves}
    assert found.moves
    assert far(board) < before
    assert all(board.loads()[row] <= MOST_LOAD for row in targets)
    assert {vm for vm, at in where(board).items() if at != was[vm]} == {
        each.who.vm for each in found.moves
    }
