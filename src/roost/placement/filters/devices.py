"""The host has enough devices of an asked model with the asked share free on each."""

import numpy as np

from roost.fleet.description import model_mask
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.model.resources import WHOLE_DEVICE
from roost.placement.filtering import Filter, IndexForm
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    ask = question.terms.devices
    assert ask is not None
    arrays = question.fleet.hosts.arrays
    info = arrays.device_info[rows]
    suits = (arrays.device_free[rows] >= ask.milli) & (info[:, :, 1] >= ask.memory_bytes)
    if ask.models:
        suits &= (model_mask(question.fleet, ask.models) >> info[:, :, 0]) & 1 == 1
    if ask.milli < WHOLE_DEVICE:
        suits &= info[:, :, 2] == 1
    out: BoolArray = np.count_nonzero(suits, axis=1) >= ask.count
    return out


FILTER = Filter(
    Reason.DEVICE,
    "enough devices of an asked model have the asked share free",
    IndexForm.ROW,
    lambda question: question.terms.devices is not None,
    _column,
)
