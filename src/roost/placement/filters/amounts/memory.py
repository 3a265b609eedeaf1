"""Enough memory is not promised yet: committed + demand <= capacity. An exact fit fits.

What reservations and moves hold is left to the held filter, which can say so.
"""

from roost.fleet.layout import MEMORY, BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    arrays = question.fleet.hosts.arrays
    promised = arrays.committed[rows, MEMORY] + question.demand[MEMORY]
    passes: BoolArray = promised <= arrays.capacity[rows, MEMORY]
    return passes


FILTER = Filter(
    Reason.MEMORY,
    "enough memory is not promised yet",
    IndexForm.CAPACITY,
    lambda question: bool(question.demand[MEMORY] > 0),
    _column,
)
