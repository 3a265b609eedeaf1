"""Maintenance rolls over a fleet in groups that rules and N+1 allow."""

from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.planner.board import Board
from roost.planner.rolling import Rolling, roll
from tests.builders import host, request
from tests.unit.planner.boards import board_of, where


def fleet(hosts: int, each: int, cpu: int = 1000, room: int = 8000) -> Board:
    """Return a board of equal hosts with equal VMs."""
    return board_of(
        [host(f"h{n}", room) for n in range(hosts)],
        {f"h{n}": [request(f"v{n}-{k}", cpu) for k in range(each)] for n in range(hosts)},
    )


def names(board: Board, found: Rolling) -> list[list[str]]:
    return [[board.name(row) for row in group.hosts] for group in found.groups]


def test_groups_are_as_large_as_n_plus_1_allows() -> None:
    # Six hosts of 8 with 2 each: 12 in all. With three away 24 is left for 12, and with one more
    # lost 16; with four away a further loss would leave 8.
    board = fleet(6, 2)
    found = roll(board, range(6), most=6)
    assert [len(group.hosts) for group in found.groups] == [3, 3]
    assert sorted(row for group in found.groups for row in group.hosts) == list(range(6))
    assert all(group.moves > 0 and group.eta_s > 0 for group in found.groups)
    assert found.left == ()


def test_without_n_plus_1_more_hosts_go_at_once() -> None:
    board = fleet(6, 2)
    assert len(roll(board, range(6), most=6, spare=False).groups[0].hosts) == 4


def test_a_full_fleet_says_that_it_cannot_do_without_any_host() -> None:
    found = roll(fleet(3, 6), range(3), most=3)
    assert found.groups == ()
    assert {row for row, _ in found.left} == {0, 1, 2}


def test_hosts_with_vms_that_cannot_leave_are_left_out_by_name() -> None:
    board = board_of(
        [host(f"h{n}") for n in range(4)],
        {"h0": [request("v0", 1000), request("vm-7", 1000)], "h1": [request("v1", 1000)]},
        vm_7={"stays": "it is pinned"},
    )
    found = roll(board, range(4), most=4)
    assert [(row, vetoes[0].name, vetoes[0].why) for row, vetoes in found.left] == [
        (0, "vm-7", "it is pinned")
    ]
    assert not any("h0" in group for group in names(board, found))
    assert where(board)["vm-7"] == "h0"


def test_rules_hold_after_every_group() -> None:
    apart = GroupSpec("web", GroupRule.ANTI_AFFINITY, Scope.HOST)
    board = board_of(
        [host(f"h{n}") for n in range(4)],
        {f"h{n}": [request(f"w{n}", 1000, groups=(apart,))] for n in range(3)},
    )
    found = roll(board, range(4), most=4, spare=False)
    # Three that keep apart need three hosts at every moment: one of four is away at a time.
    assert [len(group.hosts) for group in found.groups] == [1, 1, 1, 1]
    assert len(set(where(board).values())) == 3
