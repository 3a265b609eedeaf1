"""The way to every VM that this one must reach has the bandwidth that it asks for."""

from functools import partial

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import Talk
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.nearness import mbit_text
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    passes = np.ones(len(rows), np.bool_)
    for talk in question.terms.talks:
        passes &= question.near.bandwidth_holds(talk, rows)
    return passes


def _applies(question: Question) -> bool:
    return any(talk.least_kbit is not None for talk in question.terms.talks)


def _one(talk: Talk, question: Question, rows: Int64Array) -> BoolArray:
    return question.near.bandwidth_holds(talk, rows)


def _split(question: Question) -> tuple[Filter, ...]:
    """Return a filter for each bound; its part says how near any host comes."""
    found = []
    for talk in question.terms.talks:
        if talk.least_kbit is None:
            continue
        part = f"at least {mbit_text(talk.least_kbit)} to {talk.name}"
        nearest = question.near.nearest(talk, question.terms.constraints, wide=True)
        if nearest is not None:
            host, value = nearest
            part += f", nearest {host} with {mbit_text(value)}"
        found.append(
            Filter(
                Reason.BANDWIDTH, f"bandwidth {part}", IndexForm.POOL, _applies,
                partial(_one, talk), part=part,
            )
        )  # fmt: skip
    return tuple(found)


FILTER = Filter(
    Reason.BANDWIDTH,
    "the way to every VM that it must reach is wide enough",
    IndexForm.POOL,
    _applies,
    _column,
    split=_split,
)
