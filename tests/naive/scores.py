"""Twins of the strategies' scores and of the penalties, in Python's big integers.

Lower is better. The twin of `fragmentation` is in worth.py.
"""

from collections.abc import Callable

from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import TaintEffect
from roost.model.resources import NumaMode
from tests.naive.filters import members_beside, term_holds, tolerates
from tests.naive.fleet import Ask, Row
from tests.naive.numbers import (
    REFERENCE,
    REFERENCE_DEVICES,
    SCORE_ONE,
    WEIGHT_ONE,
    WEIGHTS,
    ratio,
)

#: A prefer-not taint charges half a score, however many there are.
PREFER_NOT = 50
#: A host with devices charges a VM without any one whole score.
KEEP_DEVICES = 100

#: A soft group charges for at most so many members.
MOST_CHARGED = 16


def least_loaded(row: Row, ask: Ask) -> int:
    """0.4 cpu + 0.4 memory + 0.2 disk of committed / capacity before the placement."""
    return sum(
        weight * ratio(row.committed.get(name, 0), row.capacity.get(name, 0))
        for name, weight in WEIGHTS.items()
    )


def amounts_left(row: Row, ask: Ask) -> int:
    """0.4 cpu + 0.4 memory + 0.2 disk of what stays free, each over the reference host."""
    amounts = dict(ask.request.demand.amounts())
    return sum(
        weight * (ratio(row.free(name), REFERENCE[name]) - ratio(amounts[name], REFERENCE[name]))
        for name, weight in WEIGHTS.items()
    )


def devices_asked(ask: Ask) -> int:
    """Thousandths of devices that the VM asks for."""
    devices = ask.request.demand.devices
    return 0 if devices is None else devices.count * devices.milli


def devices_free(row: Row) -> int:
    """Free thousandths of all devices of the host."""
    return sum(max(0, free) for free in row.device_free)


def best_fit(row: Row, ask: Ask) -> int:
    """What amounts stay free, and one whole score for eight free devices."""
    left = ratio(devices_free(row), REFERENCE_DEVICES)
    return amounts_left(row, ask) + 10 * (left - ratio(devices_asked(ask), REFERENCE_DEVICES))


def worst_fit(row: Row, ask: Ask) -> int:
    """The most amounts left first, whatever devices there are."""
    return -amounts_left(row, ask)


def fewest_vms(row: Row, ask: Ask) -> int:
    """A hundredth of a score per VM."""
    return row.vms * (SCORE_ONE // 100)


def by_number(row: Row, ask: Ask) -> int:
    """Every host scores the same."""
    return 0


def dot_product(row: Row, ask: Ask) -> int:
    """Demand times free amount, each over the reference and in 15 fraction bits, at most 1024."""
    amounts = dict(ask.request.demand.amounts())

    def half(amount: int, whole: int) -> int:
        return min(ratio(amount, whole), 1024 * 2**30) // 2**15

    devices = half(devices_asked(ask), REFERENCE_DEVICES)
    return -10 * devices * half(devices_free(row), REFERENCE_DEVICES) - sum(
        weight * half(amounts[name], REFERENCE[name]) * half(row.free(name), REFERENCE[name])
        for name, weight in WEIGHTS.items()
    )


def balance_fit(row: Row, ask: Ask) -> int:
    """One score less how unevenly the cells are free; only a VM in one cell looks at them."""
    shares = [
        min(ratio(free[0], cell.cpu_milli), ratio(free[1], cell.memory_bytes))
        for free, cell in zip(row.cell_free, row.spec.cells, strict=True)
    ]
    uneven = 0
    if shares and ask.request.demand.numa is NumaMode.ONE_CELL:
        uneven = (max(shares) - min(shares) + 2**9) // 2**10 * 2**10
    return 10 * 2**30 - 10 * uneven


def metrics_based(row: Row, ask: Ask) -> int:
    """Half of the predicted shares of the machine's cpu and memory; unknown is ten scores more."""
    if row.predicted is None:
        return 10 * SCORE_ONE + least_loaded(row, ask)
    totals = row.spec.cpu.total, row.spec.memory.total
    shares = (ratio(row.predicted[at] + row.use[at], totals[at] or 0) for at in range(2))
    return sum(5 * min(share, 9 * 2**30) for share in shares)


#: Hours by which a VM may outlast all others on its host, tier by tier.
TIER_HOURS = (0, 1, 4, 16, 64, 256)


def lifetime_aware(row: Row, ask: Ask) -> int:
    """Four scores for each tier of how long the VM outlasts the host's others, then best fit."""
    end = ask.request.expected.ends_s
    tier = len(TIER_HOURS)
    if not row.ends:
        tier += 1  # an empty host comes last
    elif None in row.ends:  # it has one that may stay for ever
        tier = 0
    elif end is not None:
        longer = end - max(row.ends)
        tier = next((at for at, most in enumerate(TIER_HOURS) if longer <= 3600 * most), tier)
    return 4 * tier * SCORE_ONE + best_fit(row, ask)


SCORES: dict[str, Callable[[Row, Ask], int]] = {
    "least_loaded": least_loaded,
    "best_fit": best_fit,
    "round_robin": by_number,
    "random": by_number,
    "fewest_vms": fewest_vms,
    "first_fit": by_number,
    "worst_fit": worst_fit,
    "dot_product": dot_product,
    "balance_fit": balance_fit,
    "metrics_based": metrics_based,
    "lifetime_aware": lifetime_aware,
}


def unmet_preferences(row: Row, ask: Ask) -> int:
    """Return the weights of the preferences the host does not satisfy."""
    labels = dict(row.spec.labels)
    return sum(
        preference.weight
        for preference in ask.request.constraints.preferences
        if not term_holds(preference.term, labels)
    )


def shunned(row: Row, ask: Ask) -> int:
    """Return what the host's prefer-not taints charge."""
    tolerations = ask.request.constraints.tolerations
    disliked = any(
        taint.effect is TaintEffect.PREFER_NOT and not tolerates(tolerations, taint)
        for taint in row.spec.taints
    )
    return PREFER_NOT if disliked else 0


def soft_group(row: Row, ask: Ask, group: GroupSpec) -> int:
    """Return what one soft group charges."""
    members = members_beside(row, ask, group)
    if row.domain(group.scope) is None:
        return group.weight
    if group.rule is GroupRule.AFFINITY:
        return group.weight if ask.sizes[group.name] > 0 and members == 0 else 0
    if group.rule is GroupRule.ANTI_AFFINITY:
        return group.weight * min(members, MOST_CHARGED)
    return group.weight * min(max(0, members - ask.fewest[group.name]), MOST_CHARGED)


def penalty(row: Row, ask: Ask) -> int:
    """Return what preferences, prefer-not taints and soft groups charge the host."""
    hundredths = unmet_preferences(row, ask) + shunned(row, ask)
    if row.spec.devices and ask.request.demand.devices is None:
        hundredths += KEEP_DEVICES
    hundredths += sum(soft_group(row, ask, group) for group in ask.groups if not group.hard)
    return hundredths * WEIGHT_ONE
