"""The request's compiled constraint says yes to the host."""

import numpy as np

from roost.base.errors import InvalidRequest
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    predicate = question.terms.constraints.predicate
    assert predicate is not None
    column = np.asarray(predicate.column(question.fleet), np.bool_)
    if len(column) < question.fleet.hosts.count:
        raise InvalidRequest(
            f"predicate {predicate.name!r} gave {len(column)} verdicts for "
            f"{question.fleet.hosts.count} hosts"
        )
    return column[rows]


FILTER = Filter(
    Reason.PREDICATE,
    "the request's compiled constraint holds",
    IndexForm.POOL,
    lambda question: question.terms.constraints.predicate is not None,
    _column,
)
