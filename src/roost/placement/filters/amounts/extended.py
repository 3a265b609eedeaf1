"""Enough of every extended resource is not promised yet."""

import numpy as np

from roost.fleet.layout import BASE, BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    arrays = question.fleet.hosts.arrays
    passes = np.ones(len(rows), np.bool_)
    for column in range(BASE, len(question.demand)):
        if question.demand[column] > 0:
            promised = arrays.committed[rows, column] + question.demand[column]
            passes &= promised <= arrays.capacity[rows, column]
    return passes


FILTER = Filter(
    Reason.EXTENDED,
    "enough of every extended resource is not promised yet",
    IndexForm.CAPACITY,
    lambda question: bool((question.demand[BASE:] > 0).any()),
    _column,
)
