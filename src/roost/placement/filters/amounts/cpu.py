"""Enough cpu is not promised yet: committed + demand <= capacity. An exact fit fits.

What reservations and moves hold is left to the held filter, which can say so.
"""

from roost.fleet.layout import CPU, BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    arrays = question.fleet.hosts.arrays
    promised = arrays.committed[rows, CPU] + question.demand[CPU]
    passes: BoolArray = promised <= arrays.capacity[rows, CPU]
    return passes


FILTER = Filter(
    Reason.CPU,
    "enough cpu is not promised yet",
    IndexForm.CAPACITY,
    lambda question: bool(question.demand[CPU] > 0),
    _column,
)
