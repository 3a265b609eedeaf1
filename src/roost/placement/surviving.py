"""How many copies fit while every single loss could still be restarted elsewhere.

A loss is a host, rack or zone that goes away with all its VMs. It is survived if the engine finds
a new host for each of them, the largest first, by its own strategy and each VM's own rules. The
largest number of copies is found by bisection: with it every loss is survived, with one more some
loss is not; both have been rehearsed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations, islice
from math import comb

import numpy as np

from roost.fleet.layout import CPU, DISK, MEMORY, BoolArray, Int64Array
from roost.model.flow import PlaceRequest, Rejection
from roost.model.groups import GroupRule
from roost.model.hosts import Health, Scope
from roost.placement.kernels.keys import REFERENCE_CPU, REFERENCE_DISK, REFERENCE_MEMORY
from roost.placement.kernels.losses import Losses
from roost.placement.strategies import strategy_named
from roost.placement.whatif import WhatIf, copy_name

#: Losses of several domains at once are tried on so many samples.
_SAMPLES = 64

#: Places copies of the request, (first, count), and returns their hosts.
PlaceCopies = Callable[[int, int], Int64Array]


class Rehearsal:
    """A world with some copies placed, in which losses are tried out."""

    def __init__(
        self, world: WhatIf, request: PlaceRequest, placed: Int64Array, place_copies: PlaceCopies
    ) -> None:
        self._world = world
        self._request = request
        self._placed = placed  # the host of every copy, in the order of placing
        self._place_copies = place_copies
        self._cursor = world.cursor
        self._present = len(placed)
        self._suspects: list[tuple[int, ...]] = []  # losses that were not survived before
        self._tried_all = True  # at the last number of copies that was tried
        self._told: tuple[int, tuple[int, ...], Scope] | None = None  # copies, what is lost
        self.sampled = False  # losses were left out at the number that was found

    def most_that_survive(self, scope: Scope, losses: int) -> tuple[int, str]:
        """Return the number of copies, and the loss that one more would not survive."""
        total = len(self._placed)
        blocking = self._not_survived(total, scope, losses)
        if not blocking:
            self.sampled = not self._tried_all
            return total, ""
        low, high = 0, total
        if problem := self._not_survived(0, scope, losses):
            return 0, problem
        self.sampled = not self._tried_all
        # Losing one of D domains usually costs about a D-th: look there first.
        domains = max(2, len(self._domains(scope)))
        guess, step = total - max(1, total * losses // domains), max(1, total // 64)
        while high - low > 1:
            probe = min(max(guess, low + 1), high - 1)
            problem = self._not_survived(probe, scope, losses)
            if problem:
                high, blocking = probe, problem
                guess = probe - step
            else:
                low, self.sampled = probe, not self._tried_all
                guess = probe + step
            step *= 2
            if low < guess < high and step * 4 <= high - low:
                continue
            guess = (low + high) // 2
        return low, blocking

    def stranded(self) -> Rejection | None:
        """Say which VM finds no host in the loss that one copy more would not survive, and why."""
        if self._told is None:
            return None
        copies, lost, scope = self._told
        self.set_copies(copies)
        losses, numbers = self._losses_and_vms([lost], scope)
        names = self._world.fleet.vms.names
        called = [names.get(number, self._request.name) for number in numbers.tolist()]
        with self._without(losses, 0):
            left = self._first_left(losses, 0)
            if left is None:
                return None
            return self._world.reject_again(
                called[left],
                losses.demand[left],
                int(losses.terms[left]),
                int(losses.group_set[left]),
            )

    def survives(self, losses: list[tuple[int, ...]], scope: Scope) -> bool:
        """Say whether each of some losses, of one or more domains at once, would be survived."""
        return self._first_not_survived(self._losses_of(losses, scope)) == len(losses)

    def not_survived(self, losses: list[tuple[int, ...]], scope: Scope) -> list[int]:
        """Return the places in a list of all losses that would not be survived."""
        columns, found, first = self._losses_of(losses, scope), [], 0
        while first < len(losses):
            first += self._first_not_survived(_part(columns, first, len(losses)))
            if first < len(losses):
                found.append(first)
            first += 1
        return found

    def left(self, lost: tuple[int, ...], scope: Scope) -> list[int]:
        """Return the numbers of the VMs that find no host when these domains are lost."""
        with self.after(lost, scope) as placing:
            return [number for number, placed in placing if not placed]

    @contextmanager
    def after(self, lost: tuple[int, ...], scope: Scope) -> Iterator[Iterator[tuple[int, bool]]]:
        """Take domains away for a while; yield their VMs' numbers as each is placed again or not.

        Who stops asking for more has the world in which a VM was just refused.
        """
        losses, numbers = self._losses_and_vms([lost], scope)
        with self._without(losses, 0):
            yield ((int(numbers[vm]), self._placed_again(losses, vm)) for vm in range(len(numbers)))

    def set_copies(self, count: int) -> None:
        """Go to the world in which just the first `count` copies are placed."""
        world = self._world
        if count < self._present:
            world.withdraw_last(self._present - count, self._request)
            if world.reads_projects:
                for index in range(count, self._present):
                    world.fleet.discount_vm(copy_name(self._request, index))
        world.cursor = int(self._placed[min(count, self._present) - 1]) if count else self._cursor
        if count > self._present:
            self._place_copies(self._present, count - self._present)
        self._present = count

    def _domains(self, scope: Scope) -> Int64Array:
        """Return the domains that hold VMs, the one with most cpu promised first."""
        arrays = self._world.fleet.hosts.arrays
        count = self._world.fleet.hosts.count
        domain = arrays.domain[:count, scope]
        busy = (arrays.vm_count[:count] > 0) & (domain >= 0)
        load = np.bincount(domain[busy], weights=arrays.committed[:count, CPU][busy])
        order = np.argsort(-load, kind="stable")
        return order[load[order] > 0]

    def _not_survived(self, copies: int, scope: Scope, losses: int) -> str:
        """Return the names of domains whose loss would not be survived, or nothing."""
        self.set_copies(copies)
        domains = self._domains(scope).tolist()
        tried = [*self._suspects, *_losses(domains, losses)]
        self._tried_all = comb(len(domains), losses) <= _SAMPLES or losses == 1
        if not tried:
            return ""
        losses_tried = self._losses_of(tried, scope)
        at = self._first_not_survived(losses_tried)
        if at == len(tried):
            return ""
        if tried[at] not in self._suspects:
            self._suspects.insert(0, tried[at])
        self._told = copies, tried[at], scope
        return ", ".join(self._name(scope, each) for each in tried[at])

    def _first_not_survived(self, losses: Losses) -> int:
        """Return the first loss that is not survived, or the number of losses.

        A loss that takes members of a spread group changes which domains count for it; such a
        loss is played through with the engine, all others in one kernel.
        """
        spread = self._spread_sets()
        count = len(losses.vm_start) - 1
        first = 0
        while first < count:
            slow = first
            while slow < count and not spread[losses.group_set[_span(losses.vm_start, slow)]].any():
                slow += 1
            if first < slow:
                quick = self._world.first_not_survived(_part(losses, first, slow))
                if quick < slow - first:
                    return first + quick
            if slow < count and not self._played_through(losses, slow):
                return slow
            first = slow + 1
        return count

    def _spread_sets(self) -> BoolArray:
        """Return, by number, which group sets have a spread rule."""
        groups = self._world.fleet.groups
        return np.array(
            [
                any(groups.specs[group].rule is GroupRule.SPREAD for group in numbers)
                for numbers in groups.sets()
            ],
            np.bool_,
        )

    def _played_through(self, losses: Losses, loss: int) -> bool:
        """Say whether a loss is survived, by placing its VMs again one by one."""
        with self._without(losses, loss):
            return self._first_left(losses, loss) is None

    @contextmanager
    def _without(self, losses: Losses, loss: int) -> Iterator[None]:
        """Take the hosts and VMs of a loss away for a while."""
        world, fleet = self._world, self._world.fleet
        cursor, mark = world.cursor, fleet.mark()
        try:
            for row in losses.hosts[_span(losses.host_start, loss)].tolist():
                for number in fleet.vms.on_host(row).tolist():
                    fleet.remove(number)
                fleet.set_health(fleet.hosts.names[row], Health.OFFLINE)
            yield
        finally:
            fleet.undo(mark)
            world.cursor = cursor

    def _first_left(self, losses: Losses, loss: int) -> int | None:
        """Place the VMs of a loss again, and return the first that finds no host."""
        for vm in range(*_span(losses.vm_start, loss).indices(len(losses.terms))):
            if not self._placed_again(losses, vm):
                return vm
        return None

    def _placed_again(self, losses: Losses, vm: int) -> bool:
        """Place a VM of some losses again, if there is a host for it."""
        return self._world.place_again(
            losses.demand[vm],
            int(losses.terms[vm]),
            int(losses.group_set[vm]),
            int(losses.seed[vm]) if len(losses.seed) else 0,
            losses.expected[vm],
        )

    def _losses_of(self, tried: list[tuple[int, ...]], scope: Scope) -> Losses:
        """Return the losses as columns, the largest VM of each first."""
        return self._losses_and_vms(tried, scope)[0]

    def _losses_and_vms(
        self, tried: list[tuple[int, ...]], scope: Scope
    ) -> tuple[Losses, Int64Array]:
        """Return the losses as columns, the largest VM of each first, and the VMs' numbers."""
        fleet, vms = self._world.fleet, self._world.fleet.vms
        rows_in = _grouped(fleet.hosts.arrays.domain[: fleet.hosts.count, scope])
        order = self._size_order()
        vms_on = _grouped(vms.host[: vms.count].astype(np.int64), order)
        hosts, numbers = [], []
        for lost in tried:
            rows = np.concatenate([rows_in.get(each, _NONE) for each in lost])
            hosts.append(rows)
            numbers.append(_merged([vms_on[row] for row in rows.tolist() if row in vms_on]))
        picked = np.concatenate([_NONE, *numbers])
        picked = order[picked]  # from the place in the order of sizes to the number of the VM
        draws = strategy_named(self._world.default_strategy).draws
        losses = Losses(
            _starts(hosts),
            np.concatenate([_NONE, *hosts]),
            _starts(numbers),
            vms.demand[picked],
            vms.terms[picked],
            vms.group_set[picked],
            picked if draws else _NONE,
            vms.host[picked].astype(np.int64),
            vms.expected[picked],
        )
        return losses, picked

    def _size_order(self) -> Int64Array:
        """Return all VM numbers, the largest VM first."""
        vms = self._world.fleet.vms
        demand = vms.demand[: vms.count]
        size = (
            0.4 * demand[:, CPU] / REFERENCE_CPU
            + 0.4 * demand[:, MEMORY] / REFERENCE_MEMORY
            + 0.2 * demand[:, DISK] / REFERENCE_DISK
        )
        return np.argsort(-size, kind="stable")

    def _name(self, scope: Scope, domain: int) -> str:
        hosts = self._world.fleet.hosts
        names = {
            Scope.HOST: hosts.names,
            Scope.RACK: hosts.racks.values,
            Scope.ZONE: hosts.zones.values,
        }
        return f"{scope.label} {names[scope][domain]}"


