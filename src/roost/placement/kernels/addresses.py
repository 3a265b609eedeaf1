"""Arrays handed over as addresses.

Handing an array from Python to compiled code costs a quarter of a microsecond, and the bundles
have dozens of them. The arrays hardly ever change, so their addresses and shapes are written down
once, as the entries of one array, and compiled code makes its bundles out of those. Whoever writes
addresses down keeps the arrays alive.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import carray, types
from numba.extending import intrinsic

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import HostArrays, Int64Array
from roost.placement.kernels.compiling import view_maker

ENTRY = 4  # an address and up to three lengths


def addresses(arrays: Sequence[npt.NDArray[Any]]) -> Int64Array:
    """Return where the arrays are and how long."""
    entries = np.zeros(ENTRY * len(arrays), np.int64)
    for number, array in enumerate(arrays):
        assert array.flags.c_contiguous
        at = ENTRY * number
        entries[at] = array.ctypes.data
        entries[at + 1 : at + 1 + array.ndim] = array.shape
    return entries


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """Turn an integer into a pointer."""
    signature = types.voidptr(types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@view_maker
def one(entries: Int64Array, number: int) -> Any:
    """Return entry `number` as an int64 array with one axis."""
    return carray(_pointer(entries[4 * number]), (entries[4 * number + 1],), np.int64)


@view_maker
def two(entries: Int64Array, number: int) -> Any:
    """Return entry `number` as an int64 array with two axes."""
    lengths = (entries[4 * number + 1], entries[4 * number + 2])
    return carray(_pointer(entries[4 * number]), lengths, np.int64)


@view_maker
def three(entries: Int64Array, number: int) -> Any:
    """Return entry `number` as an int64 array with three axes."""
    lengths = (entries[4 * number + 1], entries[4 * number + 2], entries[4 * number + 3])
    return carray(_pointer(entries[4 * number]), lengths, np.int64)


@view_maker
def short(entries: Int64Array, number: int) -> Any:
    """Return entry `number` as an int32 array."""
    return carray(_pointer(entries[4 * number]), (entries[4 * number + 1],), np.int32)


@view_maker
def flags(entries: Int64Array, number: int) -> Any:
    """Return entry `number` as a bool array."""
    return carray(_pointer(entries[4 * number]), (entries[4 * number + 1],), np.bool_)


@view_maker
def hosts_at(e: Int64Array, at: int) -> HostArrays:
    """Return the host columns, the first of which is entry `at`."""
    return HostArrays(
        two(e, at),
        two(e, at + 1),
        two(e, at + 2),
        one(e, at + 3),
        two(e, at + 4),
        two(e, at + 5),
        three(e, at + 6),
        three(e, at + 7),
        three(e, at + 8),
        flags(e, at + 9),
        two(e, at + 10),
        two(e, at + 11),
    )


@view_maker
def groups_at(e: Int64Array, at: int) -> GroupArrays:
    """Return the group columns, the first of which is entry `at`."""
    return GroupArrays(
        one(e, at),
        one(e, at + 1),
        one(e, at + 2),
        two(e, at + 3),
        two(e, at + 4),
        one(e, at + 5),
        one(e, at + 6),
        one(e, at + 7),
        one(e, at + 8),
    )
