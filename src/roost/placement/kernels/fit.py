"""May this host take this VM, with which devices and cells, and at what penalty.

An `Ask` is one request made ready: what it needs in headroom, the compiled terms, its groups.
`row_fits` is the whole rule; the block tests of search.py only ever skip what it would refuse.
"""

from typing import NamedTuple

from roost.fleet.assign import ANY, LOWEST, pick_cells, pick_devices
from roost.fleet.groups import GroupArrays
from roost.fleet.layout import CPU, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined, int64, kernel
from roost.placement.kernels.domain_bits import WHERE
from roost.placement.kernels.tally import WEIGHT_ONE, groups_allow, groups_penalty

#: Columns of a compiled terms row.
(
    T_WORD,  # word and bit of the selector in the marks, word -1: every host matches
    T_BIT,
    T_DEVICES,
    T_MILLI,
    T_DEVICE_MEMORY,
    T_MODELS,
    T_NUMA,
    T_CANDIDATES,  # start and number of a sorted list of matching hosts, number -1: no such list
    T_CANDIDATE_COUNT,
    T_EXCLUDED,  # start and number of excluded hosts
    T_EXCLUDED_COUNT,
    T_WISHES,  # start and number of (word, bit, weight) preferences
    T_WISH_COUNT,
    T_FLOORS,  # start and number of (headroom column, least) pairs that rules ask for
    T_FLOOR_COUNT,
    T_LINES,  # start and number of inequalities between a host's amounts, see `lines_hold`
    T_LINE_COUNT,
    T_COLUMNS,
) = range(18)

#: Where a term of an inequality reads its amount; the number of VMs has no column.
L_FREE, L_COMMITTED, L_CAPACITY, L_VMS, L_TOTAL = range(5)

#: Entries of `Ask.counts`.
A_EXACT, A_ALL, A_RULES, A_CHARGED, A_RACKS, A_ZONES, A_ENDS = range(7)
A_COUNTS = 7

devices_for = kernel(pick_devices)
cells_for = kernel(pick_cells)


class Ask(NamedTuple):
    """One request, ready to be compared with hosts.

    A host has room if its headroom is at least `least[i]` in each of the first A_EXACT of the
    `columns`; the ones after that follow from those and only sharpen the bounds of blocks.
    """

    columns: Int64Array
    least: Int64Array
    # exact columns, all columns, has rules beside room and mark, has penalties, the racks and
    # zones that affinity leaves as bits of `domain_bits`, and when the VM is expected to be gone
    counts: Int64Array
    demand: Int64Array  # amounts, by resource
    terms: Int64Array  # compiled terms row
    lists: Int64Array  # pool that the terms point into
    groups: Int64Array  # numbers of the VM's groups
    fewest: Int64Array  # smallest member count per group, for spread rules
    skip: Int64Array  # hosts to leave out (runners-up, then -1)


@inlined
def asked_devices(ask: Ask) -> int:
    """Return the thousandths of devices that a request asks for, all devices together."""
    return ask.terms[T_DEVICES] * ask.terms[T_MILLI]


@inlined
def marked(marks: Int64Array, row: int, word: int, bit: int) -> bool:
    """Say whether a host has a selector's mark."""
    return (marks[row, word] >> bit) & 1 == 1


@inlined
def in_company(where: int, ask: Ask) -> bool:
    """Say whether a host, or one of several, may be where affinity leaves room."""
    return where & ask.counts[A_RACKS] != 0 and where & ask.counts[A_ZONES] != 0


@inlined
def has_room(headroom: Int64Array, ask: Ask, row: int) -> bool:
    """Say whether a host has enough headroom in every column."""
    for position in range(ask.counts[A_EXACT]):
        if headroom[row, ask.columns[position]] < ask.least[position]:
            return False
    return True


