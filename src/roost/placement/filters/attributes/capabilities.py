"""The host has every capability the request names."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    wanted = set(question.terms.constraints.capabilities)
    verdicts = [wanted <= set(capabilities) for capabilities in hosts.capability_sets.values]
    out: BoolArray = np.array(verdicts, np.bool_)[hosts.capability_set[rows]]
    return out


FILTER = Filter(
    Reason.CAPABILITY,
    "the host has every asked capability",
    IndexForm.POOL,
    lambda question: bool(question.terms.constraints.capabilities),
    _column,
)
