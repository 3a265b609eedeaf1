"""Whatever is ordered, lost, repeated, late or broken: the agent converges and breaks no law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.laws import SEEDS, examples
from tests.unit.agent.fleet import one_copy_executes
from tests.unit.agent.one_host import one_host_converges


@examples(100)
@given(seed=SEEDS, steps=st.integers(1, 30))
def test_a_host_converges_after_any_orders_faults_and_restarts(seed: int, steps: int) -> None:
    one_host_converges(seed, steps)


@pytest.mark.slow
@examples(12)
@given(seed=SEEDS, steps=st.integers(5, 20))
def test_at_most_one_copy_executes_at_every_instant_and_one_in_the_end(
    seed: int, steps: int
) -> None:
    one_copy_executes(seed, steps)
