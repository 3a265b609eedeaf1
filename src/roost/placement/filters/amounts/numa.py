"""The host's NUMA cells can take the VM as it asks: in one cell, or half in each of two.

What reservations hold of cells is left to the held filter, which can say so.
"""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.model.resources import NumaMode
from roost.placement.filtering import Filter, IndexForm
from roost.placement.partfit import cells_fit
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    return cells_fit(question, hosts.arrays.cell_free[rows] + hosts.held_cells[rows])


FILTER = Filter(
    Reason.NUMA,
    "the host's NUMA cells can take the VM in the asked way",
    IndexForm.ROW,
    lambda question: question.terms.numa is not NumaMode.ANY,
    _column,
)
