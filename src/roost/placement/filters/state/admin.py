"""Only a host that its operators keep open takes new VMs."""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.hosts import Admin
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm, always
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes: BoolArray = question.fleet.hosts.admin[rows] == Admin.OPEN
    return passes


FILTER = Filter(
    Reason.NOT_OPEN,
    "the host is neither cordoned, draining nor in maintenance",
    IndexForm.MEMBERSHIP,
    always,
    _column,
)
