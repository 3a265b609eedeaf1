"""One decision called with one array: a directory of where all the others are.

Handing fifty arrays from Python to compiled code costs 15 microseconds, a decision costs less than
one. The arrays hardly ever change, so their addresses and shapes are written down once, and the
kernel builds its bundles from them. `Directory` keeps the arrays alive while it points at them.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import HostArrays, Int64Array
from roost.placement.kernels.compiling import view_maker
from roost.placement.kernels.decide import Batch, Decisions, Scratch, Tables, decide
from roost.placement.kernels.fragments import MixArrays
from roost.placement.kernels.ranking import Ranking

_ENTRY = 4  # an address and up to three lengths


class Bundles(NamedTuple):
    """The arguments of `decide`."""

    hosts: HostArrays
    marks: Int64Array
    groups: GroupArrays
    ranking: Ranking
    tables: Tables
    batch: Batch
    out: Decisions
    options: Int64Array
    mix: MixArrays
    scratch: Scratch


class Directory:
    """Where the arrays of one call are."""

    __slots__ = ("_entries", "bundles")

    def __init__(self, bundles: Bundles) -> None:
        self.bundles = bundles
        arrays: list[Any] = []
        for bundle in bundles:
            arrays += bundle if isinstance(bundle, tuple) else [bundle]
        self._entries = np.zeros(_ENTRY * len(arrays), np.int64)
        for number, array in enumerate(arrays):
            assert array.flags.c_contiguous
            at = _ENTRY * number
            self._entries[at] = array.ctypes.data
            self._entries[at + 1 : at + 1 + array.ndim] = array.shape

    def decide(self, changed: int) -> int:
        """Run `decide`, with the first `changed` of the batch's changed hosts to be refiled."""
        if numba.config.DISABLE_JIT:
            batch = self.bundles.batch
            shorter = batch._replace(changed=batch.changed[:changed])
            return decide(*self.bundles._replace(batch=shorter))
        self._entries[_CHANGED_LENGTH] = changed
        return decide_at(self._entries)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """Turn an integer into a pointer."""
    signature = types.voidptr(types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@view_maker
def _one(entries: Int64Array, number: int) -> Any:
    return carray(_pointer(entries[4 * number]), (entries[4 * number + 1],), np.int64)


@view_maker
def _two(entries: Int64Array, number: int) -> Any:
    lengths = (entries[4 * number + 1], entries[4 * number + 2])
    return carray(_pointer(entries[4 * number]), lengths, np.int64)


@view_maker
def _three(entries: Int64Array, number: int) -> Any:
    lengths = (entries[4 * number + 1], entries[4 * number + 2], entries[4 * number + 3])
    return carray(_pointer(entries[4 * number]), lengths, np.int64)


@view_maker
def _short(entries: Int64Array, number: int) -> Any:
    return carray(_pointer(entries[4 * number]), (entries[4 * number + 1],), np.int32)


@view_maker
def _flags(entries: Int64Array, number: int) -> Any:
    return carray(_pointer(entries[4 * number]), (entries[4 * number + 1],), np.bool_)


#: Where the directory keeps the length of `Batch.changed`.
_CHANGED = (
    len(HostArrays._fields)
    + 1
    + len(GroupArrays._fields)
    + len(Ranking._fields)
    + len(Tables._fields)
    + Batch._fields.index("changed")
)
_CHANGED_LENGTH = _ENTRY * _CHANGED + 1


@view_maker
def decide_at(entries: Int64Array) -> int:
    """Build the bundles from a directory and decide; the order is that of the fields."""
    e = entries
    hosts = HostArrays(
        _two(e, 0),
        _two(e, 1),
        _two(e, 2),
        _one(e, 3),
        _two(e, 4),
        _two(e, 5),
        _three(e, 6),
        _three(e, 7),
        _three(e, 8),
        _flags(e, 9),
    )
    groups = GroupArrays(
        _one(e, 11), _one(e, 12), _one(e, 13), _two(e, 14), _two(e, 15), _one(e, 16), _one(e, 17)
    )
    ranking = Ranking(
        _one(e, 18), _two(e, 19), _three(e, 20), _two(e, 21), _two(e, 22), _three(e, 23)
    )
    tables = Tables(_two(e, 24), _one(e, 25), _three(e, 26), _one(e, 27), _one(e, 28), _one(e, 29))
    batch = Batch(_two(e, 30), _short(e, 31), _short(e, 32), _one(e, 33), _one(e, 34))
    out = Decisions(
        _short(e, 35),
        _one(e, 36),
        _one(e, 37),
        _one(e, 38),
        _one(e, 39),
        _one(e, 40),
        _one(e, 41),
    )
    mix = MixArrays(_two(e, 43), _one(e, 44))
    scratch = Scratch(_one(e, 45), _one(e, 46), _one(e, 47), _one(e, 48), _one(e, 49))
    return decide(
        hosts, _two(e, 10), groups, ranking, tables, batch, out, _one(e, 42), mix, scratch
    )
