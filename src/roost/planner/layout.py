"""A problem laid out for the kernels, and the cost of a placement from scratch."""

import numpy as np

from roost.fleet.layout import Int32Array, Int64Array
from roost.planner.kernels.tables import COST, MOST_AWAY, RANDOM, Facts, Floats, State
from roost.planner.problem import (
    APART,
    EVEN,
    LEVEL,
    LOAD_ONE,
    RULE,
    TOGETHER,
    WEIGHT,
    WIDE,
    Problem,
)

#: Domains per member up to which a group counts its members by domain.
_DENSE = 64
#: A capacity that is no bound.
_ENDLESS = 1 << 55


def facts_of(problem: Problem) -> Facts:
    """Lay a problem out for the kernels."""
    groups = len(problem.groups)
    sizes = np.diff(problem.member_start)
    domains = problem.domain.max(axis=0, initial=-1).astype(np.int64) + 1
    width = domains[problem.groups[:, LEVEL]] if groups else np.zeros(0, np.int64)
    rule = problem.groups[:, RULE]
    dense = (rule == WIDE) | (width <= _DENSE * sizes)
    widths = np.where(dense, width, 0)
    count_at = np.where(dense, np.cumsum(widths) - widths, -1).astype(np.int64)
    group_of_member = np.repeat(np.arange(groups, dtype=np.int32), sizes)
    group_start, order = _rows(problem.members, problem.vms)
    need_start, need_order = _rows(problem.needs[:, 0], groups)
    serve_start, serve_order = _rows(problem.needs[:, 1], groups)
    with np.errstate(divide="ignore"):
        rate = np.where(problem.even_unit > 0, LOAD_ONE / problem.even_unit, 0.0)
    facts = Facts(
        start=problem.start,
        demand=problem.demand,
        capacity=problem.capacity,
        transient=problem.transient,
        safety=problem.safety,
        load_weight=problem.load_weight,
        pairs=problem.pairs,
        even_weight=problem.even_weight,
        even_rate=rate,
        even_target=problem.even_target,
        slot=problem.slot,
        slot_weight=problem.slot_weight,
        used_cost=problem.used_cost,
        move_cost=problem.move_cost,
        way_cost=problem.way_cost,
        away_weight=np.array([problem.away_weight], np.int64),
        away_group=problem.away_group,
        vm_class=problem.vm_class,
        allowed=problem.allowed,
        domain=problem.domain,
        domains=domains,
        groups=problem.groups,
        member_start=problem.member_start,
        members=problem.members,
        group_start=group_start,
        group_of=group_of_member[order],
        count_at=count_at,
        need_start=need_start,
        need=problem.needs[need_order, 1],
        serve_start=serve_start,
        serve=problem.needs[serve_order, 0],
        movable=np.flatnonzero(~problem.fixed).astype(np.int32),
    )
    # One layout for all problems: another would be another kernel to compile.
    return Facts._make(np.ascontiguousarray(array) for array in facts)


def sizes_of(problem: Problem) -> Int64Array:
    """Return the size of each VM: its shares of all hosts, added up."""
    counted = problem.demand * (problem.capacity.max(axis=0, initial=0) < _ENDLESS)
    whole = np.maximum(problem.capacity.sum(axis=0, dtype=np.float64), 1.0)
    sizes: Int64Array = (counted / whole * 2**40).sum(axis=1).astype(np.int64)
    return sizes


def _rows(keys: Int32Array, count: int) -> tuple[Int64Array, Int64Array]:
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))]).astype(np.int64)
    return starts, order


