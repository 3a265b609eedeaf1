"""A member of a hard spread group keeps the difference between domains within max skew."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.groups import GroupRule
from roost.model.reasons import Reason
from roost.placement.domains import fewest_members, hard_groups, members_per_host
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for group in hard_groups(question, GroupRule.SPREAD):
        members, known = members_per_host(question.fleet, group, rows)
        fewest = fewest_members(question, group)
        passes &= known & (members + 1 - fewest <= question.fleet.groups.specs[group].max_skew)
    return passes


FILTER = Filter(
    Reason.SPREAD,
    "the domain stays within the spread group's max skew",
    IndexForm.DOMAINS,
    lambda question: bool(hard_groups(question, GroupRule.SPREAD)),
    _column,
)
