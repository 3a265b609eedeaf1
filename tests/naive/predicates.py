"""Compiled constraints for tests: each as a column over a fleet and as a question to one host."""

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, BoolArray
from roost.model.constraints import Predicate
from tests.naive.fleet import Row


def _third_number(fleet: Fleet) -> BoolArray:
    return np.arange(fleet.hosts.count) % 3 != 0


def _on_racks(fleet: Fleet) -> BoolArray:
    return fleet.hosts.arrays.domain[: fleet.hosts.count, 1] >= 0


def _few_vms(fleet: Fleet) -> BoolArray:
    return fleet.hosts.arrays.vm_count[: fleet.hosts.count] < 3


def _cpu_half_free(fleet: Fleet) -> BoolArray:
    arrays, count = fleet.hosts.arrays, fleet.hosts.count
    return arrays.committed[:count, CPU] * 2 <= arrays.capacity[:count, CPU]


PREDICATES = (
    Predicate("not every third number", _third_number),
    Predicate("has a rack", _on_racks),
    Predicate("fewer than three VMs", _few_vms, stable=False),
    Predicate("cpu half free", _cpu_half_free, stable=False),
)


def holds_on(predicate: Predicate, row: Row) -> bool:
    """Say whether a predicate holds on one host."""
    if predicate.name == "not every third number":
        return row.number % 3 != 0
    if predicate.name == "has a rack":
        return row.spec.rack != ""
    if predicate.name == "fewer than three VMs":
        return row.vms < 3
    return row.committed.get("cpu", 0) * 2 <= row.capacity["cpu"]
