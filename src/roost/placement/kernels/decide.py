"""K requests one after the other: find, and when asked to, charge and refile.

The meaning of a batch is that of K single calls; the loop only saves the calls.
"""

from typing import NamedTuple

from roost.fleet.assign import ANY, ONE_CELL
from roost.fleet.groups import EMPTY, HARD, RULE, SCOPE, GroupArrays
from roost.fleet.layout import (
    CELL_CPU,
    CELL_MEMORY,
    CPU,
    DEVICE_BEST,
    DEVICE_TOTAL,
    E_ENDS,
    ENDS,
    MEMORY,
    MOST_RATIO_CPU,
    RATIO_BYTES,
    RATIO_COUNT,
    RATIOS,
    SLOTS,
    UNLIMITED,
    HostArrays,
    Int32Array,
    Int64Array,
)
from roost.placement.kernels.bounded import search_bounded
from roost.placement.kernels.charging import (
    charge_host,
    charge_vm,
    refresh_host_extras,
    refresh_host_ratios,
)
from roost.placement.kernels.compiling import entry_point, inlined, int64, kernel, spliced
from roost.placement.kernels.domain_bits import ANYWHERE, RACK_SCOPE, ZONE_SCOPE, company
from roost.placement.kernels.fit import (
    A_ALL,
    A_CHARGED,
    A_ENDS,
    A_EXACT,
    A_RACKS,
    A_RULES,
    A_ZONES,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_DEVICES,
    T_EXCLUDED_COUNT,
    T_FLOOR_COUNT,
    T_FLOORS,
    T_LINE_COUNT,
    T_MILLI,
    T_NUMA,
    T_WISH_COUNT,
    Ask,
    in_sorted,
    row_cells,
    row_devices,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.fragments import MixArrays, thriftiest
from roost.placement.kernels.keys import KEY_FREE, KIND_MASK
from roost.placement.kernels.least_loss import search_least_lost
from roost.placement.kernels.ranking import M_FREE_BLOCKS, M_KIND, Ranking, refile
from roost.placement.kernels.scan import (
    PART_PENALTY,
    PARTS,
    scan_score,
    score_parts,
    search_random,
)
from roost.placement.kernels.scores import (
    SCORE_BALANCE,
    SCORE_FRAGMENTS,
    TIER_COST,
    TIER_SLACKS,
    TIERS,
    own_key,
)
from roost.placement.kernels.search import (
    MOST,
    NOWHERE,
    search,
    search_chain,
    search_listed,
)
from roost.placement.kernels.tally import AFFINITY, HOST_SCOPE, SPREAD, fewest_members

#: How a strategy looks for its host.
BY_KEY, BY_NUMBER, BY_TURN, BY_DRAW, BY_BOUND, BY_LOSS, BY_TIER = range(7)

#: Columns of `options`.
O_SEARCH, O_SCORE, O_CELL_RULE, O_COMMIT, O_CURSOR, O_RUNNERS, O_NEXT = range(7)
OPTIONS = 7

#: Values of O_COMMIT.
DRY, COMMIT, UNTIL_REFUSAL = range(3)


class Tables(NamedTuple):
    """What requests point into.

    | field | dtype, shape | meaning |
    |---|---|---|
    | terms | int64 [terms, T_COLUMNS] | compiled terms |
    | lists | int64 [n] | pool of candidates, exclusions, preferences, floors and inequalities |
    | spread | int64 [terms, 3, 3] | per scope: start, length, number of eligible domains |
    | eligible | int64 [n] | pool of eligible-host counts per domain |
    """

    terms: Int64Array
    lists: Int64Array
    spread: Int64Array
    eligible: Int64Array


class Batch(NamedTuple):
    """K requests as columns, and the hosts to refile before the first of them."""

    demand: Int64Array
    terms: Int32Array
    group_set: Int32Array
    seed: Int64Array
    expected: Int64Array
    changed: Int64Array


class Decisions(NamedTuple):
    """K answers as columns; runners-up and parts of the score stand one answer after the other.

    `ends` is when the host's last VM was to be gone before the commit, for `take_back`.
    """

    row: Int32Array
    score: Int64Array
    devices: Int64Array
    cells: Int64Array
    runner_row: Int64Array
    runner_score: Int64Array
    parts: Int64Array
    ends: Int64Array


class Scratch(NamedTuple):
    """Working arrays of one call."""

    columns: Int64Array
    least: Int64Array
    counts: Int64Array
    fewest: Int64Array
    skip: Int64Array


@inlined
def ask_for(scratch: Scratch, column: int, amount: int) -> None:
    """Ask for some headroom in one column; nothing asked, nothing checked."""
    if amount > 0:
        at = scratch.counts[A_ALL]
        scratch.columns[at] = column
        scratch.least[at] = amount
        scratch.counts[A_ALL] = at + 1


@inlined
def ask_for_at_least(scratch: Scratch, column: int, least: int) -> None:
    """Raise what is asked for in one column to a floor, which may be below nothing."""
    for at in range(scratch.counts[A_ALL]):
        if scratch.columns[at] == column:
            scratch.least[at] = max(scratch.least[at], least)
            return
    at = scratch.counts[A_ALL]
    scratch.columns[at] = column
    scratch.least[at] = least
    scratch.counts[A_ALL] = at + 1


@inlined
def ask_for_room(
    scratch: Scratch, demand: Int64Array, terms: Int64Array, lists: Int64Array
) -> None:
    """Write what a request needs of every headroom column."""
    resources = len(demand)
    cpu, memory = demand[CPU], demand[MEMORY]
    scratch.counts[:] = 0
    for resource in range(resources):
        ask_for(scratch, resource, demand[resource])
    ask_for(scratch, resources + SLOTS, int64(1))
    if terms[T_DEVICES] > 0:
        ask_for(scratch, resources + DEVICE_BEST, terms[T_MILLI])
        ask_for(scratch, resources + DEVICE_TOTAL, terms[T_MILLI] * terms[T_DEVICES])
    if terms[T_NUMA] == ONE_CELL:
        ask_for(scratch, resources + CELL_CPU, cpu)
        ask_for(scratch, resources + CELL_MEMORY, memory)
    elif terms[T_NUMA] != ANY:
        ask_for(scratch, resources + CELL_CPU, cpu - cpu // 2)
        ask_for(scratch, resources + CELL_MEMORY, memory - memory // 2)
    for floor in range(terms[T_FLOOR_COUNT]):
        at = terms[T_FLOORS] + 2 * floor
        ask_for_at_least(scratch, lists[at], lists[at + 1])
    scratch.counts[A_EXACT] = scratch.counts[A_ALL]
    # The two steady ratios on either side of the request's own.
    cpu = min(cpu, MOST_RATIO_CPU)
    step = 0
    while step < RATIO_COUNT - 1 and cpu * RATIO_BYTES[step + 1] <= memory:
        step += 1
    for each in range(step, min(step + 2, RATIO_COUNT)):
        ask_for(scratch, resources + RATIOS + each, min(cpu * RATIO_BYTES[each], memory))


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


@spliced
def ready_ask(
    groups: GroupArrays, tables: Tables, batch: Batch, index: int, scratch: Scratch
) -> Ask:
    """Make one request of a batch ready, in the scratch arrays."""
    number = batch.terms[index]
    terms = tables.terms[number]
    demand = batch.demand[index]
    group_set = batch.group_set[index]
    chosen = groups.set_groups[groups.set_start[group_set] : groups.set_start[group_set + 1]]
    ask_for_room(scratch, demand, terms, tables.lists)
    charged = terms[T_WISH_COUNT] > 0
    scratch.counts[A_ENDS] = batch.expected[index, E_ENDS]
    scratch.counts[A_RACKS] = ANYWHERE
    scratch.counts[A_ZONES] = ANYWHERE
    if len(chosen) > 0:
        scratch.counts[A_RACKS] = company(groups, chosen, int64(RACK_SCOPE))
        scratch.counts[A_ZONES] = company(groups, chosen, int64(ZONE_SCOPE))
        fill_fewest(scratch.fewest, groups, chosen, tables, number)
        for position in range(len(chosen)):
            charged |= groups.info[chosen[position], HARD] == 0
    ruled = (
        len(scratch.skip) > 0
        or terms[T_EXCLUDED_COUNT] > 0
        or terms[T_DEVICES] > 0
        or terms[T_NUMA] != ANY
        or terms[T_LINE_COUNT] > 0
        or len(chosen) > 0
    )
    scratch.counts[A_RULES] = 1 if ruled else 0
    scratch.counts[A_CHARGED] = 1 if charged else 0
    return Ask(
        scratch.columns,
        scratch.least,
        scratch.counts,
        demand,
        terms,
        tables.lists,
        chosen,
        scratch.fewest[: len(chosen)],
        scratch.skip,
    )


@spliced
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
    if way == BY_LOSS:
        return search_least_lost(hosts, marks, groups, ranking, ask, mix)
    if way == BY_DRAW:
        return search_random(hosts, marks, groups, ranking, ask, seed)
    score = options[O_SCORE]
    cursor = options[O_CURSOR] if way == BY_TURN else int64(NOWHERE)
    if ask.terms[T_CANDIDATE_COUNT] >= 0:
        return search_listed(hosts, marks, groups, ranking, ask, score, cursor)
    if len(ask.groups) > 0:
        head = required_company(groups, ask.groups)
        if head != EMPTY:
            return search_chain(hosts, marks, groups, ranking, ask, score, head, cursor)
    if way == BY_BOUND and not (score == SCORE_BALANCE and ask.terms[T_NUMA] == ONE_CELL):
        return search_bounded(hosts, marks, groups, ranking, ask, score)
    from_key, from_row, last_row = int64(-MOST), int64(NOWHERE), int64(MOST)
    kind = ranking.meta[M_KIND]
    if kind & KIND_MASK == KEY_FREE:  # a host that takes the VM has at least its amounts free
        from_key = own_key(kind, ask)
    if way == BY_TURN:  # first the hosts after the cursor, then the others
        from_key, from_row = int64(0), cursor + 1
    best_row, best = int64(NOWHERE), int64(MOST)
    searches = TIERS if way == BY_TIER else 2 if way == BY_TURN else 1
    end_at = insert_end(ask) if way == BY_TIER else 0
    for turn in range(searches):
        cost = int64(0)
        if way == BY_TIER:  # a host of a lower tier costs no more here than it did there
            cost += turn * TIER_COST
            if best < cost + from_key:
                break
            ask.least[end_at] = ask.counts[A_ENDS] - TIER_SLACKS[turn]
        row, total = search(hosts, marks, groups, ranking, ask, from_key, from_row, last_row)
        total += cost
        if row != NOWHERE and (
            total < best or (way == BY_TIER and total == best and row < best_row)
        ):
            best_row, best = row, total
        if way == BY_TURN:
            if best == 0:
                break
            from_row, last_row = int64(0), cursor
    if way == BY_TIER:
        remove_end(ask)
    return best_row, best


@inlined
def insert_end(ask: Ask) -> int:
    """Ask for the end of a host's last VM as well, and return where that is asked.

    It is exact, so the first of the columns that only sharpen the bounds makes room for it.
    """
    at, last = ask.counts[A_EXACT], ask.counts[A_ALL]
    ask.columns[last], ask.least[last] = ask.columns[at], ask.least[at]
    ask.columns[at] = len(ask.demand) + ENDS
    ask.counts[A_EXACT] = at + 1
    ask.counts[A_ALL] = last + 1
    return at


@inlined
def remove_end(ask: Ask) -> None:
    """Ask no longer for the end of a host's last VM."""
    at, last = ask.counts[A_EXACT] - 1, ask.counts[A_ALL] - 1
    ask.columns[at], ask.least[at] = ask.columns[last], ask.least[last]
    ask.counts[A_EXACT] = at
    ask.counts[A_ALL] = last


@kernel
def required_company(groups: GroupArrays, chosen: Int64Array) -> int:
    """Return the chain of hosts that a hard host-affinity group already has members on."""
    for position in range(len(chosen)):
        group = chosen[position]
        if (
            groups.info[group, RULE] == AFFINITY
            and groups.info[group, SCOPE] == HOST_SCOPE
            and groups.info[group, HARD]
            and groups.members[group] > 0
        ):
            return groups.heads[group, HOST_SCOPE]
    return int64(EMPTY)


@spliced
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
    scratch: Scratch,
) -> int:
    """Answer requests from options[O_NEXT] on; return the first that is not answered.

    That one was refused (UNTIL_REFUSAL), or the ranking ran out of blocks before it: the caller
    rebuilds the ranking and calls again.
    """
    skip = scratch.skip
    for position in range(len(batch.changed)):
        if not refile(ranking, hosts, marks, batch.changed[position]):
            return options[O_NEXT]
    for index in range(options[O_NEXT], len(batch.terms)):
        if options[O_COMMIT] and ranking.meta[M_FREE_BLOCKS] <= 1:
            return index
        ask = ready_ask(groups, tables, batch, index, scratch)
        demand = ask.demand
        seed = batch.seed[index] if len(batch.seed) > 0 else 0
        row = int64(NOWHERE)
        own = own_key(options[O_SCORE], ask)
        # First the winner, then whoever would have been next: the same search without those.
        skip[:] = NOWHERE
        for place in range(options[O_RUNNERS] + 1):
            found, total = find(hosts, marks, groups, ranking, ask, options, seed, mix)
            if place == 0:
                row = found
                out.row[index] = row
                out.score[index] = total - own
            else:
                runner = index * options[O_RUNNERS] + place - 1
                out.runner_row[runner] = found
                out.runner_score[runner] = total - own
            if place < len(skip):
                skip[place] = found
        if row == NOWHERE:
            if options[O_COMMIT] == UNTIL_REFUSAL:
                return index
            continue
        if options[O_SCORE] == SCORE_FRAGMENTS:
            devices, cells, _ = thriftiest(hosts, ask, mix, row)
        else:
            devices = row_devices(hosts, ask, row)
            cells = row_cells(hosts, ask, row, options[O_CELL_RULE])
        out.devices[index] = devices
        out.cells[index] = cells
        if options[O_RUNNERS] > 0:
            parts = out.parts[index * PARTS : (index + 1) * PARTS]
            score_parts(options[O_SCORE], hosts, ask, row, parts)
            parts[PART_PENALTY] = row_penalty(hosts, marks, groups, ask, row)
        if options[O_SEARCH] == BY_TURN:
            options[O_CURSOR] = row
        if options[O_COMMIT]:
            milli, group_set = ask.terms[T_MILLI], batch.group_set[index]
            out.ends[index] = hosts.headroom[row, len(demand) + ENDS]
            charge_vm(
                hosts,
                groups,
                row,
                demand,
                batch.expected[index],
                milli,
                devices,
                cells,
                group_set,
                int64(1),
            )
            refile(ranking, hosts, marks, row)
    return len(batch.terms)


@entry_point
def judge(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    score: int,
    mix: MixArrays,
    scratch: Scratch,
    scores: Int64Array,
) -> None:
    """Score every host for the first request of a batch; MOST where it does not fit."""
    ask = ready_ask(groups, tables, batch, 0, scratch)
    own = own_key(score, ask)
    for row in range(len(scores)):
        scores[row] = MOST
        listed = ask.terms[T_CANDIDATE_COUNT]
        if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
            continue
        if hosts.takes[row] and row_fits(hosts, marks, groups, ask, row):
            scores[row] = scan_score(score, hosts, ask, batch.seed[0], mix, row) - own
            scores[row] += row_penalty(hosts, marks, groups, ask, row)


@entry_point
def take_back(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    tables: Tables,
    batch: Batch,
    out: Decisions,
    start: int,
) -> bool:
    """Undo the commits from `start` on, the last first; False asks the caller to rebuild."""
    filed = True
    for index in range(len(batch.terms) - 1, start - 1, -1):
        row = int64(out.row[index])
        if row == NOWHERE:
            continue
        devices, cells = out.devices[index], out.cells[index]
        milli = tables.terms[batch.terms[index], T_MILLI]
        demand, group_set = batch.demand[index], batch.group_set[index]
        charge_vm(
            hosts,
            groups,
            row,
            demand,
            batch.expected[index],
            milli,
            devices,
            cells,
            group_set,
            int64(-1),
        )
        hosts.headroom[row, len(demand) + ENDS] = out.ends[index]
        if not refile(ranking, hosts, marks, row):
            filed = False
    return filed


@entry_point
def copies_per_host(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    cell_rule: int,
    scratch: Scratch,
    copies: Int64Array,
) -> None:
    """Write how many copies of the first request each host takes, and fill the hosts with them.

    For requests without groups: one host's copies then never matter to another host.
    """
    ask = ready_ask(groups, tables, batch, 0, scratch)
    resources = batch.demand.shape[1]
    expected = batch.expected[0]
    listed = ask.terms[T_CANDIDATE_COUNT]
    # A rule on amounts looks at a host again after every copy.
    ruled = ask.terms[T_FLOOR_COUNT] > 0 or ask.terms[T_LINE_COUNT] > 0
    for row in range(len(copies)):
        copies[row] = 0
        if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
            continue
        while hosts.takes[row] and row_fits(hosts, marks, groups, ask, row):
            devices = row_devices(hosts, ask, row)
            cells = row_cells(hosts, ask, row, cell_rule)
            count = 1
            if not devices and not cells and not ruled:  # all that fit at once
                count = UNLIMITED
                for resource in range(resources):
                    if ask.demand[resource] > 0:
                        room = hosts.headroom[row, resource] // ask.demand[resource]
                        count = min(count, room)
                count = min(count, hosts.headroom[row, resources + SLOTS])
            for _ in range(count if devices or cells else 0):
                milli = ask.terms[T_MILLI]
                charge_host(hosts, row, ask.demand, expected, milli, devices, cells, int64(1))
            if not devices and not cells:
                for resource in range(resources):
                    amount = count * ask.demand[resource]
                    hosts.committed[row, resource] += amount
                    hosts.headroom[row, resource] -= amount
                hosts.vm_count[row] += count
                hosts.headroom[row, resources + SLOTS] -= count
                for part in range(2):
                    use = expected[part] if expected[part] >= 0 else ask.demand[part]
                    hosts.predicted[row, part] += count * use
                last = hosts.headroom[row, resources + ENDS]
                hosts.headroom[row, resources + ENDS] = max(last, expected[E_ENDS])
            refresh_host_ratios(hosts.headroom, row, resources)
            refresh_host_extras(hosts, row, resources)
            copies[row] += count
