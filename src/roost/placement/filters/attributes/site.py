"""The host is at one of the sites the request names."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    wanted = [hosts.sites.find(name) for name in question.terms.constraints.sites]
    return np.isin(hosts.site[rows], [number for number in wanted if number >= 0])


FILTER = Filter(
    Reason.SITE,
    "the host is at one of the asked sites",
    IndexForm.POOL,
    lambda question: bool(question.terms.constraints.sites),
    _column,
)
