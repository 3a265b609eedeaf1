"""The least harmful set of VMs whose leaving makes room for a request, over all hosts.

Sets are compared by their harm, less is better: the highest priority in it, how many VMs, how many
of them are stopped rather than moved, what moving them costs, and how young they are. On each host
the level is found first: the lowest priority up to which enough could leave. Every set of VMs up to
that level has it as its highest priority, so the smallest of them is left to find, size by size. A
host whose search takes too long is answered by dropping VMs from the whole level,
the most harmful first, as long as enough is left: then no VM leaves in vain, though another set may
do less harm.
"""

from typing import NamedTuple

from roost.fleet.layout import Int64Array
from roost.placement.kernels.compiling import entry_point, inlined, kernel

#: VMs of one host that are looked at: the least important ones.
MOST_ON_HOST = 64
#: Sets that are begun on one host before it is answered in the short way.
MOST_SETS = 20_000

#: Columns of `Choice.harm`, and how many there are.
H_PRIORITY, H_COUNT, H_STOPS, H_COST, H_SINCE, HARM = range(6)
#: Columns of `Crowd.facts`.
F_PRIORITY, F_STOPS, F_COST, F_SINCE, F_BUDGET, FACTS = range(6)

#: Worse than any harm.
MOST_HARM = 2**62


class Crowd(NamedTuple):
    """VMs that may make room: those of a host beside each other, the least important first.

    All int64.

    | field | shape | meaning |
    |---|---|---|
    | start | [hosts + 1] | where the VMs of each host begin |
    | lacks | [hosts, columns] | how much of each is missing for the request; 0 or less: nothing |
    | relief | [vms, columns] | how much of each a VM gives back |
    | facts | [vms, FACTS] | priority; 1 if stopped; cost; since when; row of `budgets` or -1 |
    | budgets | [kinds, most] | disruption budgets that VMs of a kind are in, -1 behind the last |
    | allowed | [budgets] | how many VMs of each disruption budget may leave at once |
    """

    start: Int64Array
    lacks: Int64Array
    relief: Int64Array
    facts: Int64Array
    budgets: Int64Array
    allowed: Int64Array


class Choice(NamedTuple):
    """The best set so far: its host, harm and VMs, and working arrays, all int64."""

    host: Int64Array  # [1], -1: none
    harm: Int64Array  # [HARM]
    chosen: Int64Array  # [MOST_ON_HOST]
    picked: Int64Array  # [MOST_ON_HOST + 1]
    left: Int64Array  # [MOST_ON_HOST + 1, columns]
    most: Int64Array  # [MOST_ON_HOST + 1, columns]


@inlined
def is_less(stops: int, cost: int, since: int, harm: Int64Array) -> bool:
    """Compare sets of the same level and size; the youngest came last."""
    if stops != harm[H_STOPS]:
        return stops < harm[H_STOPS]
    if cost != harm[H_COST]:
        return cost < harm[H_COST]
    return since > harm[H_SINCE]


@inlined
def keep(crowd: Crowd, choice: Choice, host: int, level: int, count: int) -> None:
    """Keep the picked VMs if they are the best set so far."""
    stops = cost = since = 0
    for at in range(count):
        facts = crowd.facts[choice.picked[at]]
        stops += facts[F_STOPS]
        cost += facts[F_COST]
        since += facts[F_SINCE]
    harm = choice.harm
    if level == harm[H_PRIORITY] and count == harm[H_COUNT]:
        if not is_less(stops, cost, since, harm):
            return
    elif level > harm[H_PRIORITY] or (level == harm[H_PRIORITY] and count > harm[H_COUNT]):
        return
    choice.host[0] = host
    harm[H_PRIORITY], harm[H_COUNT] = level, count
    harm[H_STOPS], harm[H_COST], harm[H_SINCE] = stops, cost, since
    for at in range(count):
        choice.chosen[at] = choice.picked[at]


@inlined
def has_budget(crowd: Crowd, kind: int, budget: int) -> bool:
    """Say whether VMs of a kind count against a disruption budget."""
    if kind >= 0:
        for at in range(crowd.budgets.shape[1]):
            if crowd.budgets[kind, at] == budget:
                return True
    return False


@inlined
def is_within(crowd: Crowd, choice: Choice, vm: int, count: int) -> bool:
    """Say whether one more VM is within all its disruption budgets beside those picked before."""
    kind = crowd.facts[vm, F_BUDGET]
    if kind < 0:
        return True
    for place in range(crowd.budgets.shape[1]):
        budget = crowd.budgets[kind, place]
        if budget < 0:
            return True
        taken = 1
        for at in range(count):
            if has_budget(crowd, crowd.facts[choice.picked[at], F_BUDGET], budget):
                taken += 1
        if taken > crowd.allowed[budget]:
            return False
    return True


@kernel
def write_most(crowd: Crowd, choice: Choice, first: int, end: int) -> None:
    """Write the most that so many VMs of a host can give back, column by column."""
    most = choice.most
    for column in range(most.shape[1]):
        count = 0
        for vm in range(first, end):
            value = crowd.relief[vm, column]
            at = count
            while at > 0 and most[at, column] < value:
                most[at + 1, column] = most[at, column]
                at -= 1
            most[at + 1, column] = value
            count += 1
        most[0, column] = 0
        for at in range(1, count + 1):
            most[at, column] += most[at - 1, column]


