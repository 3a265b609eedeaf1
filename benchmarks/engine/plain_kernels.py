"""The loops of the plain scan: look at every host, keep the best.

They share with the engine the columns, the compiled terms, the choice of devices and cells and the
score of one host. What makes the engine fast (rankings, classes, bounds, lists, chains) they do
without. They are written as by someone who has only a scan and wants it fast: amounts in registers,
scores that need no request kept in a column, and by number or turn the first host that fits is the
answer. Extended resources are not looked at: no request here asks for any.
"""

from typing import NamedTuple

from roost.fleet.assign import ANY, LOWEST, ONE_CELL
from roost.fleet.groups import EMPTY, HARD, MAX_SKEW, RULE, SCOPE, SCOPES, GroupArrays
from roost.fleet.layout import (
    CPU,
    DISK,
    MEMORY,
    SLOTS,
    BoolArray,
    HostArrays,
    Int32Array,
    Int64Array,
)
from roost.placement.kernels.compiling import entry_point, inlined, int64, kernel
from roost.placement.kernels.decide import (
    BY_DRAW,
    BY_KEY,
    BY_NUMBER,
    BY_TURN,
    Batch,
    Scratch,
    Tables,
    charge_host,
    ready_ask,
    refresh_host_extras,
)
from roost.placement.kernels.fit import (
    A_CHARGED,
    A_RULES,
    T_BIT,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_DEVICES,
    T_EXCLUDED,
    T_EXCLUDED_COUNT,
    T_MILLI,
    T_NUMA,
    T_WORD,
    Ask,
    asked_devices,
    in_sorted,
    row_cells,
    row_devices,
    row_penalty,
)
from roost.placement.kernels.fragments import MixArrays, primary_left, thriftiest, worth_lost
from roost.placement.kernels.keys import SCORE_ONE, host_key, imbalance
from roost.placement.kernels.scan import GUESSES
from roost.placement.kernels.scores import (
    SCORE_BALANCE,
    SCORE_DOT,
    SCORE_FRAGMENTS,
    alignment,
    own_key,
)
from roost.placement.kernels.search import MOST, NOWHERE, draw
from roost.placement.kernels.tally import AFFINITY, ANTI_AFFINITY, WEIGHT_ONE, add_member, entry_of

#: Columns of the options.
S_WAY, S_SCORE, S_CELL_RULE, S_COMMIT, S_CURSOR, S_ROWS, S_COLUMNS = range(7)


# The same formulas as the engine's, compiled into the loop: a call per host hands over every array.
imbalance_here = inlined(getattr(imbalance, "py_func", imbalance))
alignment_here = inlined(getattr(alignment, "py_func", alignment))


class Need(NamedTuple):
    """What the loop compares, read once per request."""

    cpu: int
    memory: int
    disk: int
    slots_at: int  # column of the headroom
    word: int
    bit: int
    ruled: int


@inlined
def need_of(hosts: HostArrays, ask: Ask) -> Need:
    """Read a request's amounts and mark."""
    return Need(
        ask.demand[CPU],
        ask.demand[MEMORY],
        ask.demand[DISK],
        hosts.committed.shape[1] + SLOTS,
        ask.terms[T_WORD],
        ask.terms[T_BIT],
        ask.counts[A_RULES] + (ask.terms[T_CANDIDATE_COUNT] >= 0),
    )


@inlined
def groups_let(hosts: HostArrays, groups: GroupArrays, ask: Ask, row: int) -> bool:
    """Say whether the hard rules of the request's groups allow the host."""
    for position in range(len(ask.groups)):
        group = ask.groups[position]
        scope, rule = groups.info[group, SCOPE], groups.info[group, RULE]
        if groups.info[group, HARD] == 0:
            continue
        domain = hosts.domain[row, scope]
        if domain < 0:
            return False
        if rule == AFFINITY and groups.members[group] == 0:
            continue
        at = entry_of(groups.keys, (group * SCOPES + scope) << 32 | domain)
        count = groups.counts[at] if groups.keys[at] != EMPTY else 0
        if rule == AFFINITY:
            if count == 0:
                return False
        elif rule == ANTI_AFFINITY:
            if count > 0:
                return False
        elif count + 1 - ask.fewest[position] > groups.info[group, MAX_SKEW]:
            return False
    return True


