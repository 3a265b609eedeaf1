"""What a process loads before its first decision: nothing that no kernel calls."""

import subprocess
import sys

_DECIDE = """
import sys
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import HostSpec, Resource
from roost.model.resources import Demand
from roost.placement.engine import Engine

fleet = Fleet()
fleet.register(HostSpec("h", Resource(8000), Resource(2**34), Resource(2**40)))
assert Engine(fleet).find(PlaceRequest("vm", Demand(1000, 2**30))) is not None
print(*(name for name in ("scipy.linalg", "roost.analysis", "ortools") if name in sys.modules))
"""


def test_a_first_decision_loads_neither_linear_algebra_nor_the_analysis() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DECIDE], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_other_compiled_code_finds_linear_algebra_when_it_calls_it() -> None:
    program = """
import roost.placement.kernels.compiling
import numpy as np, numba
assert numba.njit(lambda a: a @ a)(2 * np.eye(2))[0, 0] == 4
import scipy.linalg
print(scipy.linalg.inv(2 * np.eye(2))[0, 0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0.5"
