"""A host whose measured pressure is above a bound takes no new VM; no bound, no filter.

Pressure is what tasks of the host wait for cpu, memory or io, in percent of the last ten seconds.
A host without a reading is refused as long as there is a bound: unknown is full.
"""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _applies(question: Question) -> bool:
    return question.fleet.hosts.bounds_pressure


def _column(question: Question, rows: Int64Array) -> BoolArray:
    return ~question.fleet.hosts.is_pressed(rows)


FILTER = Filter(
    Reason.PRESSURE,
    "no measured pressure of the host is above its bound",
    IndexForm.MEMBERSHIP,
    _applies,
    _column,
)
