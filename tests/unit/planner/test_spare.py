"""Room to lose hosts: moves after which all that ran on any of them finds another, or who not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Health, Scope
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Limits
from roost.planner.drafting import Draft, Wish, draft
from roost.planner.guards import Guard
from tests.builders import host, request
from tests.unit.planner.boards import board_of

ONE = Wish("spare")


def lost_by(board: Board) -> list[str]:
    """Lose each host by hand and restart its VMs as a caller would; return who found no host."""
    left = []
    for row in range(board.world.fleet.hosts.count):
        world = WhatIf.like(board.world)
        here = [who for who in board.candidates.values() if board.row_of(who) == row]
        for who in here:
            world.fleet.remove(world.fleet.vms.numbers[who.request.key])
        world.fleet.set_health(board.name(row), Health.OFFLINE)
        # In the order in which a rehearsal does it: largest first, else as they were numbered.
        numbers = board.world.fleet.vms.numbers
        here.sort(key=lambda who: (-who.request.demand.cpu_milli, numbers[who.request.key]))
        for who in here:
            found = world.find(who.request)
            if found is None:
                left.append(who.name)
            else:
                world.commit(who.request, found)
    return left


def vms(*names: str, cpu: int = 1000, **given: object) -> list:  # type: ignore[type-arg]
    return [request(name, cpu, **given) for name in names]


def moves(found: Draft, board: Board) -> list[tuple[str, str]]:
    return [(each.who.name, board.name(each.target)) for each in found.moves]


def test_room_for_the_largest_vm_is_made_on_one_host() -> None:
    board = board_of(
        [host(name, 8000) for name in "abc"],
        {"a": vms("big", cpu=6000), "b": vms("b1", "b2", cpu=2000), "c": vms("c1", cpu=4000)},
    )
    assert lost_by(board) == ["big"]
    found = draft(board, ONE)
    assert len(found.moves) == 1  # of b1 or b2 to c; c1 would be more bytes, and nothing is gained
    assert found.moves[0].why == "so that a could be lost"
    assert found.blockers == ()
    assert lost_by(board) == []
    board.moved = {}
    assert draft(board, ONE).moves == ()


def test_a_fleet_that_can_lose_any_host_is_left_alone() -> None:
    board = board_of([host(name, 8000) for name in "abc"], {"a": vms("v1"), "b": vms("v2")})
    found = draft(board, ONE)
    assert (found.moves, found.blockers) == ((), ())


def test_what_no_move_helps_is_named_with_the_host_it_would_lose() -> None:
    pinned = request("vm-7", 1000, pinned=("a",))
    board = board_of([host(name, 4000) for name in "ab"], {"a": [pinned], "b": vms("b1", cpu=4000)})
    found = draft(board, ONE)
    assert found.moves == ()
    told = {each.name: each.why for each in found.blockers}
    assert "if a is lost, no other host fits" in told["vm-7"]
    assert "not pinned" in told["vm-7"]
    assert "other host fits: cpu on 1 hosts" in told["b1"]


def test_who_may_not_be_disturbed_stays_and_others_make_the_room() -> None:
    board = board_of(
        [host(name, 8000) for name in "abc"],
        {"a": vms("big", cpu=6000), "b": vms("b1", "b2", cpu=2000), "c": vms("c1", "c2", cpu=2000)},
        b1={"quiet": "always"}, b2={"quiet": "always"}, c1={"quiet": "always"},
    )  # fmt: skip
    found = draft(board, ONE)
    assert moves(found, board) == [("c2", "b")]
    assert lost_by(board) == []


def test_two_hosts_may_be_lost_if_that_is_asked_for() -> None:
    placed = {"a": vms("big", cpu=6000), "b": vms("b1", "b2"), "c": vms("c1", "c2", cpu=2000)}
    hosts = [host(name, 8000) for name in "abcd"]
    assert draft(board_of(hosts, placed), Wish("spare")).moves == ()
    board = board_of(hosts, {**placed, "d": vms("d1", "d2", cpu=2000)})
    found = draft(board, Wish("spare", spare=2))
    assert found.moves
    assert {each.guard for each in found.blockers} <= {Guard.AT_REST}


def test_a_rule_that_keeps_members_apart_counts_when_hosts_are_lost() -> None:
    apart = GroupSpec("web", GroupRule.ANTI_AFFINITY, Scope.HOST)
    board = board_of(
        [host(name, 4000) for name in "abc"],
        {
            "a": vms("w1", cpu=2000, groups=(apart,)),
            "b": vms("w2", cpu=2000, groups=(apart,)),
            "c": vms("x1", "x2", "x3"),
        },
    )
    assert lost_by(board) == ["w1", "w2"]  # c alone may take them, and has room for one core
    found = draft(board, ONE)
    assert found.blockers == ()
    assert lost_by(board) == []


def test_a_plan_has_no_more_moves_than_it_may_have() -> None:
    placed = {"a": vms("big", cpu=6000), "b": vms(*(f"b{n}" for n in range(4))), "c": vms("c1")}
    board = board_of([host(n, s) for n, s in zip("abc", (8000, 8000, 5000), strict=True)], placed,
                     Limits(most=1))  # fmt: skip
    found = draft(board, ONE)
    assert found.moves == ()
    assert [each.name for each in found.blockers] == ["big"]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_plan_leaves_fewer_without_a_host_and_names_all_that_are_left(
    data: st.DataObject,
) -> None:
    hosts = [host(name, 1000 * data.draw(st.integers(6, 12), label=name)) for name in "abcd"]
    apart = GroupSpec("web", GroupRule.ANTI_AFFINITY, Scope.HOST)
    sizes = st.lists(st.sampled_from([1, 1, 2, 3, 5]), max_size=5)
    placed, members = {}, 0
    for name, own in zip("abcd", hosts, strict=True):
        room, here = own.cpu.total // 1000, []
        for n, cpu in enumerate(data.draw(sizes, label=f"on {name}")):
            if cpu <= room:
                member = n == 0 and data.draw(st.booleans(), label="member")
                members += member
                groups = (apart,) if member else ()
                here.append(request(f"{name}{n}", 1000 * cpu, groups=groups))
                room -= cpu
        placed[name] = here
    board = board_of(hosts, placed)
    before = lost_by(board)
    found = draft(board, ONE)
    after = lost_by(board)
    assert bool(after) == bool(found.blockers)
    assert {each.name for each in found.blockers} == set(after)
    if found.moves:
        whole = board.capacity().mean(axis=0)
        size = {
            r.name: r.demand.cpu_milli / whole[0] + r.demand.memory_bytes / whole[1]
            for each in placed.values()
            for r in each
        }
        assert sum(size[name] for name in after) < sum(size[name] for name in before)
    for each in board.candidates.values():
        assert board.row_of(each) >= 0
    assert (board.world.fleet.hosts.arrays.headroom[:4, 0] >= 0).all()
    board.moved = {}
    if not after:
        assert draft(board, ONE).moves == ()


def test_a_vm_on_its_way_is_no_reason_to_move_others_or_to_name_it() -> None:
    board = board_of([host("a", 8000), host("b", 8000)], {"a": vms("big", cpu=6000)})
    fleet, who = board.world.fleet, board.candidates["big"]
    assert draft(board, ONE).blockers == ()
    fleet.apply(
        "big:migrate_in", fleet.row("b"), fleet.vector(who.request.demand),
        board.world.terms_number(who.request), 0,
    )  # fmt: skip
    # Each of its claims keeps the other from a host while it moves.
    found = draft(board, ONE)
    assert (found.moves, found.blockers) == ((), ())


def test_a_vm_that_may_not_be_moved_now_is_named_all_the_same() -> None:
    board = board_of([host("a", 8000), host("b", 4000)], {"a": vms("big", cpu=6000)})
    board.candidates = {}
    [found] = draft(board, ONE).blockers
    assert (found.vm, found.why) == ("big", "if a is lost, no other host fits")
