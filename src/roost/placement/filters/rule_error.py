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


class _InError:
    """Where a rule ends in an error (no part of it says no), computed once for all its parts."""

    def __init__(self, rule: BoundRule) -> None:
        self._rule = rule
        self._rows: Int64Array | None = None
        self._found: BoolArray = np.zeros(0, np.bool_)

    def column(self, part: Part, question: Question, rows: Int64Array) -> BoolArray:
        """Say which hosts pass a part: all but those where it is what the rule ends in."""
        if rows is not self._rows:
            self._found = question.rules.rule(self._rule, rows) == ERROR
            self._rows = rows
        passes: BoolArray = ~self._found
        if not passes.all():
            passes |= question.rules.part(part, rows) != ERROR
        return passes


def _split(question: Question) -> tuple[Filter, ...]:
    rules = {rule.name: _InError(rule) for rule in question.terms.rules}
    return tuple(
        Filter(
            Reason.RULE_ERROR,
            f"rule {rule.name!r} has a value on the host: {part.text}",
            IndexForm.RULES,
            _applies,
            partial(rules[rule.name].column, part),
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
