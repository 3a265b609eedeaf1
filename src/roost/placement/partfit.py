"""Which hosts have the devices and the NUMA cells that a VM asks for, by what is free of each.

The filters of devices and of cells ask it of what is not promised, the held filter also of what is
left beside what reservations hold.
"""

import numpy as np

from roost.fleet.description import model_mask
from roost.fleet.layout import CPU, MEMORY, BoolArray, Int64Array
from roost.model.resources import WHOLE_DEVICE, NumaMode
from roost.placement.question import Question


def enough_devices(question: Question, rows: Int64Array, free: Int64Array) -> BoolArray:
    """Say which hosts have the devices that are asked for, if so much of each is free."""
    ask = question.terms.devices
    assert ask is not None
    info = question.fleet.hosts.arrays.device_info[rows]
    suits = (free >= ask.milli) & (info[:, :, 1] >= ask.memory_bytes)
    if ask.models:
        suits &= (model_mask(question.fleet, ask.models) >> info[:, :, 0]) & 1 == 1
    if ask.milli < WHOLE_DEVICE:
        suits &= info[:, :, 2] == 1
    out: BoolArray = np.count_nonzero(suits, axis=1) >= ask.count
    return out


def cells_fit(question: Question, free: Int64Array) -> BoolArray:
    """Say which hosts take the VM in their cells, if so much of each is free."""
    cpu, memory = int(question.demand[CPU]), int(question.demand[MEMORY])
    if question.terms.numa is NumaMode.ONE_CELL:
        alone: BoolArray = np.any((free[:, :, 0] >= cpu) & (free[:, :, 1] >= memory), axis=1)
        return alone
    larger = (free[:, :, 0] >= cpu - cpu // 2) & (free[:, :, 1] >= memory - memory // 2)
    smaller = (free[:, :, 0] >= cpu // 2) & (free[:, :, 1] >= memory // 2)
    passes = np.zeros(len(free), np.bool_)
    for first in range(free.shape[1]):
        for second in range(first + 1, free.shape[1]):
            passes |= larger[:, first] & smaller[:, second]
    return passes
