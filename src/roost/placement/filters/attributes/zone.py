"""The host is in one of the zones the request names."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.hosts import Scope
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    wanted = [hosts.zones.find(name) for name in question.terms.constraints.zones]
    known = [number for number in wanted if number >= 0]
    return np.isin(hosts.arrays.domain[rows, Scope.ZONE], known)


FILTER = Filter(
    Reason.ZONE,
    "the host is in one of the asked zones",
    IndexForm.POOL,
    lambda question: bool(question.terms.constraints.zones),
    _column,
)
