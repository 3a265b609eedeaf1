"""Every label term of the request holds on the host."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for term in question.terms.constraints.labels:
        passes &= question.fleet.hosts.labels.matches(term, rows)
    return passes


FILTER = Filter(
    Reason.LABELS,
    "the host's labels satisfy every term",
    IndexForm.POOL,
    lambda question: bool(question.terms.constraints.labels),
    _column,
)
