"""The host's limit on its number of VMs leaves room for one more."""

from roost.fleet.layout import SLOTS, BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm, always
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    passes: BoolArray = hosts.arrays.headroom[rows, len(hosts.resources) + SLOTS] >= 1
    return passes


FILTER = Filter(
    Reason.MAX_VMS,
    "the host may have one more VM",
    IndexForm.CAPACITY,
    always,
    _column,
)
