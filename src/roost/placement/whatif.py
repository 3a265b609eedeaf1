"""Worlds of "what if": engines on snapshots, in which VMs are tried out and taken back.

The questions of capacity.py and surviving.py are asked here. A world's own fleet changes, which is
why it is never the fleet that a service runs on.
"""

from collections.abc import Iterable

import numpy as np

from roost.fleet.layout import CPU, DEVICE_TOTAL, DISK, ENDS, KNOWN, MEMORY, Int64Array
from roost.model.flow import PlaceRequest, Rejection, ScoreTerm
from roost.model.resources import BASE_RESOURCES
from roost.placement.attributes import eligible
from roost.placement.batching import RequestColumns
from roost.placement.engine import MOST_RUNNERS, Engine, new_answers
from roost.placement.kernels.decide import (
    UNTIL_REFUSAL,
    Batch,
    Decisions,
    copies_per_host,
    take_back,
)
from roost.placement.kernels.fixed_point import MOST_WHOLES, RATIO_BITS
from roost.placement.kernels.keys import (
    DEVICES_WEIGHT,
    KEY_FREE,
    KEY_FREE_DOWN,
    KEY_LOAD,
    KEY_PREDICTED,
    MOST_PREDICTED,
    REFERENCE_CPU,
    REFERENCE_DEVICES,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
)
from roost.placement.kernels.losses import Losses, first_not_survived
from roost.placement.kernels.ranking import rebuild
from roost.placement.kernels.running import running
from roost.placement.kernels.scores import SCORE_LIFETIME
from roost.placement.question import Question
from roost.placement.rejecting import rejection_by
from roost.placement.strategies import Strategy, strategy_named
from roost.placement.verdicts import judge_hosts

_NO_SEED = np.zeros(0, np.int64)
_NO_ROWS = np.zeros(0, np.int64)


