"""Hosts that the request names as excluded are out."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    known = question.fleet.hosts.rows
    named = [known[name] for name in question.terms.constraints.excluded if name in known]
    return ~np.isin(rows, named)


FILTER = Filter(
    Reason.EXCLUDED,
    "the host is not one of those the VM excludes",
    IndexForm.ROW,
    lambda question: bool(question.terms.constraints.excluded),
    _column,
)
