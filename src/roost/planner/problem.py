"""The general form of "who should be where", which the search improves and waves put into order.

A goal of the planner, a public benchmark and a test all say what they want in this form; the
search knows no other. Rows are those of the problem, not of the fleet: whoever builds a problem
keeps the two lists that lead back. Every cost is a whole number, and lower is better.

| field | dtype, shape | unit and meaning |
|---|---|---|
| start | int32 [vms] | host that each VM is on |
| fixed | bool [vms] | stays where it is |
| demand | int64 [vms, resources] | amounts of each VM |
| base | int64 [hosts, resources] | taken by what is not in the problem |
| capacity | int64 [hosts, resources] | hard: base and demands together never exceed it |
| transient | bool [resources] | a VM that leaves keeps its room at the source to the end |
| safety | int64 [hosts, resources] | soft: above it each unit costs `load_weight` |
| load_weight | int64 [resources] | cost of a unit above safety |
| pairs | int64 [pairs, 4] | resources a and b, target, weight: see below |
| even_weight | int64 [resources] | weight of squared distances from the common load |
| even_unit | int64 [hosts, resources] | amount that is a load of 1; 0: not counted |
| even_target | int64 [resources] | the common load, in units of 1 / `LOAD_ONE` |
| slot, slot_weight | int64 [resources] | slot size, 0 none; cost of free amounts beside slots |
| used_cost | int64 [hosts] | cost of a host that has a VM of the problem on it |
| move_cost | int64 [vms] | cost of a VM that is not where it started |
| way_cost | int64 [hosts, hosts] or [0, 0] | cost of a move by source and target |
| away_weight | int64 | cost of each VM that moved of the group of which most did |
| away_group | int32 [vms] | group that a move of the VM counts in, -1 none |
| vm_class | int32 [vms] | class of each VM |
| allowed | bool [classes, hosts] | hosts that a class may move to; staying is always allowed |
| domain | int32 [hosts, levels] | fault domain by level: level 0 is the host's row; -1 unknown |
| groups | int64 [groups, 4] | rule, level, bound, weight: see `APART` and the others |
| member_start | int64 [groups + 1] | where the members of each group begin |
| members | int32 [n] | VMs of the groups, one group after the other |
| needs | int32 [n, 2] | groups a and b of one level: domains with a member of a have one of b |

Cost = sum over resources and hosts of load_weight x max(0, used - safety)
     + sum over pairs and hosts of weight x max(0, target x free(a) - free(b))
     + sum over resources and hosts of even_weight x (load - even_target)^2 / LOAD_ONE
     + sum over resources and hosts of slot_weight x (free modulo slot)
     + used_cost of hosts in use + move_cost and way_cost of VMs that moved
     + away_weight x (moved VMs of the group that lost most)
     + weight of every violation of a soft group.

A start that breaks a hard rule stays legal where nothing is moved: no move may make it worse.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roost.base.errors import InvariantBroken
from roost.fleet.layout import BoolArray, Int32Array, Int64Array

#: A load of 1 in `even_target` and in squared distances.
LOAD_ONE = 1 << 20

#: Rules of groups. A rule with weight 0 is hard; another costs its weight for each violation.
APART = 0  # at most `bound` members in one domain of the level; each further one violates
WIDE = 1  # members in at least `bound` domains; each missing one violates
EVEN = 2  # fullest and emptiest domain differ by at most `bound`; each further one violates
TOGETHER = 3  # members in one domain; each further domain violates
COUNTED = 4  # no rule of its own: its members are counted for `needs`

#: Largest `even_weight`: squared distances times it stay within the machine's integers.
MOST_EVEN_WEIGHT = 1 << 18

#: Columns of `Problem.groups`.
RULE, LEVEL, BOUND, WEIGHT = range(4)

#: A move: VM row and host row of the problem.
Step = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """VMs, hosts, rules and costs as arrays; build one with `simple` and replace what differs."""

    start: Int32Array
    fixed: BoolArray
    demand: Int64Array
    base: Int64Array
    capacity: Int64Array
    transient: BoolArray
    safety: Int64Array
    load_weight: Int64Array
    pairs: Int64Array
    even_weight: Int64Array
    even_unit: Int64Array
    even_target: Int64Array
    slot: Int64Array
    slot_weight: Int64Array
    used_cost: Int64Array
    move_cost: Int64Array
    way_cost: Int64Array
    away_weight: int
    away_group: Int32Array
    vm_class: Int32Array
    allowed: BoolArray
    domain: Int32Array
    groups: Int64Array
    member_start: Int64Array
    members: Int32Array
    needs: Int32Array

    @property
    def vms(self) -> int:
        """Return how many VMs there are."""
        return len(self.start)

    @property
    def hosts(self) -> int:
        """Return how many hosts there are."""
        return len(self.capacity)

    def starting_at(self, place: Int32Array) -> "Problem":
        """Return the same problem with the VMs where a plan left them."""
        return replace(self, start=place.astype(np.int32))

    def check(self) -> None:
        """Refuse shapes and numbers that do not fit together: a mistake of whoever built it."""
        vms, hosts, resources = self.vms, self.hosts, self.demand.shape[1]
        groups = len(self.groups)
        shapes: dict[str, tuple[int, ...]] = {
            "fixed": (vms,),
            "demand": (vms, resources),
            "base": (hosts, resources),
            "capacity": (hosts, resources),
            "transient": (resources,),
            "safety": (hosts, resources),
            "load_weight": (resources,),
            "even_weight": (resources,),
            "even_unit": (hosts, resources),
            "even_target": (resources,),
            "slot": (resources,),
            "slot_weight": (resources,),
            "used_cost": (hosts,),
            "move_cost": (vms,),
            "away_group": (vms,),
            "vm_class": (vms,),
            "allowed": (len(self.allowed), hosts),
            "domain": (hosts, self.domain.shape[1]),
            "groups": (groups, 4),
            "member_start": (groups + 1,),
            "needs": (len(self.needs), 2),
            "pairs": (len(self.pairs), 4),
        }
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            if found != shape:
                raise InvariantBroken(f"{name} of a problem is {found}, not {shape}")
        if self.way_cost.shape not in ((0, 0), (hosts, hosts)):
            raise InvariantBroken(f"way_cost of a problem is {self.way_cost.shape}")
        for name, column, bound in (
            ("start", self.start, hosts),
            ("vm_class", self.vm_class, len(self.allowed)),
            ("members", self.members, vms),
            ("needs", self.needs, groups),
        ):
            if column.size and not (column.min() >= 0 and column.max() < bound):
                raise InvariantBroken(f"{name} of a problem is not in 0..{bound - 1}")
        if self.demand.size and self.demand.min() < 0:
            raise InvariantBroken("a demand of a problem is negative")
        if self.even_weight.size and self.even_weight.max() > MOST_EVEN_WEIGHT:
            raise InvariantBroken(f"an even_weight of a problem exceeds {MOST_EVEN_WEIGHT}")
        if not np.array_equal(self.domain[:, 0], np.arange(hosts)):
            raise InvariantBroken("level 0 of the domains of a problem is not the host itself")


def simple(start: Int32Array, demand: Int64Array, capacity: Int64Array, **fields: Any) -> Problem:
    """Build a problem whose only rule is capacity; `fields` replace the rest, which costs nothing.

    The common load is worked out from `even_unit`, which is the capacity unless it is given.
    """
    vms, (hosts, resources) = len(start), capacity.shape
    base = fields.get("base", np.zeros((hosts, resources), np.int64))
    unit = fields.get("even_unit", capacity)
    plain: dict[str, Any] = {
        "fixed": np.zeros(vms, np.bool_),
        "base": base,
        "transient": np.zeros(resources, np.bool_),
        "safety": capacity,
        "load_weight": np.zeros(resources, np.int64),
        "pairs": np.zeros((0, 4), np.int64),
        "even_weight": np.zeros(resources, np.int64),
        "even_unit": unit,
        "even_target": common_load(demand, base, unit),
        "slot": np.zeros(resources, np.int64),
        "slot_weight": np.zeros(resources, np.int64),
        "used_cost": np.zeros(hosts, np.int64),
        "move_cost": np.zeros(vms, np.int64),
        "way_cost": np.zeros((0, 0), np.int64),
        "away_weight": 0,
        "away_group": np.full(vms, -1, np.int32),
        "vm_class": np.zeros(vms, np.int32),
        "allowed": np.ones((1, hosts), np.bool_),
        "domain": np.arange(hosts, dtype=np.int32)[:, None],
        "groups": np.zeros((0, 4), np.int64),
        "member_start": np.zeros(1, np.int64),
        "members": np.zeros(0, np.int32),
        "needs": np.zeros((0, 2), np.int32),
    }
    problem = Problem(start.astype(np.int32), demand=demand, capacity=capacity, **(plain | fields))
    problem.check()
    return problem


def common_load(demand: Int64Array, base: Int64Array, unit: Int64Array) -> Int64Array:
    """Return the load by resource that every host would have if all had the same."""
    counted = unit > 0
    whole = unit.sum(axis=0)
    amount = demand.sum(axis=0) + np.where(counted, base, 0).sum(axis=0)
    out = [int(a) * LOAD_ONE // int(w) if w > 0 else 0 for a, w in zip(amount, whole, strict=True)]
    return np.array(out, np.int64)