def state_of(problem: Problem, facts: Facts, place: Int32Array, seed: int) -> State:
    """Work out the sums of a placement."""
    vms, hosts, groups = problem.vms, problem.hosts, len(problem.groups)
    used = problem.base.copy()
    np.add.at(used, place, problem.demand)
    kept = used.copy()
    moved = place != problem.start
    np.add.at(kept, problem.start[moved], problem.demand[moved])
    first = np.full(hosts, -1, np.int32)
    after = np.full(vms, -1, np.int32)
    before = np.full(vms, -1, np.int32)
    for vm, host in enumerate(place.tolist()):
        head = first[host]
        after[vm] = head
        if head >= 0:
            before[head] = vm
        first[host] = vm
    dense = facts.count_at >= 0
    widths = facts.domains[facts.groups[:, LEVEL]] if groups else np.zeros(0, np.int64)
    counts = np.zeros(int(widths[dense].sum()), np.int32)
    group_of = np.repeat(np.arange(groups), np.diff(facts.member_start))
    if groups:
        at = facts.domain[place[facts.members], facts.groups[group_of, LEVEL]]
        known = dense[group_of] & (at >= 0)
        np.add.at(counts, facts.count_at[group_of[known]] + at[known], 1)
    spread = np.zeros(groups, np.int64)
    for group in np.flatnonzero(dense).tolist():
        begin = facts.count_at[group]
        spread[group] = np.count_nonzero(counts[begin : begin + widths[group]])
    away = np.zeros(max(groups, 1), np.int64)
    counted = moved & (problem.away_group >= 0) & (problem.away_weight > 0)
    np.add.at(away, problem.away_group[counted], 1)
    sums = np.zeros(4, np.int64)
    sums[COST] = cost_of(problem, place)
    sums[MOST_AWAY] = away.max(initial=0)
    sums[RANDOM] = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019 & (1 << 60) - 1) | 1
    return State(
        place=place.astype(np.int32).copy(),
        used=used,
        kept=kept,
        vm_count=np.bincount(place, minlength=hosts).astype(np.int64),
        first=first,
        after=after,
        before=before,
        counts=counts,
        spread=spread,
        away=away,
        away_how_many=np.bincount(away, minlength=vms + 2).astype(np.int64),
        sums=sums,
    )


def cost_of(problem: Problem, place: Int32Array) -> int:
    """Return the cost of a placement, from scratch."""
    used = problem.base.copy()
    np.add.at(used, place, problem.demand)
    cost = int((np.maximum(used - problem.safety, 0) * problem.load_weight).sum())
    free = problem.capacity - used
    for one, other, target, weight in problem.pairs.tolist():
        cost += weight * int(np.maximum(target * free[:, one] - free[:, other], 0).sum())
    if problem.even_weight.any():
        cost += _unevenness(problem, used)
    for resource in np.flatnonzero(problem.slot).tolist():
        beside = free[:, resource] % problem.slot[resource]
        cost += int(problem.slot_weight[resource]) * int(beside.sum())
    moved = place != problem.start
    cost += int(problem.used_cost[np.unique(place)].sum()) + int(problem.move_cost[moved].sum())
    if len(problem.way_cost):
        cost += int(problem.way_cost[problem.start, place].sum())
    counted = moved & (problem.away_group >= 0)
    if problem.away_weight and counted.any():
        cost += problem.away_weight * int(np.bincount(problem.away_group[counted]).max())
    return cost + int((broken(problem, place) * problem.groups[:, WEIGHT]).sum())


def _unevenness(problem: Problem, used: Int64Array) -> int:
    with np.errstate(divide="ignore"):
        rate: Floats = np.where(problem.even_unit > 0, LOAD_ONE / problem.even_unit, 0.0)
    distance = np.minimum((used * rate).astype(np.int64), 4 * LOAD_ONE) - problem.even_target
    return int(((problem.even_weight * (distance * distance)) >> 20).sum())


def broken(problem: Problem, place: Int32Array) -> Int64Array:
    """Return how often each group's rule is violated."""
    out = np.zeros(len(problem.groups), np.int64)
    for group, (rule, level, bound, _) in enumerate(problem.groups.tolist()):
        members = problem.members[problem.member_start[group] : problem.member_start[group + 1]]
        at = problem.domain[place[members], level]
        counts = np.bincount(at[at >= 0], minlength=int(problem.domain[:, level].max()) + 1)
        if rule == APART:
            out[group] = np.maximum(counts - bound, 0).sum()
        elif rule == WIDE:
            out[group] = max(0, bound - int(np.count_nonzero(counts)))
        elif rule == EVEN:
            out[group] = max(0, int(counts.max() - counts.min()) - bound)
        elif rule == TOGETHER:
            out[group] = max(0, int(np.count_nonzero(counts)) - 1)
    return out