@inlined
def may_take(
    hosts: HostArrays, marks: Int64Array, groups: GroupArrays, ask: Ask, need: Need, row: int
) -> bool:
    """Say whether the host takes VMs and this one fits."""
    if (
        hosts.headroom[row, CPU] < need.cpu
        or hosts.headroom[row, MEMORY] < need.memory
        or hosts.headroom[row, DISK] < need.disk
        or hosts.headroom[row, need.slots_at] < 1
        or not hosts.takes[row]
    ):
        return False
    if need.word >= 0 and (marks[row, need.word] >> need.bit) & 1 == 0:
        return False
    if need.ruled == 0:
        return True
    terms = ask.terms
    listed, excluded = terms[T_CANDIDATE_COUNT], terms[T_EXCLUDED_COUNT]
    if listed >= 0 and not in_sorted(ask.lists, terms[T_CANDIDATES], listed, row):
        return False
    if excluded > 0 and in_sorted(ask.lists, terms[T_EXCLUDED], excluded, row):
        return False
    if not groups_let(hosts, groups, ask, row):
        return False
    if terms[T_DEVICES] > 0 and row_devices(hosts, ask, row) == 0:
        return False
    return terms[T_NUMA] == ANY or row_cells(hosts, ask, row, int64(LOWEST)) != 0


@inlined
def score_of(
    score: int, hosts: HostArrays, ask: Ask, keys: Int64Array, mix: MixArrays, row: int
) -> int:
    """Return one host's score: the kept one, or one made for the request."""
    if score == SCORE_BALANCE:
        uneven = imbalance_here(hosts, row) if ask.terms[T_NUMA] == ONE_CELL else 0
        return SCORE_ONE - uneven
    if score == SCORE_DOT:
        return -alignment_here(hosts.headroom[row], ask.demand, asked_devices(ask))
    if score == SCORE_FRAGMENTS:
        return worth_lost(hosts, ask, mix, row)
    return int64(keys[row])


@inlined
def goes_before(score: int, hosts: HostArrays, mix: MixArrays, row: int, other: int) -> bool:
    """Say which of two hosts of the same score goes first: the lower number, mostly."""
    if score == SCORE_FRAGMENTS:
        mine, theirs = primary_left(hosts, mix, row), primary_left(hosts, mix, other)
        if mine != theirs:
            return mine < theirs
    return row < other


@kernel
def scan_amounts(
    headroom: Int64Array,
    takes: BoolArray,
    marks: Int64Array,
    keys: Int64Array,
    need: Need,
    rows: int,
) -> tuple[int, int]:
    """Scan for a request that is all amounts and mark, by kept score: the loop at its tightest."""
    best_row, best = int64(NOWHERE), int64(MOST)
    for row in range(rows):
        if (
            headroom[row, CPU] < need.cpu
            or headroom[row, MEMORY] < need.memory
            or headroom[row, DISK] < need.disk
            or headroom[row, need.slots_at] < 1
            or not takes[row]
            or (need.word >= 0 and (marks[row, need.word] >> need.bit) & 1 == 0)
        ):
            continue
        if keys[row] < best:
            best_row, best = row, keys[row]
    return best_row, best


