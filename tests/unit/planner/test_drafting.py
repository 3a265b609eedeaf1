"""Drafts: goals, guards and waves on small fleets that a reader can follow."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.fleet.layout import Int64Array
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.model.outlook import Expected
from roost.placement.engine import NO_FIT
from roost.placement.question import Question
from roost.placement.verdicts import Verdicts, judge_hosts
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Limits
from roost.planner.cost import Load, move_cost
from roost.planner.drafting import Draft, Wish, draft, picture
from roost.planner.guards import COOL_DOWN_S, Exchange, Guard, Proposal, resting
from roost.planner.rehearsal import Drafted, in_waves
from tests.builders import host, request
from tests.unit.planner.boards import board_of, where


def vms(*names: str, cpu: int = 1000, **given: object) -> list:  # type: ignore[type-arg]
    return [request(name, cpu, **given) for name in names]


def moves(found: Draft, board: Board) -> list[tuple[int, str, str]]:
    return [(each.wave, each.who.name, board.name(each.target)) for each in found.moves]


def test_balance_evens_loads_and_finds_nothing_on_its_own_result() -> None:
    board = board_of([host("a"), host("b")], {"a": vms("v1", "v2", "v3", "v4")})
    found = draft(board, Wish("balance"))
    assert len(found.moves) == 2
    assert found.after.spread < 0.01 < found.before.spread
    board.moved = {}
    assert draft(board, Wish("balance")).moves == ()


def test_a_fleet_that_is_even_enough_is_left_alone() -> None:
    board = board_of([host("a"), host("b")], {"a": vms("v1", "v2"), "b": vms("v3")})
    assert draft(board, Wish("balance")).moves == ()


def test_consolidate_empties_the_emptiest_hosts_and_begins_none_that_it_cannot() -> None:
    pinned = request("stays", 1000, pinned=("c",))
    board = board_of(
        [host("a"), host("b"), host("c")],
        {"a": vms("v1", "v2"), "b": vms("v3"), "c": [pinned]},
    )
    found = draft(board, Wish("consolidate"))
    assert moves(found, board) == [(1, "v3", "a")]  # c has one that stays, a has taken one
    assert (found.before.in_use, found.after.in_use) == (3, 2)


@pytest.mark.parametrize("most", range(1, 8))
def test_consolidate_empties_a_host_or_leaves_it_alone_however_few_moves_it_has(most: int) -> None:
    placed = {"a": vms("v1", "v2", "v3"), "b": vms(*(f"w{n}" for n in range(4)))}
    board = board_of([host("a", 12_000), host("b", 12_000)], placed, Limits(most=most))
    found = draft(board, Wish("consolidate"))
    gone = [each.who.name for each in found.moves]
    assert sorted(gone) == (["v1", "v2", "v3"] if most >= 3 else [])
    assert found.after.in_use == (1 if gone else 2)


def test_a_guard_that_keeps_one_vm_keeps_its_host_from_being_emptied() -> None:
    soon = replace(request("v1", 1000), expected=Expected(ends_s=1001))
    board = board_of(
        [host("a", 8000), host("b", 8000)], {"a": [*vms("v0"), soon], "b": vms("w1", "w2", "w3")}
    )
    board.now_s = 1000
    found = draft(board, Wish("consolidate"))
    assert [each.guard for each in found.vetoes] == [Guard.LIFE]
    assert {each.source for each in found.moves} <= {board.world.fleet.row("b")}


def test_consolidate_keeps_hosts_to_spare() -> None:
    placed = {name: vms(f"{name}1", cpu=2000) for name in "abcd"}
    hosts = [host(name, 6000) for name in "abcd"]
    in_use = {}
    for spare in (0, 1, 2):
        found = draft(board_of(hosts, placed), Wish("consolidate", spare=spare))
        in_use[spare] = found.after.in_use
    # 8 cores on hosts of 6, filled to 85%: two would do, three can lose one, four can lose two.
    assert in_use == {0: 2, 1: 3, 2: 4}


def test_a_drain_names_what_cannot_leave() -> None:
    pinned = request("vm-7", 1000, pinned=("a",))
    board = board_of(
        [host("a"), host("b")],
        {"a": [*vms("v1", "v2"), pinned]},
        v2={"quiet": "do not disturb: always"},
    )
    found = draft(board, Wish("drain", hosts=("a",)))
    assert moves(found, board) == [(1, "v1", "b")]
    assert {each.name: each.guard for each in found.blockers} == {
        "vm-7": Guard.AT_REST,
        "v2": Guard.DO_NOT_DISTURB,
    }
    assert "not pinned on 1 hosts" in next(e.why for e in found.blockers if e.name == "vm-7")


@pytest.mark.parametrize(
    "wish",
    [Wish("drain", hosts=("a",)), Wish("move", vms=("v1", "v2", "v3"))],
    ids=["drain", "move"],
)
def test_vms_that_are_too_many_for_one_plan_are_named_as_staying(wish: Wish) -> None:
    board = board_of([host("a"), host("b")], {"a": vms("v1", "v2", "v3")}, Limits(most=1))
    found = draft(board, wish)
    assert [each.who.name for each in found.moves] == ["v1"]
    assert [(each.name, each.guard) for each in found.blockers] == [
        ("v2", Guard.LIMIT), ("v3", Guard.LIMIT),
    ]  # fmt: skip
    assert found.vetoes == ()


def test_repair_moves_the_one_that_breaks_a_rule() -> None:
    apart = GroupSpec("web", GroupRule.ANTI_AFFINITY, Scope.HOST)
    board = board_of([host("a"), host("b")], {"a": vms("v1", "v2", groups=(apart,))})
    found = draft(board, Wish("repair"))
    assert len(found.moves) == 1
    assert found.moves[0].why == "anti affinity on a"
    assert sorted(where(board).values()) == ["a", "b"]


def test_defragment_moves_the_fewest_bytes_for_a_large_vm() -> None:
    board = board_of([host("a", 4000), host("b", 4000)], {"a": vms("v1"), "b": vms("v2", "v3")})
    large = request("large", 4000)
    found = draft(board, Wish("defragment", request=large))
    assert moves(found, board) == [(1, "v1", "b")]
    assert board.world.find(large) is not None


def test_defragment_moves_no_vm_that_need_not_leave() -> None:
    # Small ones leave first; when the large one has left too, they need not have.
    full = [*vms("s1", "s2", "s3"), *vms("z", cpu=4000)]
    board = board_of([host("a", 7000), host("b", 8000, 6 * GIB)], {"a": full, "b": vms("w")})
    large = request("large", 4000, 6 * GIB)
    found = draft(board, Wish("defragment", request=large))
    assert moves(found, board) == [(1, "z", "b")]
    assert board.world.find(large) is not None


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_move_of_a_defragmentation_is_needed_and_all_together_make_room(
    data: st.DataObject,
) -> None:
    sizes = st.lists(st.integers(1, 5), min_size=3, max_size=6)
    placed, memory = {}, {}
    for name in "abc":
        own = data.draw(sizes, label=name)
        placed[name] = [request(f"{name}{n}", 1000 * cpu) for n, cpu in enumerate(own)]
        memory |= {f"{name}{n}": cpu * GIB for n, cpu in enumerate(own)}
    spare = {name: data.draw(st.integers(3, 8), label="free") for name in "abc"}
    hosts = [
        host(name, sum(each.demand.cpu_milli for each in placed[name]) + 1000 * spare[name])
        for name in "abc"
    ]
    large = request("large", 1000 * data.draw(st.integers(9, 14), label="large"))
    board = board_of(hosts, placed, **{vm: {"load": Load(memory[vm])} for vm in memory})
    found = draft(board, Wish("defragment", request=large))
    made = [(each.who, each.target) for each in found.moves]
    assert (board.world.find(large) is None) == bool(found.blockers)
    for left_out in range(len(made)):
        board = board_of(hosts, placed)
        for who, to in made[:left_out] + made[left_out + 1 :]:
            if not board.move(who, to):
                break
        else:
            assert board.world.find(large) is None, f"{made[left_out][0].name} need not move"


def test_defragment_counts_the_moves_that_are_needed_alone() -> None:
    small = vms(*(f"s{n:02}" for n in range(39)), cpu=100)
    hosts = [host("a", 7900, 128 * GIB), host("b", 9000, 42 * GIB)]
    board = board_of(hosts, {"a": [*small, *vms("z", cpu=4000)], "b": vms("w")})
    found = draft(board, Wish("defragment", request=request("large", 4000, 42 * GIB)))
    assert moves(found, board) == [(1, "z", "b")]


def test_a_defragmentation_moves_vms_that_rest_unless_it_is_told_not_to() -> None:
    for urgent, names in ((None, ["v1"]), (False, [])):
        board = board_of(
            [host("a", 4000), host("b", 4000)],
            {"a": vms("v1"), "b": vms("v2", "v3")},
            v1={"resting": "it rests"}, v2={"resting": "it rests"}, v3={"resting": "it rests"},
        )  # fmt: skip
        wish = Wish("defragment", request=request("large", 4000), urgent=urgent)
        found = draft(board, wish)
        assert [each.who.name for each in found.moves] == names
        told = [(each.guard, each.why) for each in found.blockers]
        assert told == [] if names else [(
            Guard.AT_REST,
            "no single host has room for 'large', whatever can leave it; "
            "'v1' and 2 more may not: it rests",
        )]  # fmt: skip


def test_a_defragmentation_that_needs_more_moves_than_it_has_says_how_many() -> None:
    board = board_of(
        [host("a", 4000), host("b", 4000)],
        {"a": vms("v1", "v2"), "b": vms("w1", "w2")},
        Limits(most=1),
    )
    found = draft(board, Wish("defragment", request=request("large", 4000)))
    assert found.moves == ()
    assert [(each.guard, each.why) for each in found.blockers] == [
        (Guard.LIMIT, "no single host has room for 'large' after 1 moves or fewer: 2 would do")
    ]


def test_headroom_takes_load_off_hosts_that_run_short_alone() -> None:
    full = vms(*(f"v{n}" for n in range(9)))
    board = board_of([host("a", 10_000), host("b", 10_000)], {"a": full, "b": vms("w1", "w2")})
    found = draft(board, Wish("headroom"))
    assert len(found.moves) == 1
    assert found.after.fullest <= 0.85


def test_waves_keep_the_limits_of_hosts_and_fleet() -> None:
    hosts = [host(name, 8000) for name in "abcd"]
    full = {"a": vms("v1", "v2", "v3", "v4"), "b": vms("w1", "w2", "w3", "w4")}
    for limits in (Limits(per_host=1), Limits(per_host=4, at_once=1), Limits(per_host=2)):
        board = board_of(hosts, full, limits)
        found = draft(board, Wish("drain", hosts=("a", "b")))
        for wave in range(1, found.waves + 1):
            own = [each for each in found.moves if each.wave == wave]
            busy = [row for each in own for row in (each.source, each.target)]
            assert len(own) <= limits.at_once
            assert all(busy.count(row) <= limits.per_host for row in busy)


def test_waves_keep_disruption_budgets() -> None:
    group = GroupSpec("web", GroupRule.SPREAD, Scope.HOST, hard=False)
    board = board_of(
        [host("a", 8000), host("b", 8000)],
        {"a": vms("v1", "v2", "v3", groups=(group,))},
        Limits(per_host=8),
        {"web": 1},
        **{name: {"budgets": ("web",)} for name in ("v1", "v2", "v3")},
    )
    found = draft(board, Wish("drain", hosts=("a",)))
    assert sorted(each.wave for each in found.moves) == [1, 2, 3]


def test_a_budget_of_none_blocks_a_drain() -> None:
    board = board_of(
        [host("a"), host("b")], {"a": vms("v1")}, budgets={"web": 0}, v1={"budgets": ("web",)}
    )
    found = draft(board, Wish("drain", hosts=("a",)))
    assert [each.guard for each in found.blockers] == [Guard.BUDGET]


def test_a_vm_that_ends_sooner_than_its_move_is_vetoed() -> None:
    soon = replace(request("v1", 3000), expected=Expected(ends_s=1001))
    board = board_of([host("a"), host("b")], {"a": [soon, *vms("v2")]}, v2={"resting": "it rests"})
    board.now_s = 1000
    found = draft(board, Wish("balance"))
    assert found.moves == ()
    assert {each.guard for each in found.vetoes} == {Guard.LIFE}


def test_rest_after_a_move_doubles_with_every_move_of_a_day() -> None:
    now = 1_000_000
    assert resting([], now) == ""
    assert "once" in resting([now - COOL_DOWN_S + 1], now)
    assert resting([now - COOL_DOWN_S], now) == ""
    assert "2 times" in resting([now - 5000, now - COOL_DOWN_S], now)
    assert resting([now - 5000, now - 2 * COOL_DOWN_S], now) == ""


def safe_after_every_prefix(before: WhatIf, found: Draft) -> bool:
    """Say whether every move fits, with both hosts charged, when those before it were made."""
    fleet = before.fleet
    for each in found.moves:
        ask = each.who.request
        number = fleet.vms.numbers[ask.key]
        mark = fleet.mark()
        fleet.remove(number)
        fits = before.scores(ask)[each.target] != NO_FIT
        fleet.undo(mark)
        if not fits:
            return False
        target = replace(
            ask, constraints=replace(ask.constraints, pinned=(fleet.hosts.names[each.target],))
        )
        fleet.remove(number)
        placement = before.find(target)
        assert placement is not None
        before.commit(ask, placement)
    return True


def test_a_plan_is_safe_after_every_prefix_and_the_law_sees_one_that_is_not() -> None:
    hosts = [host("a", 4000), host("b", 4000), host("c", 4000)]
    placed = {"a": vms("v1", "v2", cpu=2000), "b": vms("w1", "w2", cpu=1000)}
    board = board_of(hosts, placed)
    before = WhatIf.like(board.world)
    found = draft(board, Wish("drain", hosts=("a",)))
    assert found.blockers == ()
    assert safe_after_every_prefix(WhatIf.like(before), found)
    broken = replace(found, moves=tuple(replace(each, target=1) for each in found.moves))
    assert not safe_after_every_prefix(WhatIf.like(before), broken)


def test_repair_judges_a_vm_on_its_own_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def counting(question: Question, rows: Int64Array | None = None) -> Verdicts:
        found = judge_hosts(question) if rows is None else judge_hosts(question, rows)
        judged.append(len(found.rows))
        return found

    monkeypatch.setattr("roost.planner.board.judge_hosts", counting)
    apart = GroupSpec("web", GroupRule.ANTI_AFFINITY, Scope.HOST)
    placed = {f"h{n}": vms(f"p{n}", f"q{n}", f"r{n}") for n in range(20)}
    placed["h0"] += vms("v1", "v2", groups=(apart,))
    found = draft(board_of([host(f"h{n}") for n in range(20)], placed), Wish("repair"))
    assert len(found.moves) == 1
    # Twenty hosts with equal plain VMs, each judged once, and the two of the group.
    assert sum(judged) <= 20 + 2


def test_two_vms_change_places_through_a_third_host() -> None:
    # Neither host has room for the other's VM beside its own: one has to wait elsewhere.
    board = board_of(
        [host("a", 8000), host("b", 8000), host("c", 2000)],
        {"a": vms("big", cpu=4000) + vms("big-2", cpu=4000), "b": vms("s1", "s2", "s3", cpu=2000)},
    )
    before = WhatIf.like(board.world)
    both = Exchange((proposed(board, "big", "b"), proposed(board, "s1", "a")))
    made = [moved(board, each) for each in both.moves]
    assert board.move_all([(each.who, each.target) for each in made])
    found, left = in_waves(WhatIf.like(before), board, made)
    assert left == ()
    assert [(e.wave, e.who.name, board.name(e.source), board.name(e.target)) for e in found] == [
        (1, "s1", "b", "c"),
        (2, "big", "a", "b"),
        (3, "s1", "c", "a"),
    ]
    assert found[0].why == "makes way on b, and goes on to a"
    plan = Draft("move", tuple(found), (), (), 0, picture(board), picture(board))
    assert safe_after_every_prefix(WhatIf.like(before), plan)


def test_a_circle_that_no_third_host_can_break_is_said_to_be_impossible() -> None:
    board = board_of(
        [host("a", 4000), host("b", 4000), host("c", 1000)],
        {"a": vms("v1", cpu=4000), "b": vms("v2", cpu=4000)},
    )
    before = WhatIf.like(board.world)
    made = [moved(board, proposed(board, "v1", "b")), moved(board, proposed(board, "v2", "a"))]
    assert board.move_all([(each.who, each.target) for each in made])
    found, left = in_waves(before, board, made)
    assert found == []
    assert {each.name for each in left} == {"v1", "v2"}
    assert "no third host has room" in left[0].why


def test_balance_changes_places_where_no_single_move_helps() -> None:
    board = board_of(
        [host("a", 10_000), host("b", 10_000)],
        {"a": vms("x", cpu=6000) + vms("s", cpu=3000), "b": vms("y", cpu=4000)},
        s={"stays": "pinned"},
    )
    found = draft(board, Wish("balance"))
    assert moves(found, board) == [(1, "x", "b"), (2, "y", "a")]
    assert found.after.spread < 0.06 < 0.2 < found.before.spread
    board.moved = {}
    assert draft(board, Wish("balance")).moves == ()


@pytest.mark.parametrize(("most", "made"), [(1, 0), (2, 2)])
def test_an_exchange_is_two_of_the_moves_that_a_plan_may_have(most: int, made: int) -> None:
    board = board_of(
        [host("a", 10_000), host("b", 10_000)],
        {"a": vms("x", cpu=6000) + vms("s", cpu=3000), "b": vms("y", cpu=4000)},
        Limits(most=most),
        s={"stays": "pinned"},
    )
    found = draft(board, Wish("balance"))
    assert len(found.moves) == made
    assert {each.guard for each in found.vetoes} == ({Guard.LIMIT} if most == 1 else set())


def test_vms_that_belong_together_share_waves_that_follow_each_other() -> None:
    group = GroupSpec("app", GroupRule.AFFINITY, Scope.HOST, hard=False)
    board = board_of(
        [host("a", 16_000), host("b", 16_000), host("c", 16_000)],
        {"a": [*vms("m1"), *vms("a1", groups=(group,)), *vms("m2"), *vms("z1", groups=(group,))]},
        Limits(per_host=2),
        a1={"together": "app"},
        z1={"together": "app"},
    )
    found = draft(board, Wish("drain", hosts=("a",)))
    waves = {each.who.name: each.wave for each in found.moves}
    assert waves["a1"] == waves["z1"] != waves["m1"] == waves["m2"]
    told = found.together()
    assert [(each.group, each.vms, each.waves) for each in told] == [
        ("app", ("a1", "z1"), (waves["a1"],))
    ]
    assert told[0].sent_bytes == sum(
        each.cost.sent_bytes for each in found.moves if each.who.together
    )


def test_moves_over_one_link_keep_its_limit_and_share_its_bandwidth() -> None:
    hosts = [host(name, 8000) for name in "abcdef"]
    placed = {"a": vms("v1"), "b": vms("v2"), "c": vms("v3")}
    board = board_of(hosts, placed, Limits(per_host=3, per_link=2))
    board.links = lambda _source, _target: ("uplink",)
    found = draft(board, Wish("drain", hosts=("a", "b", "c")))
    assert sorted(each.wave for each in found.moves) == [1, 1, 2]
    alone, shared = (next(e.cost for e in found.moves if e.wave == wave) for wave in (2, 1))
    assert shared.total_s > 1.5 * alone.total_s


def test_a_plan_that_refuses_what_does_not_converge_names_it_and_moves_the_others() -> None:
    hosts = [host(name, 8000) for name in "ab"]
    hot, calm = Load(GIB, 2e8), Load(GIB, 1e6)
    for then in ("auto_converge", "post_copy", "refuse"):
        limits = Limits(not_converging=then)  # type: ignore[arg-type]
        board = board_of(
            hosts, {"a": vms("hot", "calm", "new")}, limits, hot={"load": hot},
            calm={"load": calm}, new={"load": Load(16 * GIB)},
        )  # fmt: skip
        found = draft(board, Wish("drain", hosts=("a",)))
        told = {each.who.vm: each.cost.then for each in found.moves}
        if then != "refuse":
            assert told == {"hot": then, "calm": "converges", "new": then}
            assert not found.blockers
            continue
        assert told == {"calm": "converges"}
        why = {each.vm: (each.guard, each.why) for each in found.blockers}
        assert {vm: guard for vm, (guard, _) in why.items()} == {
            "hot": Guard.CONVERGENCE, "new": Guard.CONVERGENCE,
        }  # fmt: skip
        assert why["hot"][1].startswith("it writes 190.7 MiB a second, more than the path to b")
        assert "a guess" in why["new"][1]


def test_moves_that_converge_alone_and_not_beside_others_get_waves_of_their_own() -> None:
    hosts, limits = [host(name, 8000) for name in "abcd"], Limits(per_host=3)
    fast, slow = {"load": Load(GIB, 8e7)}, {"load": Load(GIB, 1e6)}  # of 1.25e8 bytes a second
    placed = {"a": vms("f1", "f2", "s1", "s2")}
    for then, waves in (("auto_converge", 2), ("refuse", 4)):
        board = board_of(
            hosts, placed, limits._replace(not_converging=then), f1=fast, f2=fast, s1=slow, s2=slow
        )  # type: ignore[arg-type]
        before = WhatIf.like(board.world)
        found = draft(board, Wish("drain", hosts=("a",)))
        assert len(found.moves) == 4
        assert found.waves == waves == max(each.wave for each in found.moves)
        assert [each.wave for each in found.moves] == sorted(each.wave for each in found.moves)
        assert safe_after_every_prefix(before, found)
        if then == "refuse":
            assert {each.cost.then for each in found.moves} == {"converges"}
            assert found.eta_s > 0


def proposed(board: Board, vm: str, to: str) -> Proposal:
    return Proposal(board.candidates[vm], board.world.fleet.row(to), 1.0, "as asked")


def moved(board: Board, each: Proposal) -> Drafted:
    cost = move_cost(each.who.load)
    return Drafted(each.who, board.row_of(each.who), each.row, each.why, cost)
