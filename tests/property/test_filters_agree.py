"""The column form of every filter, its twin and the compiled index agree on every host."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.laws import FOCI, SEEDS, examples, filters_agree


@examples(50)
@given(seed=SEEDS, hosts=st.integers(1, 50), focus=FOCI)
def test_each_filter_equals_its_twin_and_all_together_equal_the_engine(
    seed: int, hosts: int, focus: str
) -> None:
    filters_agree(seed, hosts, focus=focus)