_NONE = np.zeros(0, np.int64)


def _grouped(owner: Int64Array, order: Int64Array | None = None) -> dict[int, Int64Array]:
    """Return the positions of every owner that is not negative, in the given order if any.

    With an order, a position is the place in that order.
    """
    if not len(owner):
        return {}
    ordered = owner if order is None else owner[order]
    by_owner = np.argsort(ordered, kind="stable")
    values, starts = np.unique(ordered[by_owner], return_index=True)
    parts = np.split(by_owner, starts[1:])
    return {int(v): part for v, part in zip(values, parts, strict=True) if v >= 0}


def _merged(places: list[Int64Array]) -> Int64Array:
    """Return several ascending lists as one."""
    return places[0] if len(places) == 1 else np.sort(np.concatenate([_NONE, *places]))


def _starts(parts: list[Int64Array]) -> Int64Array:
    return np.cumsum([0, *(len(part) for part in parts)])


def _span(starts: Int64Array, at: int) -> slice:
    return slice(int(starts[at]), int(starts[at + 1]))


def _part(losses: Losses, first: int, end: int) -> Losses:
    """Return the losses from first to end."""
    hosts = slice(int(losses.host_start[first]), int(losses.host_start[end]))
    vms = slice(int(losses.vm_start[first]), int(losses.vm_start[end]))
    return Losses(
        losses.host_start[first : end + 1] - hosts.start,
        losses.hosts[hosts],
        losses.vm_start[first : end + 1] - vms.start,
        losses.demand[vms],
        losses.terms[vms],
        losses.group_set[vms],
        losses.seed[vms] if len(losses.seed) else losses.seed,
        losses.vm_host[vms],
        losses.expected[vms],
    )


def _losses(domains: list[int], losses: int) -> list[tuple[int, ...]]:
    """Return the losses to try: every domain, or an even sample of the combinations."""
    if losses == 1:
        return [(domain,) for domain in domains]
    if losses >= len(domains):
        return [tuple(domains)] if domains else []
    every = max(1, comb(len(domains), losses) // _SAMPLES)
    return list(islice(combinations(domains, losses), 0, every * _SAMPLES, every))
