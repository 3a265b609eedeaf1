"""Only a host whose agent is online takes new VMs."""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.hosts import Health
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm, always
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes: BoolArray = question.fleet.hosts.health[rows] == Health.ONLINE
    return passes


FILTER = Filter(
    Reason.NOT_ONLINE, "the host's agent is online", IndexForm.MEMBERSHIP, always, _column
)
