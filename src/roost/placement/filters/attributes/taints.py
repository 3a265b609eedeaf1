"""The VM tolerates every no-place taint of the host."""

import numpy as np

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.hosts import TaintEffect
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _applies(question: Question) -> bool:
    return len(question.fleet.hosts.taint_sets) > 1


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    tolerations = question.terms.constraints.tolerations
    # One verdict per distinct set of taints; a fleet has few of those.
    verdicts = [
        all(
            any(toleration.covers(taint.key, taint.value) for toleration in tolerations)
            for taint in taints
            if taint.effect is TaintEffect.NO_PLACE
        )
        for taints in hosts.taint_sets.values
    ]
    out: BoolArray = np.array(verdicts, np.bool_)[hosts.taint_set[rows]]
    return out


FILTER = Filter(
    Reason.TAINT, "the VM tolerates the host's taints", IndexForm.POOL, _applies, _column
)
