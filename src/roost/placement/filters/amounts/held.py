"""What reservations and moves hold is not given away, even where nothing is promised yet."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.model.resources import NumaMode
from roost.placement.filtering import Filter, IndexForm
from roost.placement.partfit import cells_fit, enough_devices
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    passes = np.ones(len(rows), np.bool_)
    for column in np.flatnonzero(question.demand > 0).tolist():
        promised = hosts.arrays.committed[rows, column] + question.demand[column]
        capacity = hosts.arrays.capacity[rows, column]
        # A host that is short without any hold is the resource filters' business.
        short_by_holds = (promised <= capacity) & (promised + hosts.held[rows, column] > capacity)
        passes &= ~short_by_holds
    if question.terms.devices is not None:
        free = hosts.arrays.device_free[rows]
        passes &= enough_devices(question, rows, free) | ~enough_devices(
            question, rows, free + hosts.held_devices[rows]
        )
    if question.terms.numa is not NumaMode.ANY:
        free = hosts.arrays.cell_free[rows]
        passes &= cells_fit(question, free) | ~cells_fit(question, free + hosts.held_cells[rows])
    return passes


FILTER = Filter(
    Reason.HELD,
    "enough is left beside what reservations and moves hold",
    IndexForm.CAPACITY,
    lambda question: bool(question.fleet.holds or question.fleet.kept),
    _column,
)
