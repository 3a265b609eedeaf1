"""Waves are safe after every prefix and whatever fails; broken orders are caught."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from roost.planner.problem import APART, Problem, Step, simple
from roost.planner.search import search
from roost.planner.waves import Limits, Move, Ordered, order
from tests.naive import planner as naive
from tests.property.problems import random_problem

SEEDS = range(25)


def over_while_running(problem: Problem, ordered: Ordered, fails: set[int]) -> list[str]:
    """Carry waves out as agents would, some moves failing; say which hosts were ever over.

    A VM on its way takes room at both ends. One whose `waits_for` did not come does not start.
    """
    place, undone, found = problem.start.copy(), set[int](), list[str]()
    apart = [
        g for g in range(len(problem.groups)) if (problem.groups[g, [0, 3]] == (APART, 0)).all()
    ]
    for wave in ordered.waves:
        under_way = [m for m in wave if not undone & set(m.waits_for) and place[m.vm] == m.source]
        undone |= {m.number for m in wave if m not in under_way}
        for host in range(problem.hosts):
            arriving = [m.vm for m in under_way if m.target == host]
            comes = problem.demand[arriving].sum(axis=0)
            used = np.array([naive.used_on(problem, place, host, r) for r in range(len(comes))])
            if np.any((comes > 0) & (used + comes > problem.capacity[host])):
                found.append(f"host {host} is over")
        for group in apart:
            members = problem.members[problem.member_start[group] : problem.member_start[group + 1]]
            level = problem.groups[group, 1]
            at = problem.domain[place[members], level].tolist()
            for move in under_way:
                less, more = problem.domain[[move.source, move.target], level].tolist()
                at += [more] if move.vm in members and less != more else []
            if any(at.count(d) > problem.groups[group, 2] for d in at):
                found.append(f"group {group} is too close")
        for move in under_way:
            if move.number in fails:
                undone.add(move.number)
            else:
                place[move.vm] = move.target
        if not any(problem.transient) and not naive.legal(problem, place) and not fails:
            found.append("a prefix is not legal")
    return found


def plan_of(seed: int) -> tuple[Problem, tuple[Step, ...]]:
    problem = random_problem(seed, vms=16, hosts=5, fill=0.5)
    return problem, search(problem, 20_000, seed).moves


@pytest.mark.parametrize("seed", SEEDS)
def test_every_prefix_is_safe_whatever_fails(seed: int) -> None:
    problem, moves = plan_of(seed)
    ordered = order(problem, moves, Limits(per_host=2))
    rng = np.random.default_rng(seed)
    numbers = [move.number for move in ordered.moves]
    for share in (0.0, 0.2, 0.5):
        fails = {number for number in numbers if rng.random() < share}
        assert over_while_running(problem, ordered, fails) == []
    going = {step[0] for step in ordered.impossible}
    ends = {m.vm: m.target for m in ordered.moves}
    assert all(ends.get(vm, -1) == host for vm, host in moves if vm not in going)


def tight(seed: int) -> tuple[Problem, tuple[Step, ...]]:
    """Full hosts of equal VMs that all want the next host's place, and one with some room."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(3, 6))
    start = np.repeat(np.arange(hosts), 2).astype(np.int32)
    demand = np.full((len(start), 1), 5, np.int64)
    capacity = np.full((hosts + 1, 1), 10, np.int64)
    problem = simple(start, demand, capacity)
    moves = tuple((vm, int((start[vm] + 1) % hosts)) for vm in range(len(start)))
    return problem, moves


@pytest.mark.parametrize("seed", range(5))
def test_a_circle_goes_through_a_third_host(seed: int) -> None:
    problem, moves = tight(seed)
    ordered = order(problem, moves)
    assert ordered.impossible == ()
    assert any(move.detour for move in ordered.moves)
    assert over_while_running(problem, ordered, set()) == []
    ends = {m.vm: m.target for m in ordered.moves}
    assert [ends[vm] for vm, _ in moves] == [host for _, host in moves]


def test_a_circle_without_spare_room_is_said_to_be_impossible() -> None:
    problem = simple(np.array([0, 1], np.int32), np.array([[5], [5]]), np.array([[5], [5]]))
    ordered = order(problem, [(0, 1), (1, 0)])
    assert ordered.waves == ()
    assert ordered.impossible == ((0, 1), (1, 0))


def test_a_move_names_the_one_whose_room_it_takes() -> None:
    problem = simple(np.array([0, 1], np.int32), np.array([[5], [5]]), np.array([[5], [5], [5]]))
    first, second = order(problem, [(0, 1), (1, 2)]).moves
    assert (first.vm, second.vm) == (1, 0)
    assert second.waits_for == (first.number,)


def test_a_wave_keeps_to_its_limits() -> None:
    start = np.zeros(6, np.int32)
    problem = simple(start, np.ones((6, 1), np.int64), np.full((3, 1), 10, np.int64))
    moves = [(vm, 1 + vm % 2) for vm in range(6)]
    ordered = order(problem, moves, Limits(per_host=2))
    assert [len(wave) for wave in ordered.waves] == [2, 2, 2]
    assert [len(wave) for wave in order(problem, moves, Limits(6, 1)).waves] == [1] * 6


def all_at_once(_: Problem, moves: Sequence[Step], start: Sequence[int]) -> Ordered:
    wave = tuple(Move(n, vm, int(start[vm]), host) for n, (vm, host) in enumerate(moves))
    return Ordered((wave,))


def forgets_who_waits(problem: Problem, moves: Sequence[Step], _: Sequence[int]) -> Ordered:
    ordered = order(problem, moves)
    waves = [[Move(m.number, m.vm, m.source, m.target) for m in wave] for wave in ordered.waves]
    return Ordered(tuple(tuple(wave) for wave in waves))


@pytest.mark.parametrize("broken", [all_at_once, forgets_who_waits])
def test_a_broken_order_is_caught(broken: Callable[..., Ordered]) -> None:
    problem = simple(
        np.array([0, 0, 1, 1], np.int32),
        np.full((4, 1), 5, np.int64),
        np.full((3, 1), 10, np.int64),
    )
    moves = [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert over_while_running(problem, order(problem, moves), {0, 1}) == []
    assert over_while_running(problem, broken(problem, moves, problem.start.tolist()), {0, 1}) != []
