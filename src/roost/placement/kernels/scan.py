"""Any score of one host, and the host that `random` draws from all that could take the VM."""

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import BASE, DISK, KNOWN, HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined, int64, kernel
from roost.placement.kernels.fit import (
    A_CHARGED,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    Ask,
    asked_devices,
    in_sorted,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.fixed_point import ratio
from roost.placement.kernels.fragments import (
    MixArrays,
    worth_lost,
)
from roost.placement.kernels.keys import (
    DEVICES_WEIGHT,
    KEY_FREE,
    KEY_FREE_DOWN,
    KEY_LOAD,
    KEY_PREDICTED,
    KIND_MASK,
    REFERENCE_CPU,
    REFERENCE_DEVICES,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    free_devices,
    predicted_share,
    share,
)
from roost.placement.kernels.ranking import (
    ABSENT,
    CLASSES,
    M_LENGTHS,
    P_BLOCK,
    P_CLASS,
    Ranking,
)
from roost.placement.kernels.scores import (
    SCORE_DRAW,
    SCORE_FRAGMENTS,
    SCORE_LIFETIME,
    amount_score,
)
from roost.placement.kernels.search import MOST, NOWHERE, draw, run_covers
from roost.placement.kernels.tally import WEIGHT_ONE

#: Host numbers that `random` guesses before it looks at all hosts: a guess takes some ten
#: nanoseconds, a look at 100,000 hosts a fifth of a millisecond.
GUESSES = 512

#: Parts of a score: cpu, memory and disk by their columns, then devices and penalties.
PART_DEVICES = BASE
PART_PENALTY = BASE + 1
PARTS = BASE + 2


@inlined
def scan_score(score: int, hosts: HostArrays, ask: Ask, seed: int, mix: MixArrays, row: int) -> int:
    """Return one host's score for one request."""
    if score == SCORE_FRAGMENTS:
        return worth_lost(hosts, ask, mix, row)
    if score == SCORE_DRAW:
        return draw(seed, GUESSES + row, WEIGHT_ONE)
    return amount_score(score, hosts, ask, row)


@kernel
def score_parts(score: int, hosts: HostArrays, ask: Ask, row: int, parts: Int64Array) -> None:
    """Write the addends of a host's score that belong to amounts and devices; others get 0."""
    parts[:] = 0
    whole = (REFERENCE_CPU, REFERENCE_MEMORY, REFERENCE_DISK)
    plain = score & KIND_MASK
    for resource in range(BASE):
        if plain == KEY_PREDICTED and hosts.predicted[row, KNOWN] != 0:
            if resource != DISK:
                parts[resource] = predicted_share(hosts, row, resource)
        elif plain == KEY_LOAD or plain == KEY_PREDICTED:
            used = ratio(hosts.committed[row, resource], hosts.capacity[row, resource])
            parts[resource] = share(score, resource, used)
        elif plain == KEY_FREE or plain == KEY_FREE_DOWN or plain == SCORE_LIFETIME:
            free = ratio(hosts.headroom[row, resource], whole[resource])
            asked = ratio(ask.demand[resource], whole[resource])
            left = share(score, resource, free) - share(score, resource, asked)
            parts[resource] = -left if plain == KEY_FREE_DOWN else left
    if plain == KEY_FREE or plain == SCORE_LIFETIME:
        left = ratio(free_devices(hosts, row), REFERENCE_DEVICES)
        parts[PART_DEVICES] = DEVICES_WEIGHT * (left - ratio(asked_devices(ask), REFERENCE_DEVICES))


@kernel
def scan_draws(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    seed: int,
) -> tuple[int, int]:
    """Return the fitting host with the least (draw + penalty, host number).

    In host-number order, which memory likes best; hosts of classes without enough headroom are
    passed over by a look at the ranking.
    """
    best_row, best = int64(NOWHERE), int64(MOST)
    marks_at = hosts.headroom.shape[1]
    roomy = 0
    for which in range(CLASSES):
        if ranking.meta[M_LENGTHS + which] > 0 and run_covers(ranking, which, 0, ask, marks_at):
            roomy |= 1 << which
    for row in range(len(ranking.place)):
        if not roomy >> ranking.place[row, P_CLASS] & 1 or ranking.place[row, P_BLOCK] == ABSENT:
            continue
        if not row_fits(hosts, marks, groups, ask, row):
            continue
        total = draw(seed, GUESSES + row, WEIGHT_ONE)
        if ask.counts[A_CHARGED]:
            total += row_penalty(hosts, marks, groups, ask, row)
        if total < best:
            best, best_row = total, row
    return best_row, best


@kernel
def lowest_draw(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    seed: int,
) -> tuple[int, int]:
    """Return the fitting candidate of least penalty with the lowest draw."""
    best_row, best, best_penalty = int64(NOWHERE), int64(MOST), int64(MOST)
    for position in range(ask.terms[T_CANDIDATE_COUNT]):
        row = ask.lists[ask.terms[T_CANDIDATES] + position]
        if ranking.place[row, P_BLOCK] == ABSENT or not row_fits(hosts, marks, groups, ask, row):
            continue
        penalty = row_penalty(hosts, marks, groups, ask, row)
        total = draw(seed, GUESSES + row, WEIGHT_ONE) + penalty
        if total < best:
            best, best_row, best_penalty = total, row, penalty
    return best_row, best_penalty


@kernel
def search_random(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    seed: int,
) -> tuple[int, int]:
    """Return a uniformly drawn host among the fitting ones of least penalty.

    Guess host numbers first, which is quick while many hosts fit; then give every host that fits
    a draw of its own and take the lowest.
    """
    listed = ask.terms[T_CANDIDATE_COUNT]
    if ask.counts[A_CHARGED] == 0:  # whatever the rules, so that every implementation agrees
        for number in range(GUESSES):
            row = draw(seed, number, len(ranking.place))
            if ranking.place[row, P_BLOCK] == ABSENT:
                continue
            if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
                continue
            if row_fits(hosts, marks, groups, ask, row):
                return row, int64(0)
    if listed >= 0:
        return lowest_draw(hosts, marks, groups, ranking, ask, seed)
    row, _ = scan_draws(hosts, marks, groups, ranking, ask, seed)
    if row == NOWHERE:
        return row, int64(MOST)
    return row, row_penalty(hosts, marks, groups, ask, row)