@inlined
def row_fits(hosts: HostArrays, marks: Int64Array, groups: GroupArrays, ask: Ask, row: int) -> bool:
    """Say whether the host passes every filter."""
    if not has_room(hosts.headroom, ask, row):
        return False
    word = ask.terms[T_WORD]
    if word >= 0 and not marked(marks, row, word, ask.terms[T_BIT]):
        return False
    if ask.counts[A_RULES] == 0:
        return True
    return in_company(marks[row, WHERE], ask) and rules_allow(hosts, groups, ask, row)


@kernel
def in_sorted(values: Int64Array, start: int, count: int, wanted: int) -> bool:
    """Say whether a sorted slice of `values` holds a number."""
    low, high = start, start + count
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < start + count and values[low] == wanted


@kernel
def rules_allow(hosts: HostArrays, groups: GroupArrays, ask: Ask, row: int) -> bool:
    """Say whether a host with room and mark passes what only it can be asked."""
    terms = ask.terms
    for position in range(len(ask.skip)):
        if ask.skip[position] == row:
            return False
    if terms[T_EXCLUDED_COUNT] > 0 and in_sorted(
        ask.lists, terms[T_EXCLUDED], terms[T_EXCLUDED_COUNT], row
    ):
        return False
    if terms[T_DEVICES] > 0 and row_devices(hosts, ask, row) == 0:
        return False
    if terms[T_NUMA] != ANY and row_cells(hosts, ask, row, int64(LOWEST)) == 0:
        return False
    if terms[T_LINE_COUNT] > 0 and not lines_hold(hosts, ask, row):
        return False
    return len(ask.groups) == 0 or groups_allow(hosts, groups, ask.groups, ask.fewest, row)


@kernel
def lines_hold(hosts: HostArrays, ask: Ask, row: int) -> bool:
    """Say whether every inequality of the terms holds on this host.

    One lies in the lists as its number of terms, its bound, and for each term where to read,
    which column, and the factor: it holds if the sum of factor x amount is at least the bound.
    Whoever writes one sees to it that no sum can overflow.
    """
    at = ask.terms[T_LINES]
    for _ in range(ask.terms[T_LINE_COUNT]):
        total = int64(0)
        for term in range(ask.lists[at]):
            entry = at + 2 + 3 * term
            source, column = ask.lists[entry], ask.lists[entry + 1]
            if source == L_FREE:
                amount = hosts.headroom[row, column]
            elif source == L_COMMITTED:
                amount = hosts.committed[row, column]
            elif source == L_CAPACITY:
                amount = hosts.capacity[row, column]
            elif source == L_TOTAL:
                amount = max(hosts.total[row, column], 0)  # unknown is nothing
            else:
                amount = hosts.vm_count[row]
            total += ask.lists[entry + 2] * amount
        if total < ask.lists[at + 1]:
            return False
        at += 2 + 3 * ask.lists[at]
    return True


@kernel
def row_devices(hosts: HostArrays, ask: Ask, row: int) -> int:
    """Return the devices the VM would get on this host, as a bit mask."""
    terms = ask.terms
    if terms[T_DEVICES] == 0:
        return 0
    return devices_for(
        hosts, row, terms[T_DEVICES], terms[T_MILLI], terms[T_DEVICE_MEMORY], terms[T_MODELS]
    )


@kernel
def row_cells(hosts: HostArrays, ask: Ask, row: int, rule: int) -> int:
    """Return the NUMA cells the VM would get on this host, as a bit mask."""
    if ask.terms[T_NUMA] == ANY:
        return 0
    return cells_for(hosts, row, ask.demand[CPU], ask.demand[MEMORY], ask.terms[T_NUMA], rule)


@kernel
def row_penalty(
    hosts: HostArrays, marks: Int64Array, groups: GroupArrays, ask: Ask, row: int
) -> int:
    """Return what preferences and soft groups charge this host, in score."""
    total = 0
    terms = ask.terms
    for wish in range(terms[T_WISH_COUNT]):
        at = terms[T_WISHES] + 3 * wish
        if not marked(marks, row, ask.lists[at], ask.lists[at + 1]):
            total += ask.lists[at + 2] * WEIGHT_ONE
    if len(ask.groups) > 0:
        total += groups_penalty(hosts, groups, ask.groups, ask.fewest, row)
    return total
