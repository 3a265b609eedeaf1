"""Spare: place VMs so that any k hosts may be lost and all that ran there finds other hosts (N+k).

A loss is rehearsed by the engine, as `roost capacity --survive` does it. Where VMs would find no
host, others are moved on: off hosts that could take them, by the search of `defragment` in the
fleet without what is lost, or away from what is lost. A step is made only if less would be left
without a host in all losses together, so it ends, and proposes nothing on its own result.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from roost.model.hosts import Scope
from roost.planner.board import LOADS, Board, Candidate
from roost.planner.goals.base import Proposals
from roost.planner.goals.defragment import Way, hosts_to_try, way_on
from roost.planner.goals.drain import in_words
from roost.planner.guards import Exchange, Guard, Proposal, Veto, held_back
from roost.planner.sparing import MOST_LOSSES, losses_of, rehearsal_on

#: Claims of a VM beside its own: who arrives is not there yet, and what is held is not restarted.
_ARRIVES, _HELD = ":migrate_in", ":hold"
#: VMs that are placed again in rehearsals, all together; what is left then is named.
_MOST_PLACED = 3_000_000
#: Losses that are mended, and losses and VMs without a host that are named.
_MOST_LOSSES_MENDED, _MOST_LOSSES_NAMED, _MOST_STUCK = 32, 500, 100
#: Of one loss: VMs that others make room for, hosts where that is tried, VMs that leave what is
#: lost, and hosts to which each of those does.
_MOST_LEFT, _MOST_HOSTS, _MOST_LEAVING, _MOST_TARGETS = 4, 16, 16, 4

Loss = tuple[int, ...]


def propose(board: Board, spare: int = 1) -> Proposals:
    """Propose moves until any so many hosts may be lost; return the VMs that would have no host."""
    losses = losses_of(board, (), spare)
    if losses is None:
        why = f"there are more than {MOST_LOSSES} ways to lose {spare} of so many hosts"
        return (Veto("", "all VMs", Guard.LIMIT, why),)
    search = _Search(board, spare)
    short = search.short()
    refused: set[tuple[str, ...]] = set()
    settled: set[Loss] = set()
    while loss := next((each for each in short if each not in settled), None):
        settled.add(loss)
        if len(settled) > _MOST_LOSSES_MENDED or search.tired():
            break
        for way in search.ways(loss):
            names = tuple(who.vm for who, _ in way)
            if names in refused:
                continue
            after = search.after(way, loss, short)
            if after is None:
                if search.tired():
                    break
                continue
            text = f"so that {_names(board, loss)} could be lost"
            if (yield Exchange(tuple(Proposal(who, row, 1.0, text) for who, row in way), True)):
                short = after
                settled.clear()  # others have made room: every loss has its turn again
                break
            refused.add(names)
    return search.stuck(short)


class _Search:
    """Looks for moves after which fewer VMs would be left without a host."""

    def __init__(self, board: Board, spare: int) -> None:
        self._board, self._spare = board, spare
        self._placed = 0
        whole = board.capacity()[board.open_rows()]
        self._whole = whole.mean(axis=0) if len(whole) else np.ones(len(LOADS))

    def tired(self) -> bool:
        """Say whether as much was rehearsed as may be."""
        return self._placed > _MOST_PLACED

    def short(self) -> dict[Loss, float]:
        """Return the losses that would not be survived, and the size of what they leave."""
        self._board.check_wanted()
        losses = losses_of(self._board, (), self._spare) or []
        count = self._board.world.fleet.hosts.arrays.vm_count
        self._placed += sum(int(count[list(each)].sum()) for each in losses)
        rehearsal = rehearsal_on(self._board)
        failing = rehearsal.not_survived(losses, Scope.HOST) if losses else []
        found = {}
        for at in failing:
            self._board.check_wanted()
            if left := self._left(losses[at]):
                found[losses[at]] = left
        return found

    def after(self, way: Way, loss: Loss, short: Mapping[Loss, float]) -> dict[Loss, float] | None:
        """Return the losses that would not be survived after a way; None if nothing is gained."""
        board = self._board
        with board.trial():
            if not all(board.move(who, row) for who, row in way):
                return None
            if self._left(loss) >= short[loss]:
                return None
            after = self.short()
        return after if sum(after.values()) < sum(short.values()) else None

    def ways(self, loss: Loss) -> Iterator[Way]:
        """Return moves that may help with a loss, those that make room for its VMs first."""
        yield from self._making_room(loss)
        yield from self._leaving(loss)

    def stuck(self, short: Mapping[Loss, float]) -> tuple[Veto, ...]:
        """Name the VMs that would find no host, each once, and why."""
        found: dict[str, Veto] = {}
        for loss in islice(short, _MOST_LOSSES_NAMED):
            if len(found) >= _MOST_STUCK:
                break
            self._board.check_wanted()
            board, keys = self._board, self._keys(loss)
            on = board.world.fleet.vms.on_host
            # Who is lost has no name while that is rehearsed.
            names = {each: self._restarted(each) for row in loss for each in on(row).tolist()}
            with rehearsal_on(board).after(loss, Scope.HOST) as placing:
                for number, placed in placing:
                    vm = names.get(number)
                    if placed or vm is None or vm in found:
                        continue
                    # Who may not be moved now has no request here, and is named all the same.
                    who = keys.get(number)
                    why = in_words(board.world.reject(who.request)) if who else "no other host fits"
                    lost = "is lost" if len(loss) == 1 else "are lost"
                    why = f"if {_names(board, loss)} {lost}, {why}"
                    found[vm] = Veto(vm, who.name if who else vm, Guard.AT_REST, why)
        return tuple(found.values())

    def _left(self, loss: Loss) -> float:
        """Return the size of the VMs that a loss leaves without a host, in whole hosts."""
        vms = self._board.world.fleet.vms
        left = rehearsal_on(self._board).left(loss, Scope.HOST)
        self._placed += sum(len(vms.on_host(row)) for row in loss)
        counted = (each for each in left if self._restarted(each) is not None)
        return sum(float((vms.demand[each, list(LOADS)] / self._whole).sum()) for each in counted)

    def _restarted(self, number: int) -> str | None:
        """Return the VM with a number that would be restarted elsewhere; None if none would be.

        A VM on its way has two claims, each of which may keep the other from a host: it is looked
        at again when it has arrived.
        """
        vms = self._board.world.fleet.vms
        key = vms.names.get(number, "")
        vm = key.removesuffix(":run")
        if key.endswith((_ARRIVES, _HELD)) or f"{vm}{_ARRIVES}" in vms.numbers:
            return None
        return vm

    def _keys(self, loss: Loss) -> dict[int, Candidate]:
        """Return the VMs that a loss takes, by their number in the fleet."""
        numbers = self._board.world.fleet.vms.numbers
        return {
            numbers[who.request.key]: who
            for who in self._board.candidates.values()
            if self._board.row_of(who) in loss
        }

    def _making_room(self, loss: Loss) -> Iterator[Way]:
        """Return moves that make room on one host for a VM that the loss leaves without one."""
        board, keys = self._board, self._keys(loss)
        found: list[Way] = []
        with rehearsal_on(board).after(loss, Scope.HOST) as placing:
            left = (keys[number] for number, placed in placing if not placed and number in keys)
            for who in islice(left, _MOST_LEFT):
                there = board.by_row()
                for row in hosts_to_try(board, who.request)[:_MOST_HOSTS]:
                    way = way_on(board, row, there.get(row, []), who.request)
                    if way:
                        found.append(way)
        yield from sorted(found, key=_worth)

    def _leaving(self, loss: Loss) -> Iterator[Way]:
        """Return single moves away from what is lost, of the largest VMs first."""
        board = self._board
        here = [who for who in self._keys(loss).values() if who.vm not in board.moved]
        able = [who for who in here if held_back(board, who, urgent=board.urgent) is None]
        able.sort(key=lambda who: (-float((board.use_of(who) / self._whole).max()), who.vm))
        for who in able[:_MOST_LEAVING]:
            fits = board.fitting(who)
            fits[list(loss)] = False
            rows = np.flatnonzero(fits)
            for row in rows[np.argsort(board.loads()[rows], kind="stable")][:_MOST_TARGETS]:
                yield [(who, int(row))]


def _worth(way: Way) -> tuple[int, int]:
    return len(way), sum(who.load.memory_bytes for who, _ in way)


def _names(board: Board, loss: Sequence[int]) -> str:
    return " and ".join(board.name(row) for row in loss)
