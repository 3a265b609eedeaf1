"""K requests one after the other: find, and when asked to, charge and refile.

The meaning of a batch is that of K single calls; the loop only saves the calls.
"""

from typing import NamedTuple

import numpy as np

from roost.fleet.groups import HARD, RULE, SCOPE, GroupArrays
from roost.fleet.layout import (
    CELL_CPU,
    CELL_MEMORY,
    CPU,
    DEVICE_BEST,
    DEVICE_TOTAL,
    DISK,
    MEMORY,
    SLOTS,
    HostArrays,
    Int32Array,
    Int64Array,
    charge,
    refresh_extras,
)
from roost.fleet.assign import ANY, ONE_CELL
from roost.placement.kernels.compiling import entry_point, kernel
from roost.placement.kernels.fit import (
    NO_NEED,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_DEVICES,
    T_MILLI,
    T_NUMA,
    Ask,
    in_sorted,
    row_cells,
    row_devices,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.keys import KEY_FREE, request_key
from roost.placement.kernels.ranking import M_KIND, Ranking, refile, refile_rows
from roost.placement.kernels.scan import PART_PENALTY, MixArrays, scan, scan_score, score_parts
from roost.placement.kernels.search import (
    MOST,
    NOWHERE,
    search_after,
    search_chain,
    search_listed,
    search_random,
    search_ranked,
)
from roost.placement.kernels.tally import AFFINITY, HOST_SCOPE, SPREAD, add_member, fewest_members

#: How a strategy looks for its host.
BY_KEY, BY_NUMBER, BY_TURN, BY_DRAW, BY_SCAN = range(5)

#: Columns of `options`.
O_SEARCH, O_SCORE, O_CELL_RULE, O_COMMIT, O_CURSOR, O_RUNNERS, O_MOST_GROUPS = range(7)
OPTIONS = 7

#: Values of O_COMMIT.
DRY, COMMIT, UNTIL_REFUSAL = range(3)

charge_host = kernel(charge)
refresh_host_extras = kernel(refresh_extras)


class Tables(NamedTuple):
    """What requests point into.

    | field | dtype, shape | meaning |
    |---|---|---|
    | terms | int64 [terms, T_COLUMNS] | compiled terms |
    | lists | int64 [n] | pool of candidates, exclusions and preferences |
    | spread | int64 [terms, 3, 3] | per scope: start, length, number of eligible domains |
    | eligible | int64 [n] | pool of eligible-host counts per domain |
    | set_start, set_groups | int64 [sets + 1], int64 [n] | the groups of each set |
    """

    terms: Int64Array
    lists: Int64Array
    spread: Int64Array
    eligible: Int64Array
    set_start: Int64Array
    set_groups: Int64Array


class Batch(NamedTuple):
    """K requests as columns, and the hosts to refile before the first of them."""

    demand: Int64Array
    terms: Int32Array
    group_set: Int32Array
    seed: Int64Array
    changed: Int64Array


class Decisions(NamedTuple):
    """K answers as columns; runners-up and parts of the score are those of the last request."""

    row: Int32Array
    score: Int64Array
    devices: Int64Array
    cells: Int64Array
    runner_row: Int64Array
    runner_score: Int64Array
    parts: Int64Array


@kernel
def fill_need(need: Int64Array, demand: Int64Array, terms: Int64Array) -> None:
    """Write the least headroom a request asks of every column; nothing asked, nothing checked."""
    resources = len(demand)
    for resource in range(resources):
        need[resource] = demand[resource] if demand[resource] > 0 else NO_NEED
    need[resources + SLOTS] = 1
    need[resources + DEVICE_BEST] = NO_NEED
    need[resources + DEVICE_TOTAL] = NO_NEED
    need[resources + CELL_CPU] = NO_NEED
    need[resources + CELL_MEMORY] = NO_NEED
    if terms[T_DEVICES] > 0:
        need[resources + DEVICE_BEST] = terms[T_MILLI]
        need[resources + DEVICE_TOTAL] = terms[T_MILLI] * terms[T_DEVICES]
    if terms[T_NUMA] == ONE_CELL:
        need[resources + CELL_CPU] = demand[CPU]
        need[resources + CELL_MEMORY] = demand[MEMORY]
    elif terms[T_NUMA] != ANY:
        need[resources + CELL_CPU] = demand[CPU] - demand[CPU] // 2
        need[resources + CELL_MEMORY] = demand[MEMORY] - demand[MEMORY] // 2


@kernel
def fill_fewest(
    fewest: Int64Array, groups: GroupArrays, chosen: Int64Array, tables: Tables, terms: int
) -> None:
    """Write, for each spread group, its smallest member count over the eligible domains."""
    for position in range(len(chosen)):
        group = chosen[position]
        if groups.info[group, RULE] == SPREAD:
            start, length, count = tables.spread[terms, groups.info[group, SCOPE]]
            eligible = tables.eligible[start : start + length]
            fewest[position] = fewest_members(groups, group, eligible, count)


@kernel
def ready_ask(
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    index: int,
    need: Int64Array,
    fewest: Int64Array,
    skip: Int64Array,
) -> Ask:
    """Make one request of a batch ready, in the given scratch arrays."""
    terms = batch.terms[index]
    demand = batch.demand[index]
    group_set = batch.group_set[index]
    chosen = tables.set_groups[tables.set_start[group_set] : tables.set_start[group_set + 1]]
    fill_need(need, demand, tables.terms[terms])
    if len(chosen) > 0:
        fill_fewest(fewest, groups, chosen, tables, terms)
    return Ask(
        need, demand, tables.terms[terms], tables.lists, chosen, fewest[: len(chosen)], skip
    )


@kernel
def find(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    options: Int64Array,
    seed: int,
    mix: MixArrays,
) -> tuple[int, int]:
    """Return the best host for one request and its total, by the way the strategy looks."""
    way = options[O_SEARCH]
    cursor = options[O_CURSOR]
    if way == BY_SCAN:
        return scan(hosts, marks, groups, ranking, ask, options[O_SCORE], mix)
    if way != BY_DRAW:
        if ask.terms[T_CANDIDATE_COUNT] >= 0:
            return search_listed(hosts, marks, groups, ranking, ask, cursor, way == BY_TURN)
        for position in range(len(ask.groups)):
            group = ask.groups[position]
            if (
                groups.info[group, RULE] == AFFINITY
                and groups.info[group, SCOPE] == HOST_SCOPE
                and groups.info[group, HARD]
                and groups.members[group] > 0
            ):
                head = groups.heads[group, HOST_SCOPE]
                return search_chain(
                    hosts, marks, groups, ranking, ask, head, cursor, way == BY_TURN
                )
    if way == BY_KEY:
        kind = ranking.meta[M_KIND]
        lowest = -MOST
        if kind == KEY_FREE:  # a host that takes the VM has at least its amounts free
            lowest = request_key(kind, ask.demand[CPU], ask.demand[MEMORY], ask.demand[DISK])
        return search_ranked(hosts, marks, groups, ranking, ask, lowest)
    if way == BY_DRAW:
        return search_random(hosts, marks, groups, ranking, ask, seed)
    return search_after(hosts, marks, groups, ranking, ask, cursor if way == BY_TURN else NOWHERE)


@entry_point
def decide(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    tables: Tables,
    batch: Batch,
    out: Decisions,
    options: Int64Array,
    mix: MixArrays,
) -> int:
    """Answer every request in order and return how many found a host."""
    resources = batch.demand.shape[1]
    need = np.empty(hosts.headroom.shape[1], np.int64)
    fewest = np.zeros(options[O_MOST_GROUPS], np.int64)
    skip = np.empty(options[O_RUNNERS], np.int64)
    kind = ranking.meta[M_KIND]
    placed = 0
    refile_rows(ranking, hosts, marks, batch.changed)
    for index in range(len(batch.terms)):
        ask = ready_ask(groups, tables, batch, index, need, fewest, skip)
        demand = ask.demand
        chosen = ask.groups
        seed = batch.seed[index] if len(batch.seed) > 0 else 0
        row = np.int64(NOWHERE)
        own = request_key(kind, ask.demand[CPU], ask.demand[MEMORY], ask.demand[DISK])
        # First the winner, then whoever would have been next: the same search without those.
        skip[:] = NOWHERE
        for place in range(options[O_RUNNERS] + 1):
            found, total = find(hosts, marks, groups, ranking, ask, options, seed, mix)
            if place == 0:
                row = found
                out.row[index] = row
                out.score[index] = total - own
            else:
                out.runner_row[place - 1] = found
                out.runner_score[place - 1] = total - own
            if place < len(skip):
                skip[place] = found
        if row == NOWHERE:
            if options[O_COMMIT] == UNTIL_REFUSAL:
                break
            continue
        placed += 1
        devices = row_devices(hosts, ask, row)
        cells = row_cells(hosts, ask, row, options[O_CELL_RULE])
        out.devices[index] = devices
        out.cells[index] = cells
        if options[O_RUNNERS] > 0:
            score_parts(options[O_SCORE], hosts, demand, row, out.parts)
            out.parts[PART_PENALTY] = row_penalty(hosts, marks, groups, ask, row)
        if options[O_SEARCH] == BY_TURN:
            options[O_CURSOR] = row
        if options[O_COMMIT]:
            charge_host(hosts, row, demand, ask.terms[T_MILLI], devices, cells, 1)
            if devices or cells:
                refresh_host_extras(hosts, row, resources)
            for position in range(len(chosen)):
                add_member(groups, chosen[position], hosts.domain[row], 1)
            refile(ranking, hosts, marks, row)
    return placed


@entry_point
def judge(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    score: int,
    mix: MixArrays,
    scores: Int64Array,
) -> None:
    """Score every host for the first request of a batch; MOST where it does not fit."""
    need = np.empty(hosts.headroom.shape[1], np.int64)
    fewest = np.zeros(len(tables.set_groups) + 1, np.int64)
    ask = ready_ask(groups, tables, batch, 0, need, fewest, tables.lists[:0])
    demand = batch.demand[0]
    own = request_key(score, demand[CPU], demand[MEMORY], demand[DISK])
    for row in range(len(scores)):
        scores[row] = MOST
        listed = ask.terms[T_CANDIDATE_COUNT]
        if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
            continue
        if hosts.takes[row] and row_fits(hosts, marks, groups, ask, row):
            scores[row] = scan_score(score, hosts, ask, mix, row) - own
            scores[row] += row_penalty(hosts, marks, groups, ask, row)
