"""Random problems of the planner, whose start breaks no hard rule."""

import numpy as np

from roost.planner.problem import APART, COUNTED, EVEN, TOGETHER, WIDE, Problem, simple
from tests.naive import planner as naive


def random_problem(seed: int, vms: int = 14, hosts: int = 5, fill: float = 0.7) -> Problem:
    """Draw a problem with every kind of cost and rule; rules that the start breaks are left out."""
    rng = np.random.default_rng(seed)
    resources = int(rng.integers(1, 4))
    start = rng.integers(0, hosts, vms).astype(np.int32)
    demand = rng.integers(0, 20, (vms, resources))
    used = np.zeros((hosts, resources), np.int64)
    np.add.at(used, start, demand)
    base = rng.integers(0, 5, (hosts, resources))
    capacity = used + base + rng.integers(0, 2 + int(40 * (1 - fill)), (hosts, resources))
    domain = np.stack([np.arange(hosts), np.arange(hosts) % 3, np.arange(hosts) % 2], axis=1)
    pairs = [(0, resources - 1, int(rng.integers(1, 4)), int(rng.integers(0, 5)))]
    fields = {
        "base": base,
        "fixed": rng.random(vms) < 0.1,
        "transient": rng.random(resources) < 0.4,
        "safety": capacity - rng.integers(0, 20, (hosts, resources)),
        "load_weight": rng.integers(0, 4, resources),
        "pairs": np.array(pairs, np.int64),
        "even_weight": rng.integers(0, 3, resources) * 100,
        "even_unit": np.maximum(capacity, 1),
        "slot": rng.integers(0, 3, resources) * 8,
        "slot_weight": rng.integers(0, 4, resources),
        "used_cost": rng.integers(0, 50, hosts),
        "move_cost": rng.integers(0, 10, vms),
        "way_cost": rng.integers(0, 5, (hosts, hosts)) * (1 - np.eye(hosts, dtype=np.int64)),
        "away_weight": int(rng.integers(0, 4)),
        "vm_class": rng.integers(0, 2, vms).astype(np.int32),
        "allowed": rng.random((2, hosts)) < 0.8,
        "domain": domain.astype(np.int32),
    }
    groups, members = _groups(rng, vms)
    fields["away_group"] = rng.integers(-1, len(groups), vms).astype(np.int32)
    problem = _with(start, demand, capacity, fields, groups, members, [])
    kept = [
        g for g in range(len(groups)) if groups[g][3] or not naive.violations(problem, start, g)
    ]
    groups, members = [groups[g] for g in kept], [members[g] for g in kept]
    fields["away_group"] = np.minimum(fields["away_group"], len(groups) - 1).astype(np.int32)
    counted = [g for g in range(len(groups)) if groups[g][0] == COUNTED]
    needs = [(a, b) for a in counted for b in counted if a != b]
    problem = _with(start, demand, capacity, fields, groups, members, needs)
    unmet = naive.unmet(problem, start)
    needs = [need for need in needs if need not in unmet]
    return _with(start, demand, capacity, fields, groups, members, needs)


def _groups(
    rng: np.random.Generator, vms: int
) -> tuple[list[tuple[int, int, int, int]], list[list[int]]]:
    groups, members = [], []
    for rule in (APART, APART, WIDE, EVEN, TOGETHER, COUNTED, COUNTED, APART, WIDE):
        soft = rule != COUNTED and rng.random() < 0.4
        level = 2 if rule == COUNTED else int(rng.integers(0, 3))
        groups.append((rule, level, int(rng.integers(1, 4)), int(soft) * int(rng.integers(1, 30))))
        members.append(sorted(rng.choice(vms, int(rng.integers(1, 6)), replace=False).tolist()))
    # As services do, groups that need each other share no member.
    one, other = (g for g in range(len(groups)) if groups[g][0] == COUNTED)
    members[other] = [vm for vm in members[other] if vm not in members[one]]
    return groups, members


def _with(start, demand, capacity, fields, groups, members, needs) -> Problem:  # type: ignore[no-untyped-def]
    return simple(
        start,
        demand,
        capacity,
        **fields,
        groups=np.array(groups, np.int64).reshape(-1, 4),
        member_start=np.cumsum([0, *(len(each) for each in members)]).astype(np.int64),
        members=np.array([vm for each in members for vm in each], np.int32),
        needs=np.array(needs, np.int32).reshape(-1, 2),
    )
