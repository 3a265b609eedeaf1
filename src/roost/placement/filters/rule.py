"""No part of a hard rule that binds the VM is false on the host."""

from functools import partial

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question
from roost.placement.rules.columns import FAILS
from roost.placement.rules.parts import Part, hard_parts


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for _, part in hard_parts(question.terms):
        passes &= question.rules.part(part, rows) != FAILS
    return passes


def _applies(question: Question) -> bool:
    return any(rule.hard for rule in question.terms.rules)


def _part_column(part: Part, question: Question, rows: Int64Array) -> BoolArray:
    passes: BoolArray = question.rules.part(part, rows) != FAILS
    return passes


def _split(question: Question) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            Reason.RULE,
            f"rule {rule.name!r} holds on the host: {part.text}",
            IndexForm.RULES,
            _applies,
            partial(_part_column, part),
            rule=rule.name,
            part=part.text,
        )
        for rule, part in hard_parts(question.terms)
    )


FILTER = Filter(
    Reason.RULE,
    "every hard rule holds on the host",
    IndexForm.RULES,
    _applies,
    _column,
    split=_split,
)
