"""The host has the driver the request names."""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    wanted = hosts.drivers.find(question.terms.constraints.driver or "")
    passes: BoolArray = hosts.driver[rows] == wanted
    return passes


FILTER = Filter(
    Reason.DRIVER,
    "the host's agent has the asked driver",
    IndexForm.POOL,
    lambda question: question.terms.constraints.driver is not None,
    _column,
)
