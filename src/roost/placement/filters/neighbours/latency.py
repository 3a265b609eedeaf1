"""Every VM that this one must be near to is near enough by latency."""

from functools import partial

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import Talk
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.nearness import ms_text
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for talk in question.terms.talks:
        passes &= question.near.latency_holds(talk, rows)
    return passes


def _applies(question: Question) -> bool:
    return any(talk.most_us is not None for talk in question.terms.talks)


def _one(talk: Talk, question: Question, rows: Int64Array) -> BoolArray:
    return question.near.latency_holds(talk, rows)


def _split(question: Question) -> tuple[Filter, ...]:
    """Return a filter for each bound; its part says how near any host comes."""
    found = []
    for talk in question.terms.talks:
        if talk.most_us is None:
            continue
        part = f"at most {ms_text(talk.most_us)} to {talk.name}"
        nearest = question.near.nearest(talk, question.terms.constraints, wide=False)
        if nearest is not None:
            host, value = nearest
            part += f", nearest {host} with {ms_text(value)}"
        found.append(
            Filter(
                Reason.LATENCY, f"latency {part}", IndexForm.POOL, _applies,
                partial(_one, talk), part=part,
            )
        )  # fmt: skip
    return tuple(found)


FILTER = Filter(
    Reason.LATENCY,
    "it is near enough to every VM that it must be near to",
    IndexForm.POOL,
    _applies,
    _column,
    split=_split,
)
