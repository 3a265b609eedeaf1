"""The plain compiled scan of one fleet: baseline of the engine and judge of its answers."""

from dataclasses import dataclass

import numpy as np

from benchmarks.engine.plain_kernels import (
    S_CELL_RULE,
    S_COLUMNS,
    S_COMMIT,
    S_CURSOR,
    S_ROWS,
    S_SCORE,
    S_WAY,
    plain_batch,
    plain_fits,
    write_plain_keys,
)
from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int32Array, Int64Array
from roost.placement.batching import RequestColumns
from roost.placement.kernels.decide import Batch, Scratch
from roost.placement.kernels.fit import A_COUNTS
from roost.placement.kernels.search import NOWHERE
from roost.placement.mix import NO_MIX, Mix
from roost.placement.nearness import Nearness
from roost.placement.rankings import Rankings
from roost.placement.rules.columns import RuleColumns
from roost.placement.selectors import Selectors
from roost.placement.strategies import strategy_named
from roost.placement.tables import TermsTables


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
        self._keys = np.zeros(0, np.int64)
        self._selectors = Selectors(fleet, Rankings(fleet))
        self._terms = TermsTables(fleet, self._selectors, RuleColumns(fleet), Nearness(fleet))
        needed = self.strategy.needs_mix and mix is not None
        self._mix = mix.arrays(fleet) if needed and mix is not None else NO_MIX

    def place(self, columns: RequestColumns, *, commit: bool) -> PlainAnswers:
        """Answer every request in turn."""
        self.ready(columns)
        return self.answer(columns, commit=commit)

    def answer(self, columns: RequestColumns, *, commit: bool) -> PlainAnswers:
        """Do the same when `ready` has just been called, so that the scan alone is timed."""
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
            self._keys,
            np.zeros(hosts.row_capacity, np.bool_),
            rows,
            scores,
        )
        self.cursor = int(options[S_CURSOR])
        return PlainAnswers(rows, scores)

    def ready(self, columns: RequestColumns) -> None:
        """Compile the requests' rules and look at every host's key."""
        pairs = zip(columns.terms.tolist(), columns.group_set.tolist(), strict=True)
        self._terms.ready_all(set(pairs))
        self._selectors.ensure_rows()
        self._keys = np.zeros(self.fleet.hosts.count, np.int64)
        write_plain_keys(self.fleet.hosts.arrays, self.strategy.score, self._keys)

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
        return Batch(
            columns.demand,
            columns.terms,
            columns.group_set,
            columns.seed,
            columns.expectations(),
            nothing,
        )

    def _scratch(self) -> Scratch:
        width = self.fleet.hosts.arrays.headroom.shape[1]
        return Scratch(
            columns=np.zeros(width, np.int64),
            least=np.zeros(width, np.int64),
            counts=np.zeros(A_COUNTS, np.int64),
            fewest=np.zeros(self._terms.most_groups, np.int64),
            skip=np.zeros(0, np.int64),
        )
