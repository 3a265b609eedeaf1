"""No part of a hard rule that binds the VM ends in an error on the host.

A rule that reads what the host does not have is not satisfied there, and that is said apart from a
rule that was answered with no.
"""

from functools import partial

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import BoundRule
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question
from roost.placement.rules.columns import ERROR
from roost.placement.rules.parts import Part, hard_parts


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for rule in question.terms.rules:
        if rule.hard:
            passes &= question.rules.rule(rule, rows) != ERROR
    return passes


def _applies(question: Question) -> bool:
    return any(rule.hard for rule in question.terms.rules)


def _part_column(rule: BoundRule, part: Part, question: Question, rows: Int64Array) -> BoolArray:
    in_error = question.rules.rule(rule, rows) == ERROR  # no other part of it says no
    passes: BoolArray = ~(in_error & (question.rules.part(part, rows) == ERROR))
    return passes


def _split(question: Question) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            Reason.RULE_ERROR,
            f"rule {rule.name!r} has a value on the host: {part.text}",
            IndexForm.RULES,
            _applies,
            partial(_part_column, rule, part),
            rule=rule.name,
            part=part.text,
        )
        for rule, part in hard_parts(question.terms)
    )


FILTER = Filter(
    Reason.RULE_ERROR,
    "no hard rule ends in an error on the host",
    IndexForm.RULES,
    _applies,
    _column,
    split=_split,
)
