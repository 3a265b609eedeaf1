"""Drafts: goals, guards and waves on small fleets that a reader can follow."""

from dataclasses import replace

import pytest

from roost.fleet.layout import Int64Array
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.model.outlook import Expected
from roost.placement.engine import NO_FIT
from roost.placement.question import Question
from roost.placement.verdicts import Verdicts, judge_hosts
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Limits
from roost.planner.drafting import Draft, Wish, draft
from roost.planner.guards import COOL_DOWN_S, Guard, resting
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
