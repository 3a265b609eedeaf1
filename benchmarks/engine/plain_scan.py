"""The plain compiled scan: look at every host, keep the best. Baseline and judge of the engine.

It shares with the engine the rule whether one host may take one VM (`row_fits`) and the score of
one host; everything that makes the engine fast (rankings, classes, bounds, lists, chains) it does
without. A scan by number or turn stops at the first host that fits, as anyone would write it.
"""

from dataclasses import dataclass

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.groups import GroupArrays
from roost.fleet.layout import CPU, DISK, MEMORY, BoolArray, HostArrays, Int32Array, Int64Array
from roost.placement.batching import RequestColumns
from roost.placement.kernels.compiling import entry_point, kernel
from roost.placement.kernels.decide import (
    BY_DRAW,
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
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_MILLI,
    Ask,
    in_sorted,
    row_cells,
    row_devices,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.fragments import MixArrays, thriftiest
from roost.placement.kernels.keys import request_key
from roost.placement.kernels.scan import GUESSES, SCORE_FRAGMENTS, goes_before, scan_score
from roost.placement.kernels.search import MOST, NOWHERE, draw
from roost.placement.kernels.tally import WEIGHT_ONE, add_member
from roost.placement.mix import NO_MIX, Mix
from roost.placement.rankings import Rankings
from roost.placement.selectors import Selectors
from roost.placement.strategies import strategy_named
from roost.placement.tables import TermsTables

#: Columns of the options.
S_WAY, S_SCORE, S_CELL_RULE, S_COMMIT, S_CURSOR, S_ROWS, S_COLUMNS = range(7)


@kernel
def may_take(hosts: HostArrays, marks: Int64Array, groups: GroupArrays, ask: Ask, row: int) -> bool:
    """Say whether the host takes VMs and this one fits."""
    if not hosts.takes[row] or not row_fits(hosts, marks, groups, ask, row):
        return False
    listed = ask.terms[T_CANDIDATE_COUNT]
    return listed < 0 or in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row)


@kernel
def scan_all(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ask: Ask,
    options: Int64Array,
    mix: MixArrays,
) -> tuple[int, int]:
    """Return the host with the least (total, host number) and its total."""
    way, score, rows = options[S_WAY], options[S_SCORE], options[S_ROWS]
    best_row, best = np.int64(NOWHERE), np.int64(MOST)
    row = options[S_CURSOR] if way == BY_TURN else np.int64(NOWHERE)
    for _ in range(rows):
        row += 1
        if row >= rows:
            row = np.int64(0)
        if not may_take(hosts, marks, groups, ask, row):
            continue
        total = scan_score(score, hosts, ask, 0, mix, row)
        if ask.counts[A_CHARGED]:
            total += row_penalty(hosts, marks, groups, ask, row)
        elif way == BY_NUMBER or way == BY_TURN:
            return row, total
        if total < best or (
            total == best and way != BY_TURN and goes_before(score, hosts, mix, row, best_row)
        ):
            best_row, best = row, total
    return best_row, best


@kernel
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
    best_row, best = np.int64(NOWHERE), np.int64(MOST)
    for row in range(options[S_ROWS]):
        fits[row] = may_take(hosts, marks, groups, ask, row)
    if ask.counts[A_CHARGED] == 0:
        for number in range(GUESSES):
            row = draw(seed, number, len(fits))
            if row < options[S_ROWS] and fits[row]:
                return row, np.int64(0)
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
def plain_batch(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    tables: Tables,
    batch: Batch,
    options: Int64Array,
    mix: MixArrays,
    scratch: Scratch,
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
        own = request_key(score, demand[CPU], demand[MEMORY], demand[DISK])
        if options[S_WAY] == BY_DRAW:
            seed = batch.seed[index]
            row, total = draw_from_all(hosts, marks, groups, ask, options, seed, fits)
        else:
            row, total = scan_all(hosts, marks, groups, ask, options, mix)
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
        charge_host(hosts, row, demand, ask.terms[T_MILLI], devices, cells, np.int64(1))
        if devices or cells:
            refresh_host_extras(hosts, row, resources)
        for position in range(len(ask.groups)):
            add_member(groups, ask.groups[position], hosts.domain[row], np.int64(1))


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
    for row in range(len(fits)):
        fits[row] = may_take(hosts, marks, groups, ask, row)


@dataclass(frozen=True, slots=True)
class PlainAnswers:
    """Rows (-1: nowhere) and scores, one per request."""

    row: Int32Array
    score: Int64Array


class PlainScan:
    """The scan on one fleet. With `commit` it charges the hosts and leaves the VM columns alone."""

    def __init__(self, fleet: Fleet, strategy: str, mix: Mix | None = None) -> None:
        self.fleet = fleet
        self.strategy = strategy_named(strategy)
        self.cursor = -1
        self._selectors = Selectors(fleet, Rankings(fleet))
        self._terms = TermsTables(fleet, self._selectors)
        needed = self.strategy.needs_mix and mix is not None
        self._mix = mix.arrays(fleet) if needed and mix is not None else NO_MIX

    def place(self, columns: RequestColumns, *, commit: bool) -> PlainAnswers:
        """Answer every request in turn."""
        self.ready(columns)
        hosts, strategy = self.fleet.hosts, self.strategy
        if commit:
            self.fleet.groups.reserve(3 * len(columns) * self._terms.most_groups)
        options = np.zeros(S_COLUMNS, np.int64)
        options[S_WAY], options[S_SCORE] = strategy.search, strategy.score
        options[S_CELL_RULE], options[S_COMMIT] = strategy.cell_rule, int(commit)
        options[S_CURSOR], options[S_ROWS] = self.cursor, hosts.count
        rows = np.full(len(columns), NOWHERE, np.int32)
        scores = np.zeros(len(columns), np.int64)
        plain_batch(
            hosts.arrays,
            self._selectors.marks,
            self.fleet.groups.arrays,
            self._terms.tables,
            self._batch(columns),
            options,
            self._mix,
            self._scratch(),
            np.zeros(hosts.row_capacity, np.bool_),
            rows,
            scores,
        )
        self.cursor = int(options[S_CURSOR])
        return PlainAnswers(rows, scores)

    def ready(self, columns: RequestColumns) -> None:
        """Compile the requests' rules, so that the scan alone can be timed."""
        pairs = zip(columns.terms.tolist(), columns.group_set.tolist(), strict=True)
        self._terms.ready_all(set(pairs))
        self._selectors.ensure_rows()

    def fitting(self, columns: RequestColumns) -> BoolArray:
        """Return, for the first request, which hosts may take it."""
        self.ready(columns)
        fits = np.zeros(self.fleet.hosts.count, np.bool_)
        plain_fits(
            self.fleet.hosts.arrays,
            self._selectors.marks,
            self.fleet.groups.arrays,
            self._terms.tables,
            self._batch(columns),
            self._scratch(),
            fits,
        )
        return fits

    def _batch(self, columns: RequestColumns) -> Batch:
        nothing = np.zeros(0, np.int64)
        return Batch(columns.demand, columns.terms, columns.group_set, columns.seed, nothing)

    def _scratch(self) -> Scratch:
        width = self.fleet.hosts.arrays.headroom.shape[1]
        return Scratch(
            columns=np.zeros(width, np.int64),
            least=np.zeros(width, np.int64),
            counts=np.zeros(4, np.int64),
            fewest=np.zeros(self._terms.most_groups, np.int64),
            skip=np.zeros(0, np.int64),
        )
