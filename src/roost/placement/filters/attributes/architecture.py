"""The host has the architecture the request names."""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    wanted = hosts.architectures.find(question.terms.constraints.architecture or "")
    passes: BoolArray = hosts.architecture[rows] == wanted
    return passes


FILTER = Filter(
    Reason.ARCHITECTURE,
    "the host has the asked architecture",
    IndexForm.POOL,
    lambda question: question.terms.constraints.architecture is not None,
    _column,
)
