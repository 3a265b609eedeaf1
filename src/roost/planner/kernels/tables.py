"""What the search's kernels read (`Facts`) and change (`State`), as bundles of arrays.

`Facts` are a problem's arrays and what is derived from them once; `State` is where every VM is now
and the sums that follow from it. Built by roost.planner.layout, owned by one search.

| field of State | dtype, shape | meaning |
|---|---|---|
| place | int32 [vms] | host of each VM now |
| used | int64 [hosts, resources] | base and demands of the VMs there |
| kept | int64 [hosts, resources] | the same with those that left and keep their room |
| vm_count | int64 [hosts] | VMs there |
| first, after, before | int32 [hosts], [vms], [vms] | the VMs of each host as a chain, -1 ends it |
| counts | int32 [n] | members by group and domain, for groups with `count_at` >= 0 |
| spread | int64 [groups] | domains with a member, for groups with `count_at` >= 0 |
| away, away_how_many | int64 [groups], int64 [vms + 1] | members moved; groups by that |
| sums | int64 [4] | cost, most members away, random state, moves made |
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roost.fleet.layout import BoolArray, Int32Array, Int64Array

Floats = npt.NDArray[np.float64]

#: Columns of `State.sums`.
COST, MOST_AWAY, RANDOM, MADE = range(4)

#: The change of cost of what a hard rule forbids.
FORBIDDEN = 1 << 62


class Facts(NamedTuple):
    """A problem as the kernels read it; fields as in `Problem` unless said."""

    start: Int32Array
    demand: Int64Array
    capacity: Int64Array
    transient: BoolArray
    safety: Int64Array
    load_weight: Int64Array
    pairs: Int64Array
    even_weight: Int64Array
    even_rate: Floats  # [hosts, resources]: load in units of 1 / LOAD_ONE of one unit of amount
    even_target: Int64Array
    slot: Int64Array
    slot_weight: Int64Array
    used_cost: Int64Array
    move_cost: Int64Array
    way_cost: Int64Array
    away_weight: Int64Array  # [1]
    away_group: Int32Array
    vm_class: Int32Array
    allowed: BoolArray
    domain: Int32Array
    domains: Int64Array  # [levels]: number of domains
    groups: Int64Array
    member_start: Int64Array
    members: Int32Array
    group_start: Int64Array  # [vms + 1]: where the groups of each VM begin
    group_of: Int32Array
    count_at: Int64Array  # [groups]: where its counts begin in State.counts, -1: members are asked
    need_start: Int64Array  # [groups + 1]: what each group needs
    need: Int32Array
    serve_start: Int64Array  # [groups + 1]: what needs each group
    serve: Int32Array
    movable: Int32Array


class State(NamedTuple):
    """Where every VM is, and the sums that follow from it."""

    place: Int32Array
    used: Int64Array
    kept: Int64Array
    vm_count: Int64Array
    first: Int32Array
    after: Int32Array
    before: Int32Array
    counts: Int32Array
    spread: Int64Array
    away: Int64Array
    away_how_many: Int64Array
    sums: Int64Array
