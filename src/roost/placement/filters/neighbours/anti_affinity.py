"""A member of a hard anti-affinity group joins a fault domain that has none."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.groups import GroupRule
from roost.model.reasons import Reason
from roost.placement.domains import hard_groups, members_per_host
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for group in hard_groups(question, GroupRule.ANTI_AFFINITY):
        members, known = members_per_host(question.fleet, group, rows)
        passes &= known & (members == 0)
    return passes


FILTER = Filter(
    Reason.ANTI_AFFINITY,
    "the domain has no member of the anti-affinity group yet",
    IndexForm.DOMAINS,
    lambda question: bool(hard_groups(question, GroupRule.ANTI_AFFINITY)),
    _column,
)
