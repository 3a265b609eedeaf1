"""A large fleet is balanced by a search over the whole of it, and then left alone."""

from roost.base.units import GIB
from roost.model.groups import GroupRule, GroupSpec
from roost.planner.board import Board, Limits
from roost.planner.drafting import Wish, draft
from roost.planner.formulating import formulate
from roost.planner.goals.balance import WHOLE_FROM
from tests.builders import host, request
from tests.unit.planner.boards import board_of

HOSTS = WHOLE_FROM + 6


def lopsided(most: int = 500, **each: dict[str, object]) -> Board:
    """Half of the hosts full, half empty; two VMs of each full host are kept apart from others."""
    hosts = [host(f"h{n:03}") for n in range(HOSTS)]
    room = hosts[0].cpu.total // 10  # and about as much of the memory
    placed = {}
    for n in range(HOSTS // 2):
        apart = (GroupSpec(f"g{n}", GroupRule.ANTI_AFFINITY),)
        mine = [request(f"v{n:03}-{k}", room, 6 * GIB) for k in range(6)]
        placed[f"h{n:03}"] = [*mine, request(f"v{n:03}-a", room, 6 * GIB, groups=apart)]
    return board_of(hosts, placed, Limits(per_host=4, at_once=500, most=most), **each)


def test_a_search_evens_a_large_fleet_and_proposes_nothing_afterwards() -> None:
    board = lopsided()
    found = draft(board, Wish("balance"))
    assert found.after.spread <= found.before.spread / 4
    assert len(found.moves) <= 4 * HOSTS
    assert found.blockers == ()
    board.moved = {}
    assert draft(board, Wish("balance")).moves == ()


def test_a_limit_of_moves_leaves_the_best_so_many() -> None:
    most = HOSTS // 2
    found = draft(lopsided(most), Wish("balance"))
    assert len(found.moves) == most
    sources, targets = ({getattr(m, end) for m in found.moves} for end in ("source", "target"))
    assert len(sources) == len(targets) == most  # one from each full host to each empty one
    assert found.vetoes == ()


def test_who_must_not_be_disturbed_stays() -> None:
    quiet = {f"v{n:03}_0": {"quiet": "do not disturb: always"} for n in range(HOSTS // 2)}
    found = draft(lopsided(**quiet), Wish("balance"))
    assert found.moves
    assert not any(each.who.name.endswith("-0") for each in found.moves)


def test_a_problem_has_the_fleet_s_room_and_the_hosts_that_filters_allow() -> None:
    hosts = [host("a"), host("b"), host("c")]
    board = board_of(hosts, {"a": [request("v1", 1000), request("v2", 1000, pinned=("a", "b"))]})
    made = formulate(board.world)
    problem = made.problem
    allowed = {
        board.world.fleet.vms.names[int(number)]: problem.allowed[problem.vm_class[vm]].tolist()
        for vm, number in enumerate(made.vms)
    }
    assert allowed == {"v1:run": [True, True, True], "v2:run": [True, True, False]}
    assert problem.capacity[0, 0] == hosts[0].cpu.total
    assert problem.even_target[-2] > 0
