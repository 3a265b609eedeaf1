"""Host labels as columns of value numbers, one per label key.

A key that few hosts carry is kept as a small dictionary, so that a label unique to every host
costs its own size and not a column of the whole fleet.
"""

import numpy as np

from roost.fleet.interning import Interned
from roost.fleet.layout import BoolArray, Int32Array, Int64Array
from roost.model.constraints import LabelTerm

ABSENT = -1
_DENSE_SHARE = 32  # dense once more than one host in so many carries the key


class LabelColumn:
    """The values of one label key over all hosts."""

    __slots__ = ("_dense", "_sparse", "values")

    def __init__(self) -> None:
        self.values: Interned[str] = Interned()
        self._sparse: dict[int, int] = {}
        self._dense: Int32Array | None = None

    def set(self, row: int, value: str | None, capacity: int) -> None:
        """Give one host this value, or take the label away."""
        number = ABSENT if value is None else self.values.number(value)
        if self._dense is None:
            if number == ABSENT:
                self._sparse.pop(row, None)
                return
            self._sparse[row] = number
            if len(self._sparse) * _DENSE_SHARE <= max(capacity, 2048):
                return
            self._dense = np.full(capacity, ABSENT, np.int32)
            for each, each_number in self._sparse.items():
                self._dense[each] = each_number
            self._sparse.clear()
        if len(self._dense) < capacity:
            grown = np.full(capacity, ABSENT, np.int32)
            grown[: len(self._dense)] = self._dense
            self._dense = grown
        self._dense[row] = number

    def column(self, rows: Int64Array) -> Int32Array:
        """Return the value numbers of these hosts."""
        if self._dense is not None:
            inside = rows < len(self._dense)
            out = np.full(len(rows), ABSENT, np.int32)
            out[inside] = self._dense[rows[inside]]
            return out
        out = np.full(len(rows), ABSENT, np.int32)
        if self._sparse:
            if len(rows) > len(self._sparse) * 4:
                where = np.fromiter(self._sparse, np.int64, len(self._sparse))
                numbers = np.fromiter(self._sparse.values(), np.int32, len(self._sparse))
                order = np.argsort(rows, kind="stable")
                at = np.searchsorted(rows, where, sorter=order)
                inside = at < len(rows)
                hit = inside.copy()
                hit[inside] = rows[order[at[inside]]] == where[inside]
                out[order[at[hit]]] = numbers[hit]
            else:
                for position, row in enumerate(rows.tolist()):
                    out[position] = self._sparse.get(row, ABSENT)
        return out

    def copy(self) -> "LabelColumn":
        """Return an independent column."""
        other = LabelColumn()
        other.values = self.values.copy()
        other._sparse = dict(self._sparse)
        other._dense = None if self._dense is None else self._dense.copy()
        return other


class Labels:
    """All label columns of a fleet."""

    __slots__ = ("columns",)

    def __init__(self) -> None:
        self.columns: dict[str, LabelColumn] = {}

    def replace(
        self,
        row: int,
        old: tuple[tuple[str, str], ...],
        new: tuple[tuple[str, str], ...],
        capacity: int,
    ) -> None:
        """Change one host's labels from `old` to `new`."""
        wanted = dict(new)
        for key, _ in old:
            if key not in wanted:
                self.columns[key].set(row, None, capacity)
        for key, value in wanted.items():
            self.columns.setdefault(key, LabelColumn()).set(row, value, capacity)

    def matches(self, term: LabelTerm, rows: Int64Array) -> BoolArray:
        """Return which of these hosts satisfy the term."""
        column = self.columns.get(term.key)
        if column is None:
            return np.full(len(rows), term.matches({}), np.bool_)
        # One verdict per distinct value, the last one for hosts without the label.
        verdicts = [term.matches({term.key: value}) for value in column.values.values]
        verdicts.append(term.matches({}))
        out: BoolArray = np.array(verdicts, np.bool_)[column.column(rows)]
        return out

    def copy(self) -> "Labels":
        """Return an independent copy."""
        other = Labels()
        other.columns = {key: column.copy() for key, column in self.columns.items()}
        return other
