"""A member of a hard affinity group joins a fault domain that already has one."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.groups import GroupRule
from roost.model.reasons import Reason
from roost.placement.domains import hard_groups, members_per_host
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for group in hard_groups(question, GroupRule.AFFINITY):
        members, known = members_per_host(question.fleet, group, rows)
        if question.fleet.groups.arrays.members[group] > 0:
            passes &= members > 0
        passes &= known
    return passes


FILTER = Filter(
    Reason.AFFINITY,
    "the domain already has a member of the affinity group",
    IndexForm.DOMAINS,
    lambda question: bool(hard_groups(question, GroupRule.AFFINITY)),
    _column,
)
