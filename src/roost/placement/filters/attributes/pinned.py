"""A pinned VM goes to one of the named hosts and nowhere else."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    known = question.fleet.hosts.rows
    named = [known[name] for name in question.terms.constraints.pinned if name in known]
    return np.isin(rows, named)


FILTER = Filter(
    Reason.NOT_PINNED,
    "the host is one of those the VM is pinned to",
    IndexForm.POOL,
    lambda question: bool(question.terms.constraints.pinned),
    _column,
)
