"""One move or two that make room for a VM: found where they exist, and no more than are needed."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.control.plans.aftermoves import after_moves
from roost.model.flow import PlaceRequest
from roost.model.hosts import Resource
from roost.planner.board import Board, Limits
from roost.planner.drafting import Draft, Wish, draft
from tests.builders import host, request
from tests.unit.planner.boards import board_of

TWO = Limits(most=2)


def found_on(board: Board, asked: PlaceRequest) -> Draft:
    return draft(board, Wish("defragment", request=asked, few=True))


def one_move_does(board: Board, asked: PlaceRequest) -> bool:
    """Try every move of every VM."""
    for who in board.candidates.values():
        for row in range(board.world.fleet.hosts.count):
            with board.trial():
                if board.move(who, row) and board.world.find(asked) is not None:
                    return True
    return False


def test_one_large_vm_leaves_where_many_small_ones_would_be_too_many() -> None:
    small = [request(f"s{n}", 1000) for n in range(4)]
    board = board_of(
        [host("a", 8000), host("b", 7000)],
        {"a": [*small, request("z", 3000)], "b": [request("w", 4000)]},
        TWO,
    )
    found = draft(board, Wish("defragment", request=request("large", 4000)))
    assert [each.who.name for each in found.moves] == ["z"]


def test_two_leave_to_hosts_that_have_room_for_one_each() -> None:
    board = board_of(
        [host("a", 8000), host("b", 4000), host("c", 4000)],
        {
            "a": [request(f"v{n}", 3000) for n in range(2)],
            "b": [request("w", 1000)],
            "c": [request("x", 1000)],
        },
        TWO,
    )
    answer = after_moves(board, request("large", 8000), live=True)
    assert answer is not None
    assert answer.host == "a"
    assert {each.name: each.target for each in answer.moves} == {"v0": "b", "v1": "c"}
    assert answer.commands == [
        "roost plan create --goal defragment --cpu 8 --memory 1GiB --most 2 --apply"
    ]


def test_a_vm_that_asks_for_more_than_room_is_made_room_by_moves_of_its_own() -> None:
    board = board_of(
        [host("a", 4000), host("b", 8000)],
        {"a": [replace(request("v", 1000), project="p1")], "b": [request("w", 5000)]},
        TWO,
    )
    asked = request("large", 4000, pinned=("a",))
    answer = after_moves(board, asked, live=True)
    assert answer is not None
    assert answer.commands == ["roost vm migrate v --to b --project p1"]


def test_nothing_is_said_where_three_would_have_to_move() -> None:
    three = [request(f"v{n}", 2000) for n in range(3)]
    hosts = [host("a", 6000), host("b", 7000)]
    board = board_of(hosts, {"a": three, "b": [request("w", 1000)]}, TWO)
    assert after_moves(board, request("large", 6500), live=True) is None  # b has 7, less its own
    board = board_of([host("a", 6000), host("b", 6500)], {"a": three, "b": []}, TWO)
    assert after_moves(board, request("large", 6500), live=True) is None
    assert board.moved == {}


def test_what_has_no_number_of_its_own_here_is_asked_of_the_engine() -> None:
    # Either VM leaves enough cores; the licence that is wanted is the second one's.
    licence = (("licence", 1),)
    offered = (("licence", Resource(1)),)
    hosts = [host("a", 4000, extended=offered), host("b", 8000, extended=offered)]
    here = [request("v", 2000), request("w", 2000, 2 * GIB, extended=licence)]
    board = board_of(hosts, {"a": here, "b": [request("x", 5000)]}, TWO)
    found = found_on(board, request("large", 2000, extended=licence, pinned=("a",)))
    assert [each.who.name for each in found.moves] == ["w"]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_moves_make_room_and_one_that_would_do_is_never_missed(data: st.DataObject) -> None:
    sizes = st.lists(st.integers(1, 5), min_size=1, max_size=6)
    placed = {
        name: [request(f"{name}{n}", 1000 * c) for n, c in enumerate(data.draw(sizes, label=name))]
        for name in "abc"
    }
    hosts = [
        host(
            name,
            sum(each.demand.cpu_milli for each in placed[name])
            + 1000 * data.draw(st.integers(0, 5), label=f"free on {name}"),
        )
        for name in "abc"
    ]
    asked = request("large", 1000 * data.draw(st.integers(4, 9), label="large"))
    board = board_of(hosts, placed, TWO)
    if board.world.find(asked) is not None:
        return
    one = one_move_does(board, asked)
    found = found_on(board, asked)
    assert len(found.moves) <= 2
    assert bool(found.moves) == (board.world.find(asked) is not None)
    if one:
        assert found.moves
    for count in range(len(found.moves)):
        for some in combinations(found.moves, count):
            fresh = board_of(hosts, placed, TWO)
            if all(fresh.move(each.who, each.target) for each in some):
                assert fresh.world.find(asked) is None
