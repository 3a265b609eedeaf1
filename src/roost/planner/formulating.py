"""A fleet as a problem: its columns, its groups, and the hosts that the engine's filters allow.

VMs of equal terms are one class, for which the filters are asked once over all hosts. What the
problem cannot say stays where it is: VMs with devices or NUMA cells, and VMs on hosts that are not
online. The engine is asked again for every move before it is made, so a rule about amounts that no
class can express costs a proposal and never a mistake.
"""

from dataclasses import dataclass

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, KNOWN, MEMORY, SLOTS, BoolArray, Int32Array, Int64Array
from roost.model.groups import GroupRule
from roost.model.hosts import Health
from roost.placement.attributes import eligible
from roost.placement.engine import Engine
from roost.placement.nearness import Nearness
from roost.placement.question import Question
from roost.placement.rules.columns import BEFOREHAND, RuleColumns
from roost.planner.problem import (
    APART,
    EVEN,
    LOAD_ONE,
    MOST_EVEN_WEIGHT,
    TOGETHER,
    Problem,
    simple,
)

_RULES = {
    GroupRule.AFFINITY: TOGETHER,
    GroupRule.ANTI_AFFINITY: APART,
    GroupRule.SPREAD: EVEN,
}
#: Room of a column that is only looked at.
_ENDLESS = 1 << 60


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a problem of a fleet is to weigh.

    Evenness is the sum over hosts of squared distances from the common load; `least_gain` is what
    of that a move must at least gain, as the product of two loads: 0.05 x 0.05 is a VM of 5% of a
    host that leaves one 2.5% above the mean for one 2.5% below. `emptied` is what an emptied host
    is worth in the same unit.
    """

    even: bool = True
    least_gain: float = 0.0025
    emptied: float = 0.0
    group_weight: float = 0.01  # a violation of a soft group of weight 100
    worth: float = 0.0004  # a plan must gain so much for each host: loads 2% nearer to the mean


@dataclass(frozen=True, slots=True)
class Formulated:
    """A problem, and the fleet's rows of its hosts and VMs."""

    problem: Problem
    hosts: Int64Array
    vms: Int64Array
    worth: int  # what a plan must gain, in the problem's costs


#: A squared load of 1 in the costs of a problem.
COST_ONE = (MOST_EVEN_WEIGHT >> 4) * LOAD_ONE


def formulate(engine: Engine, wishes: Wishes | None = None) -> Formulated:
    """Say an engine's fleet as a problem."""
    wishes = wishes or Wishes()
    fleet = engine.fleet
    hosts = fleet.present_rows()
    vms = np.flatnonzero(fleet.vms.host[: fleet.vms.count] >= 0)
    at = np.full(fleet.hosts.count, -1, np.int64)
    at[hosts] = np.arange(len(hosts))
    start = at[fleet.vms.host[vms]].astype(np.int32)
    demand, base, capacity, unit = _amounts(fleet, hosts, vms, start)
    vm_class, allowed = _classes(fleet, hosts, vms)
    groups, member_start, members, domain = _groups(fleet, hosts, vms, wishes)
    weight = np.zeros(demand.shape[1], np.int64)
    if wishes.even:
        weight[-2:] = MOST_EVEN_WEIGHT >> 4
    online = fleet.hosts.health[fleet.vms.host[vms]] == int(Health.ONLINE)
    table = fleet.vms
    problem = simple(
        start,
        demand,
        capacity,
        base=base,
        fixed=(table.devices[vms] != 0) | (table.cells[vms] != 0) | ~online,
        even_weight=weight,
        even_unit=unit,
        used_cost=np.full(len(hosts), int(wishes.emptied * COST_ONE), np.int64),
        move_cost=np.full(len(vms), int(wishes.least_gain * COST_ONE), np.int64),
        vm_class=vm_class,
        allowed=allowed,
        domain=domain,
        groups=groups,
        member_start=member_start,
        members=members,
    )
    return Formulated(problem, hosts, vms, int(wishes.worth * COST_ONE) * len(hosts))


