"""What an agent says of a VM: a failure always has a code and a reason."""

from itertools import product
from typing import get_args

import pytest

from roost.agent.drivers.base import LocalState, LocalVM
from roost.agent.sightings import sighting
from roost.agent.store import Record
from roost.hostkit.failures import DriverError
from roost.hostkit.lanes import Failure
from roost.model.states import Part
from roost.testing.orders import vm


@pytest.mark.parametrize("state", get_args(LocalState))
def test_what_failed_is_told_with_a_reason(state: LocalState) -> None:
    local = LocalVM("vm-1", "vm-1", state, generation=1)
    problems = (None, Failure(2, "transient", "overdue", "start took longer than 180 s"))
    for part, failure in product(get_args(Part), problems):
        seen = sighting("vm-1", vm(generation=2, part=part), Record("vm-1"), local, None, failure)
        assert seen is not None
        if seen.seen == "failed":
            assert seen.code.strip()
            assert seen.message.strip()


def test_an_error_of_a_driver_without_words_still_says_something() -> None:
    error = DriverError("transient", "no_answer", str(TimeoutError()))
    assert error.message == str(error) == "no_answer, and nothing says why"