class WhatIf(Engine):
    """An engine on a snapshot of its own."""

    @classmethod
    def like(cls, engine: Engine) -> "WhatIf":
        """Return a world that is as the engine's fleet is now."""
        fleet = engine.fleet.snapshot()
        world = cls(
            fleet,
            engine.default_strategy,
            engine.mix_now(),
            engine.rules,
            engine.clock,
            engine.network,
        )
        world.cursor = engine.cursor
        return world

    def amounts_in_score(self, request: PlaceRequest, row: int) -> tuple[ScoreTerm, ...]:
        """Return the addends of a host's score that belong to amounts and devices.

        None of a strategy that goes by other things. The same numbers as the kernel that decides
        computes for the winner, for any host.
        """
        score, arrays = self.strategy_of(request).score, self.fleet.hosts.arrays
        demand = self.fleet.vector(request.demand)
        values = []
        for resource, whole in ((CPU, REFERENCE_CPU), (MEMORY, REFERENCE_MEMORY),
                                (DISK, REFERENCE_DISK)):  # fmt: skip
            weight = 2 if resource == DISK else 4
            if score == KEY_PREDICTED and arrays.predicted[row, KNOWN]:
                if resource == DISK:
                    values.append(0)
                    continue
                part = _ratio(arrays.predicted[row, resource], arrays.total[row, resource])
                part, weight = min(part, MOST_PREDICTED), 5
            elif score in (KEY_LOAD, KEY_PREDICTED):
                part = _ratio(arrays.committed[row, resource], arrays.capacity[row, resource])
            elif score in (KEY_FREE, KEY_FREE_DOWN, SCORE_LIFETIME):
                part = _ratio(arrays.headroom[row, resource], whole)
                part -= _ratio(demand[resource], whole)
                part = -part if score == KEY_FREE_DOWN else part
            else:
                return ()
            values.append(weight * part)
        terms = []
        if any(values):
            terms += [ScoreTerm(*each) for each in zip(BASE_RESOURCES, values, strict=True)]
        if score in (KEY_FREE, SCORE_LIFETIME):
            asked = request.demand.devices
            left = _ratio(arrays.headroom[row, len(demand) + DEVICE_TOTAL], REFERENCE_DEVICES)
            left -= _ratio(asked.count * asked.milli if asked else 0, REFERENCE_DEVICES)
            if left:
                terms.append(ScoreTerm("devices", DEVICES_WEIGHT * left))
        return tuple(terms)

    def charges(self, request: PlaceRequest, row: int) -> tuple[dict[str, int], int]:
        """Return what each soft rule charges a host, and all of them by priority besides.

        In hundredths of a score, as of the last decision or scores of the same request.
        """
        rules, ranked = self._terms.charges(self.terms_number(request), row)
        return dict(rules), ranked

    def devices_charge(self, request: PlaceRequest, row: int) -> int:
        """Return what a host charges for its devices, in hundredths of a score."""
        return self._terms.devices_charge(self.terms_number(request), row)

    def distance_charge(self, request: PlaceRequest, row: int) -> int:
        """Return what a host charges for its distance to talkers, in hundredths of a score."""
        return self._terms.distance_charge(self.terms_number(request), row)

    def peaks_charge(self, request: PlaceRequest, row: int) -> int:
        """Return what a host charges for peaks it would share, in hundredths of a score."""
        return self._terms.peaks_charge(self.terms_number(request), row)

    def uplink_charge(self, row: int) -> int:
        """Return what a host charges for its uplink, in hundredths of a score."""
        return self._terms.uplink_charge(row)

    def fill_hosts(self, request: PlaceRequest) -> Int64Array:
        """Fill every host with copies of a request without groups; return how many each took.

        The VM columns do not learn of the copies, so this is for snapshots.
        """
        strategy = self.strategy_of(request)
        self._ready(request, strategy)
        self._selectors.ensure_rows()
        copies = np.zeros(self.fleet.hosts.count, np.int64)
        running(copies_per_host)(
            self.fleet.hosts.arrays,
            self._selectors.marks,
            self.fleet.groups.arrays,
            self._terms.tables,
            self._one(_NO_ROWS),
            strategy.cell_rule,
            self._scratch_for(0),
            copies,
        )
        self.fleet.changes.add_many(np.flatnonzero(copies))
        return copies

    def first_not_survived(self, losses: Losses) -> int:
        """Return the first loss whose VMs would not all find new hosts, or the number of losses.

        Everything is put back, so the fleet does not change; it is still one for snapshots.
        """
        strategy = strategy_named(self.default_strategy)
        self._ready_terms(losses.terms, losses.group_set)
        if strategy.reads_ends:
            self.fleet.settle_ends()
        self._selectors.ensure_rows()
        marks, arrays = self._selectors.marks, self.fleet.hosts.arrays
        ranking, changed = self._rankings.current(strategy.key, marks)
        if len(changed):
            rebuild(ranking, arrays, marks)
        memberships = int(np.count_nonzero(losses.group_set)) * self._terms.most_groups
        self.fleet.groups.reserve(3 * memberships)
        out = new_answers(len(losses.terms), len(losses.hosts) + MOST_RUNNERS)
        options = self._options_for(strategy, self.cursor, 0, UNTIL_REFUSAL)
        lost = 0
        while True:
            lost = running(first_not_survived)(
                arrays,
                marks,
                self.fleet.groups.arrays,
                ranking,
                self._terms.tables,
                losses,
                out,
                options,
                self._mix_for(strategy, ranking),
                self._scratch_for(0),
                lost,
            )
            if lost >= 0:
                return lost
            rebuild(ranking, arrays, marks)
            lost = -1 - lost

    def bind_placed(self, requests: Iterable[PlaceRequest]) -> None:
        """Give VMs that were placed under other rules, or none, those that bind them now.

        For snapshots: what they ask for besides stays as it is.
        """
        vms = self.fleet.vms
        for request in requests:
            number = vms.numbers.get(request.key or request.name)
            if number is not None:
                vms.terms[number] = self.terms_number(request)

    def place_copy(self, request: PlaceRequest) -> int:
        """Place and commit a VM that stays without a name; return its host, -1 if none fits."""
        strategy = self.strategy_of(request)
        self._ready(request, strategy)
        row = self._decide_one(strategy, self.cursor, 0)
        if row >= 0:
            self.fleet.apply(
                None,
                row,
                self._demand[0].copy(),
                self._terms_number.item(0),
                self._set_number.item(0),
                self._out.devices.item(0),
                self._out.cells.item(0),
                self._expected[0].copy(),
            )
            self.count(request)
            if strategy.turns:
                self.cursor = row
        return row

    def place_again(
        self,
        demand: Int64Array,
        terms: int,
        group_set: int,
        seed: int,
        expected: Int64Array,
    ) -> bool:
        """Place and commit a VM that is already in the fleet's numbers, by the default strategy."""
        strategy = strategy_named(self.default_strategy)
        self._ready_again(demand, terms, group_set, seed, expected)
        row = self._decide_one(strategy, self.cursor, 0)
        if row < 0:
            return False
        devices, cells = int(self._out.devices[0]), int(self._out.cells[0])
        own = demand.copy(), terms, group_set, devices, cells, expected.copy()
        self.fleet.apply(None, row, *own)
        if strategy.turns:
            self.cursor = row
        return True

    def reject_again(self, name: str, demand: Int64Array, terms: int, group_set: int) -> Rejection:
        """Say why a VM that is already in the fleet's numbers fits nowhere, without any fix."""
        fleet = self.fleet
        asked = Question(
            fleet,
            demand,
            fleet.terms[terms],
            fleet.groups.set_members(group_set),
            eligible,
            self._rule_columns,
            self._near,
        )
        return rejection_by(judge_hosts(asked), name, self.default_strategy)

    def withdraw_last(self, count: int, request: PlaceRequest) -> None:
        """Take back the VMs that were placed last, for snapshots."""
        vms = self.fleet.vms
        numbers = np.arange(vms.count - count, vms.count)
        columns = RequestColumns(
            vms.demand[numbers],
            vms.terms[numbers],
            vms.group_set[numbers],
            _NO_SEED,
            vms.expected[numbers],
        )
        out = new_answers(count)
        out.row[:] = vms.host[numbers]
        out.devices[:] = vms.devices[numbers]
        out.cells[:] = vms.cells[numbers]
        strategy = self.strategy_of(request)
        width = len(self.fleet.hosts.resources)
        out.ends[:] = self.fleet.hosts.arrays.headroom[out.row, width + ENDS]
        self._take_back(columns, out, strategy)
        self.fleet.loose_ends.update(out.row.tolist())
        self.fleet.changes.add_many(out.row.astype(np.int64))
        vms.drop_last(count)

    def _take_back(self, columns: RequestColumns, out: Decisions, strategy: Strategy) -> None:
        marks, arrays = self._selectors.marks, self.fleet.hosts.arrays
        ranking, changed = self._rankings.current(strategy.key, marks)
        self.fleet.changes.add_many(changed)  # still to be refiled
        batch = Batch(
            columns.demand,
            columns.terms,
            columns.group_set,
            columns.seed,
            columns.expectations(),
            _NO_ROWS,
        )
        filed = running(take_back)(
            arrays, marks, self.fleet.groups.arrays, ranking, self._terms.tables, batch, out, 0
        )
        if not filed:
            rebuild(ranking, arrays, marks)


def copy_name(request: PlaceRequest, index: int) -> str:
    """Return what the copy of a request is called that is placed as this one of many."""
    return f"{request.name}-{index}"


def _ratio(part: int, whole: int) -> int:
    """Return a ratio in fixed point, as the kernels do, which Python cannot call one by one."""
    part, whole = int(part), int(whole)
    if part <= 0 or whole <= 0:
        return 0
    return min((part << RATIO_BITS) // whole, MOST_WHOLES << RATIO_BITS)
