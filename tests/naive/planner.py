"""Plain twins of the planner's kernels: the cost of a placement and what rules say of a change.

Written from the table in roost.planner.problem, one host, VM and group after the other.
"""

from roost.fleet.layout import Int32Array
from roost.planner.problem import APART, EVEN, LOAD_ONE, TOGETHER, WIDE, Problem


def used_on(problem: Problem, place: Int32Array, host: int, resource: int) -> int:
    """Return what a host has given away of a resource."""
    used = int(problem.base[host, resource])
    for vm in range(problem.vms):
        if place[vm] == host:
            used += int(problem.demand[vm, resource])
    return used


def kept_on(problem: Problem, place: Int32Array, host: int, resource: int) -> int:
    """Return the same with VMs that left and keep their room."""
    kept = used_on(problem, place, host, resource)
    for vm in range(problem.vms):
        if problem.start[vm] == host and place[vm] != host:
            kept += int(problem.demand[vm, resource])
    return kept


def members_by_domain(problem: Problem, place: Int32Array, group: int) -> dict[int, int]:
    """Return how many members are in each domain of the group's level, empty ones included."""
    level = int(problem.groups[group, 1])
    counts = {int(d): 0 for d in problem.domain[:, level] if d >= 0}
    for at in range(int(problem.member_start[group]), int(problem.member_start[group + 1])):
        domain = int(problem.domain[place[problem.members[at]], level])
        if domain >= 0:
            counts[domain] += 1
    return counts


def violations(problem: Problem, place: Int32Array, group: int) -> int:
    """Return how often a group's rule is violated."""
    rule, _, bound, _ = problem.groups[group].tolist()
    counts = members_by_domain(problem, place, group)
    taken = [count for count in counts.values() if count]
    if rule == APART:
        return sum(max(0, count - bound) for count in taken)
    if rule == WIDE:
        return max(0, bound - len(taken))
    if rule == EVEN:
        return max(0, max(counts.values()) - min(counts.values()) - bound)
    if rule == TOGETHER:
        return max(0, len(taken) - 1)
    return 0


def cost(problem: Problem, place: Int32Array) -> int:
    """Return the cost of a placement."""
    total = 0
    for host in range(problem.hosts):
        used = [used_on(problem, place, host, r) for r in range(problem.demand.shape[1])]
        for r, amount in enumerate(used):
            total += int(problem.load_weight[r]) * max(0, amount - int(problem.safety[host, r]))
            unit = int(problem.even_unit[host, r])
            load = int(amount * (LOAD_ONE / unit)) if unit else 0
            distance = min(load, 4 * LOAD_ONE) - int(problem.even_target[r])
            total += (int(problem.even_weight[r]) * distance * distance) >> 20
        free = [int(problem.capacity[host, r]) - amount for r, amount in enumerate(used)]
        for one, other, target, weight in problem.pairs.tolist():
            total += weight * max(0, target * free[one] - free[other])
        for r, left in enumerate(free):
            if problem.slot[r]:
                total += int(problem.slot_weight[r]) * (left % int(problem.slot[r]))
        if host in place.tolist():
            total += int(problem.used_cost[host])
    away: dict[int, int] = {}
    for vm in range(problem.vms):
        start, at = int(problem.start[vm]), int(place[vm])
        if start != at:
            total += int(problem.move_cost[vm])
            if len(problem.way_cost):
                total += int(problem.way_cost[start, at])
            if problem.away_group[vm] >= 0:
                group = int(problem.away_group[vm])
                away[group] = away.get(group, 0) + 1
    total += problem.away_weight * max(away.values(), default=0)
    for group in range(len(problem.groups)):
        total += int(problem.groups[group, 3]) * violations(problem, place, group)
    return total


def over(problem: Problem, place: Int32Array) -> list[tuple[int, int]]:
    """Return the hosts and resources that are over capacity."""
    return [
        (host, r)
        for host in range(problem.hosts)
        for r in range(problem.demand.shape[1])
        if (kept_on if problem.transient[r] else used_on)(problem, place, host, r)
        > problem.capacity[host, r]
    ]


def unmet(problem: Problem, place: Int32Array) -> list[tuple[int, int]]:
    """Return the needs of groups that are not met."""
    out = []
    for needing, needed in problem.needs.tolist():
        where = {d for d, n in members_by_domain(problem, place, needing).items() if n}
        there = {d for d, n in members_by_domain(problem, place, needed).items() if n}
        if not where <= there:
            out.append((needing, needed))
    return out


def legal(problem: Problem, place: Int32Array) -> bool:
    """Say whether a placement breaks no hard rule."""
    hard = [g for g in range(len(problem.groups)) if problem.groups[g, 3] == 0]
    allowed = all(
        problem.allowed[problem.vm_class[vm], place[vm]] or place[vm] == problem.start[vm]
        for vm in range(problem.vms)
    )
    return (
        allowed
        and not over(problem, place)
        and not unmet(problem, place)
        and not any(violations(problem, place, g) for g in hard)
    )
