"""The host has enough devices of an asked model with the asked share free on each.

What reservations hold of devices is left to the held filter, which can say so.
"""

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.filtering import Filter, IndexForm
from roost.placement.partfit import enough_devices
from roost.placement.question import Question


def _column(question: Question, rows: Int64Array) -> BoolArray:
    hosts = question.fleet.hosts
    free = hosts.arrays.device_free[rows] + hosts.held_devices[rows]
    return enough_devices(question, rows, free)


FILTER = Filter(
    Reason.DEVICE,
    "enough devices of an asked model have the asked share free",
    IndexForm.ROW,
    lambda question: question.terms.devices is not None,
    _column,
)
