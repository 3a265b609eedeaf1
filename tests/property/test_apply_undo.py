"""Apply then undo is identity."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.laws import FOCI, SEEDS, apply_then_undo_is_identity, examples


@examples(100)
@given(seed=SEEDS, hosts=st.integers(1, 25), steps=st.integers(1, 40), focus=FOCI)
def test_undo_brings_back_every_column_and_every_answer(
    seed: int, hosts: int, steps: int, focus: str
) -> None:
    apply_then_undo_is_identity(seed, hosts, steps, focus)
