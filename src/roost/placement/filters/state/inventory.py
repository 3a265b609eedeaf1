"""Unknown is full: a host with a total that nobody could read takes no VM."""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm, always
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    return question.fleet.hosts.known[rows]


FILTER = Filter(
    Reason.INVENTORY_UNKNOWN,
    "every total of the host is known",
    IndexForm.MEMBERSHIP,
    always,
    _column,
)
