"""Losses rehearsed: would every VM of a lost domain find another host?

One loss after the other: its hosts are taken out of the ranking, its VMs are placed as a batch
until the first refusal, and everything is put back.
"""

from typing import NamedTuple

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import HostArrays, Int32Array, Int64Array
from roost.placement.kernels.compiling import entry_point, int64, kernel
from roost.placement.kernels.decide import (
    O_CURSOR,
    O_NEXT,
    Batch,
    Decisions,
    Scratch,
    Tables,
    decide,
    take_back,
)
from roost.placement.kernels.fragments import MixArrays
from roost.placement.kernels.ranking import M_FREE_BLOCKS, Ranking, refile
from roost.placement.kernels.search import NOWHERE
from roost.placement.kernels.tally import add_member


class Losses(NamedTuple):
    """Losses as columns: loss i takes hosts and VMs from start[i] to start[i + 1].

    | field | dtype, shape | meaning |
    |---|---|---|
    | host_start, hosts | int64 [losses + 1], int64 [n] | the rows that go away |
    | vm_start | int64 [losses + 1] | where each loss's VMs begin |
    | demand, terms, group_set, seed | as in `Batch` | the VMs, the largest of a loss first |
    | vm_host | int64 [vms] | where each VM is now |
    | expected | as in `Batch` | what is expected of each VM |
    """

    host_start: Int64Array
    hosts: Int64Array
    vm_start: Int64Array
    demand: Int64Array
    terms: Int32Array
    group_set: Int32Array
    seed: Int64Array
    vm_host: Int64Array
    expected: Int64Array


@kernel
def count_members(
    hosts: HostArrays,
    groups: GroupArrays,
    losses: Losses,
    start: int,
    end: int,
    amount: int,
) -> None:
    """Take the VMs of a loss out of their groups, or put them back."""
    for vm in range(start, end):
        group_set = losses.group_set[vm]
        for at in range(groups.set_start[group_set], groups.set_start[group_set + 1]):
            add_member(groups, groups.set_groups[at], hosts.domain[losses.vm_host[vm]], amount)


@entry_point
def first_not_survived(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    tables: Tables,
    losses: Losses,
    out: Decisions,
    options: Int64Array,
    mix: MixArrays,
    scratch: Scratch,
    first: int,
) -> int:
    """Return the first loss from `first` on that is not survived, or the number of losses.

    -1 - loss means that the ranking ran out of blocks there: rebuild it and go on from there.
    """
    cursor = options[O_CURSOR]
    for loss in range(first, len(losses.vm_start) - 1):
        start, end = losses.vm_start[loss], losses.vm_start[loss + 1]
        filed = True
        for at in range(losses.host_start[loss], losses.host_start[loss + 1]):
            row = losses.hosts[at]
            out.runner_row[at] = hosts.takes[row]  # to be put back below
            hosts.takes[row] = False
            filed &= refile(ranking, hosts, marks, row)
        count_members(hosts, groups, losses, start, end, int64(-1))
        options[O_NEXT] = 0
        options[O_CURSOR] = cursor
        batch = Batch(
            losses.demand[start:end],
            losses.terms[start:end],
            losses.group_set[start:end],
            losses.seed[start:end] if len(losses.seed) > 0 else losses.seed,
            losses.expected[start:end],
            losses.hosts[:0],
        )
        answers = Decisions(
            out.row[start:end],
            out.score[start:end],
            out.devices[start:end],
            out.cells[start:end],
            out.runner_row,
            out.runner_score,
            out.parts,
            out.ends[start:end],
        )
        answers.row[:] = NOWHERE
        answered = decide(
            hosts, marks, groups, ranking, tables, batch, answers, options, mix, scratch
        )
        crowded = answered < end - start and ranking.meta[M_FREE_BLOCKS] <= 1
        filed &= take_back(hosts, marks, groups, ranking, tables, batch, answers, int64(0))
        count_members(hosts, groups, losses, start, end, int64(1))
        for at in range(losses.host_start[loss], losses.host_start[loss + 1]):
            hosts.takes[losses.hosts[at]] = out.runner_row[at] != 0
            filed &= refile(ranking, hosts, marks, losses.hosts[at])
        options[O_CURSOR] = cursor
        if crowded or not filed:
            return -1 - loss
        if answered < end - start:
            return loss
    return len(losses.vm_start) - 1