@inlined
def scan_all(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ask: Ask,
    options: Int64Array,
    keys: Int64Array,
    mix: MixArrays,
) -> tuple[int, int]:
    """Return the host with the least (total, host number) and its total."""
    way, score, rows = options[S_WAY], options[S_SCORE], options[S_ROWS]
    need, charged = need_of(hosts, ask), ask.counts[A_CHARGED]
    if way == BY_KEY and need.ruled == 0 and charged == 0:
        return scan_amounts(hosts.headroom, hosts.takes, marks, keys, need, rows)
    first_only = charged == 0 and way in (BY_NUMBER, BY_TURN)
    best_row, best = int64(NOWHERE), int64(MOST)
    # By turn the hosts after the cursor come first.
    split = max(0, options[S_CURSOR] + 1) if way == BY_TURN else 0
    for start, end in ((split, rows), (0, split)):
        for row in range(start, end):
            if not may_take(hosts, marks, groups, ask, need, row):
                continue
            total = score_of(score, hosts, ask, keys, mix, row)
            if first_only:
                return row, total
            if charged:
                total += row_penalty(hosts, marks, groups, ask, row)
            if total < best or (
                total == best and way != BY_TURN and goes_before(score, hosts, mix, row, best_row)
            ):
                best_row, best = row, total
    return best_row, best


@inlined
def draw_from_all(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ask: Ask,
    options: Int64Array,
    seed: int,
    fits: BoolArray,
) -> tuple[int, int]:
    """Return the host that the request's seed draws from all that fit, and its penalty."""
    best_row, best = int64(NOWHERE), int64(MOST)
    need = need_of(hosts, ask)
    for row in range(options[S_ROWS]):
        fits[row] = may_take(hosts, marks, groups, ask, need, row)
    if ask.counts[A_CHARGED] == 0:
        for number in range(GUESSES):
            row = draw(seed, number, len(fits))
            if row < options[S_ROWS] and fits[row]:
                return row, int64(0)
    for row in range(options[S_ROWS]):
        if fits[row]:
            total = draw(seed, GUESSES + row, WEIGHT_ONE)
            total += row_penalty(hosts, marks, groups, ask, row)
            if total < best:
                best_row, best = row, total
    if best_row == NOWHERE:
        return best_row, best
    return best_row, row_penalty(hosts, marks, groups, ask, best_row)


@entry_point
def write_plain_keys(hosts: HostArrays, kind: int, keys: Int64Array) -> None:
    """Write every host's key."""
    for row in range(len(keys)):
        keys[row] = host_key(kind, hosts, row)


@entry_point
def plain_batch(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    options: Int64Array,
    mix: MixArrays,
    scratch: Scratch,
    keys: Int64Array,
    fits: BoolArray,
    rows: Int32Array,
    scores: Int64Array,
) -> None:
    """Answer requests one after the other, and charge the hosts when told to commit."""
    resources = batch.demand.shape[1]
    score = options[S_SCORE]
    for index in range(len(rows)):
        ask = ready_ask(groups, tables, batch, index, scratch)
        demand = ask.demand
        own = own_key(score, ask)
        if options[S_WAY] == BY_DRAW:
            seed = batch.seed[index]
            row, total = draw_from_all(hosts, marks, groups, ask, options, seed, fits)
        else:
            row, total = scan_all(hosts, marks, groups, ask, options, keys, mix)
        rows[index] = row
        scores[index] = total - own
        if row == NOWHERE or options[S_COMMIT] == 0:
            continue
        if options[S_WAY] == BY_TURN:
            options[S_CURSOR] = row
        if score == SCORE_FRAGMENTS:
            devices, cells, _ = thriftiest(hosts, ask, mix, row)
        else:
            devices = row_devices(hosts, ask, row)
            cells = row_cells(hosts, ask, row, options[S_CELL_RULE])
        charge_host(
            hosts, row, demand, batch.expected[index], ask.terms[T_MILLI], devices, cells, int64(1)
        )
        if devices or cells:
            refresh_host_extras(hosts, row, resources)
        for position in range(len(ask.groups)):
            add_member(groups, ask.groups[position], hosts.domain[row], int64(1))
        keys[row] = host_key(score, hosts, row)


@entry_point
def plain_fits(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    scratch: Scratch,
    fits: BoolArray,
) -> None:
    """Say of every host whether it may take the first request."""
    ask = ready_ask(groups, tables, batch, 0, scratch)
    need = need_of(hosts, ask)
    for row in range(len(fits)):
        fits[row] = may_take(hosts, marks, groups, ask, need, row)
