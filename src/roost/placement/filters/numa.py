"""The host's NUMA cells can take the VM as it asks: in one cell, or half in each of two."""

import numpy as np

from roost.fleet.layout import CPU, MEMORY, BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.model.resources import NumaMode
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    free = question.fleet.hosts.arrays.cell_free[rows]
    cpu, memory = int(question.demand[CPU]), int(question.demand[MEMORY])
    if question.terms.numa is NumaMode.ONE_CELL:
        alone: BoolArray = np.any((free[:, :, 0] >= cpu) & (free[:, :, 1] >= memory), axis=1)
        return alone
    larger = (free[:, :, 0] >= cpu - cpu // 2) & (free[:, :, 1] >= memory - memory // 2)
    smaller = (free[:, :, 0] >= cpu // 2) & (free[:, :, 1] >= memory // 2)
    passes = np.zeros(len(rows), np.bool_)
    for first in range(free.shape[1]):
        for second in range(first + 1, free.shape[1]):
            passes |= larger[:, first] & smaller[:, second]
    return passes


FILTER = Filter(
    Reason.NUMA,
    "the host's NUMA cells can take the VM in the asked way",
    IndexForm.ROW,
    lambda question: question.terms.numa is not NumaMode.ANY,
    _column,
)