def _amounts(
    fleet: Fleet, hosts: Int64Array, vms: Int64Array, start: Int32Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return demand, base, capacity and load units.

    After the fleet's resources come places for VMs, and cpu and memory as they load a host:
    foreseen where that is known, else promised.
    """
    arrays, table = fleet.hosts.arrays, fleet.vms
    resources = len(fleet.hosts.resources)
    known = arrays.predicted[hosts, KNOWN] > 0
    amounts = table.demand[vms]
    expected = table.expected[vms, :2]
    loading = np.where(known[start][:, None] & (expected >= 0), expected, amounts[:, :2])
    demand = np.concatenate([amounts, np.ones((len(vms), 1), np.int64), loading], axis=1)
    committed, headroom = arrays.committed[hosts], arrays.headroom[hosts]
    used = np.where(known[:, None], arrays.predicted[hosts, :2], committed[:, :2])
    taken = np.concatenate([committed, arrays.vm_count[hosts][:, None], used], axis=1)
    room = np.full((len(hosts), 2), _ENDLESS, np.int64)
    free = headroom[:, : resources + SLOTS + 1]
    capacity = np.concatenate([taken[:, : resources + 1] + free, room], axis=1)
    placed = np.zeros_like(taken)
    np.add.at(placed, start, demand)
    unit = np.zeros_like(taken)
    takes = arrays.takes[hosts]
    unit[takes, -2:] = np.maximum(arrays.capacity[hosts][takes][:, [CPU, MEMORY]], 1)
    return demand, taken - placed, capacity, unit


def _classes(fleet: Fleet, hosts: Int64Array, vms: Int64Array) -> tuple[Int32Array, BoolArray]:
    """Return the class of each VM and the hosts that each class may move to."""
    numbers, vm_class = np.unique(fleet.vms.terms[vms], return_inverse=True)
    rules = RuleColumns(fleet)
    nothing = np.zeros(len(fleet.hosts.resources), np.int64)
    allowed = np.ones((max(1, len(numbers)), len(hosts)), np.bool_)
    for at, number in enumerate(numbers.tolist()):
        terms = fleet.terms.values[number]
        question = Question(fleet, nothing, terms, (), eligible, rules, Nearness(fleet))
        allowed[at] = eligible(question, hosts)
        if terms.rules:
            allowed[at] &= rules.hold(terms, hosts, BEFOREHAND)
    return vm_class.astype(np.int32), allowed


def _groups(
    fleet: Fleet, hosts: Int64Array, vms: Int64Array, wishes: Wishes
) -> tuple[Int64Array, Int64Array, Int32Array, Int32Array]:
    """Return rules, where members begin, members, and the fault domains of hosts."""
    domain = np.full((len(hosts), fleet.hosts.arrays.domain.shape[1]), -1, np.int32)
    domain[:, 0] = np.arange(len(hosts))
    for level in range(1, domain.shape[1]):
        words = fleet.hosts.arrays.domain[hosts, level]
        known = words >= 0
        domain[known, level] = np.unique(words[known], return_inverse=True)[1]
    of: dict[int, list[int]] = {}
    sets = fleet.vms.group_set[vms]
    for row in np.flatnonzero(sets).tolist():
        for group in fleet.groups.set_members(int(sets[row])):
            of.setdefault(group, []).append(row)
    rules, sizes, members = [], [0], list[int]()
    for group, rows in sorted(of.items()):
        spec = fleet.groups.specs[group]
        bound = 1 if spec.rule is not GroupRule.SPREAD else spec.max_skew
        cost = 0 if spec.hard else max(1, int(wishes.group_weight * COST_ONE * spec.weight / 100))
        rules.append((_RULES[spec.rule], int(spec.scope), bound, cost))
        members += rows
        sizes.append(len(members))
    return (
        np.array(rules, np.int64).reshape(-1, 4),
        np.array(sizes, np.int64),
        np.array(members, np.int32),
        domain,
    )
