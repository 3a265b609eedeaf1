"""The choice of victims in the plainest way: every set of VMs on every host, compared by harm.

Written from the rule in `placement/preempting.py`, for fleets whose hosts differ in amounts, the
number of their VMs and whether they are open. VMs may be in groups that ask nothing of hosts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class PlainHost:
    """A host: what it has free, how many more VMs it takes, and whether it is open."""

    free: tuple[int, ...]
    slots: int
    is_open: bool


@dataclass(frozen=True)
class PlainVM:
    """A VM that is somewhere: what it asks, how important it is, and how it may leave."""

    host: int
    demand: tuple[int, ...]
    priority: int
    since_ms: int
    leaves: int  # 0 never, 1 by a move, 2 also by being stopped
    groups: tuple[int, ...] = ()


def least_harm(
    hosts: list[PlainHost],
    vms: list[PlainVM],
    wanted: tuple[int, ...],
    priority: int,
    left: Mapping[int, int],
) -> tuple[int, dict[int, bool]] | None:
    """Return the host where room is made, and its victims with whether each is stopped."""
    best: tuple[tuple[int, ...], dict[int, bool]] | None = None
    for row, host in enumerate(hosts):
        if not host.is_open:
            continue
        ways: dict[int, bool] = {}
        for number, vm in enumerate(vms):
            if vm.host == row and vm.priority < priority and vm.leaves:
                if _moves(hosts, vm):
                    ways[number] = False
                elif vm.leaves == 2:
                    ways[number] = True
        for size in range(1, len(ways) + 1):
            for chosen in combinations(ways, size):
                if not _keeps(vms, chosen, left) or not _fits(host, vms, chosen, wanted):
                    continue
                harm = (
                    max(vms[each].priority for each in chosen),
                    size,
                    sum(ways[each] for each in chosen),
                    sum(vms[each].demand[1] + vms[each].demand[2] for each in chosen),
                    -sum(vms[each].since_ms for each in chosen),
                    row,
                )
                if best is None or harm < best[0]:
                    best = harm, {each: ways[each] for each in chosen}
    return None if best is None else (best[0][-1], best[1])


def _moves(hosts: list[PlainHost], vm: PlainVM) -> bool:
    return any(
        row != vm.host
        and host.is_open
        and host.slots >= 1
        and all(need <= free for need, free in zip(vm.demand, host.free, strict=True) if need)
        for row, host in enumerate(hosts)
    )


def _keeps(vms: list[PlainVM], chosen: Iterable[int], left: Mapping[int, int]) -> bool:
    counted: dict[int, int] = {}
    for each in chosen:
        for group in vms[each].groups:
            counted[group] = counted.get(group, 0) + 1
    return all(counted[group] <= left[group] for group in counted if group in left)


def _fits(
    host: PlainHost, vms: list[PlainVM], chosen: tuple[int, ...], wanted: tuple[int, ...]
) -> bool:
    if host.slots + len(chosen) < 1:
        return False
    for column, need in enumerate(wanted):
        back = sum(vms[each].demand[column] for each in chosen)
        if need and need > host.free[column] + back:
            return False
    return True