@inlined
def can_cover(choice: Choice, depth: int, more: int) -> bool:
    """Say whether so many more VMs could give back what is still missing."""
    for column in range(choice.left.shape[1]):
        if choice.left[depth, column] > choice.most[more, column]:
            return False
    return True


@kernel
def search(
    crowd: Crowd, choice: Choice, host: int, first: int, end: int, level: int, size: int
) -> int:
    """Look at the sets of one size; return how many were found, or -1 when there are too many."""
    picked, left = choice.picked, choice.left
    columns = left.shape[1]
    for column in range(columns):
        left[0, column] = crowd.lacks[host, column]
    depth, vm, found, begun = 0, first, 0, 0
    while depth >= 0:
        more = size - depth
        if more == 0 or vm > end - more or not can_cover(choice, depth, more):
            if more == 0 and can_cover(choice, depth, 0):
                found += 1
                keep(crowd, choice, host, level, size)
            depth -= 1
            if depth >= 0:
                vm = picked[depth] + 1
            continue
        if not is_within(crowd, choice, vm, depth):
            vm += 1
            continue
        begun += 1
        if begun > MOST_SETS:
            return -1
        picked[depth] = vm
        for column in range(columns):
            left[depth + 1, column] = left[depth, column] - crowd.relief[vm, column]
        depth += 1
        vm += 1
    return found


@kernel
def drop_needless(crowd: Crowd, choice: Choice, host: int, first: int, end: int, level: int) -> int:
    """Keep a set that no VM can be left out of; return its size, 0 when budgets forbid it."""
    picked, left = choice.picked, choice.left
    columns, count = left.shape[1], 0
    for column in range(columns):
        left[0, column] = crowd.lacks[host, column]
    for vm in range(first, end):
        if is_within(crowd, choice, vm, count):
            picked[count] = vm
            count += 1
            for column in range(columns):
                left[0, column] -= crowd.relief[vm, column]
    for column in range(columns):
        if left[0, column] > 0:
            return 0
    at = count - 1  # the last are the most important
    while at >= 0:
        vm, needless = picked[at], True
        for column in range(columns):
            if left[0, column] + crowd.relief[vm, column] > 0:
                needless = False
        if needless:
            for column in range(columns):
                left[0, column] += crowd.relief[vm, column]
            count -= 1
            for later in range(at, count):
                picked[later] = picked[later + 1]
        at -= 1
    highest = crowd.facts[picked[0], F_PRIORITY]
    for at in range(count):
        highest = max(highest, crowd.facts[picked[at], F_PRIORITY])
    keep(crowd, choice, host, highest, count)
    return count


@kernel
def search_level(crowd: Crowd, choice: Choice, host: int, first: int, end: int, level: int) -> bool:
    """Look for the best set among the VMs up to one level; say whether there is any."""
    write_most(crowd, choice, first, end)
    for column in range(choice.left.shape[1]):
        choice.left[0, column] = crowd.lacks[host, column]
    for size in range(1, end - first + 1):
        if level == choice.harm[H_PRIORITY] and size > choice.harm[H_COUNT]:
            return True  # there may be one, but it is no better
        if not can_cover(choice, 0, size):
            continue
        found = search(crowd, choice, host, first, end, level, size)
        if found < 0:
            return drop_needless(crowd, choice, host, first, end, level) > 0
        if found > 0:
            return True
        for column in range(choice.left.shape[1]):
            choice.left[0, column] = crowd.lacks[host, column]
    return False


@kernel
def search_host(crowd: Crowd, choice: Choice, host: int) -> None:
    """Look for a set on one host, level by level, as long as it may be the best."""
    first = crowd.start[host]
    end = min(crowd.start[host + 1], first + MOST_ON_HOST)
    columns = choice.left.shape[1]
    left = choice.left
    for column in range(columns):
        left[0, column] = crowd.lacks[host, column]
    vm = first
    while vm < end:
        level = crowd.facts[vm, F_PRIORITY]
        if level > choice.harm[H_PRIORITY]:
            return
        while vm < end and crowd.facts[vm, F_PRIORITY] == level:
            vm += 1
        covered = True
        for column in range(columns):
            missing = crowd.lacks[host, column]
            for each in range(first, vm):
                missing -= crowd.relief[each, column]
            if missing > 0:
                covered = False
        if covered and search_level(crowd, choice, host, first, vm, level):
            return


@entry_point
def deal(host: Int64Array, priority: Int64Array, order: Int64Array, start: Int64Array) -> None:
    """Deal VMs to their hosts, the least important first, else as they were.

    `order` gets their places, `start` where those of each host begin.
    """
    for at in range(len(start)):
        start[at] = 0
    for vm in range(len(host)):
        start[host[vm] + 1] += 1
    for at in range(1, len(start)):
        start[at] += start[at - 1]
    # Filled from the front: the start of each host moves on, and is put back afterwards.
    for vm in range(len(host)):
        order[start[host[vm]]] = vm
        start[host[vm]] += 1
    for at in range(len(start) - 1, 0, -1):
        start[at] = start[at - 1]
    start[0] = 0
    for place in range(len(start) - 1):
        for at in range(start[place] + 1, start[place + 1]):
            vm, to = order[at], at
            while to > start[place] and priority[order[to - 1]] > priority[vm]:
                order[to] = order[to - 1]
                to -= 1
            order[to] = vm


@entry_point
def least_victims(crowd: Crowd, choice: Choice) -> None:
    """Find the least harmful set over all hosts; the first host wins a tie."""
    for host in range(len(crowd.start) - 1):
        search_host(crowd, choice, host)
