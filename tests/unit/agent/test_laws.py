"""Whatever is ordered, lost, repeated, late or broken: the agent converges and breaks no law."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.laws import SEEDS, examples
from tests.unit.agent.fleet import one_copy_executes
from tests.unit.agent.one_host import one_host_converges

ROOT = Path(__file__).parents[3]


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


@pytest.mark.slow
def test_the_same_seed_is_the_same_life() -> None:
    code = (
        "import logging; logging.disable(50)\n"
        "from tests.unit.agent.fleet import one_copy_executes\n"
        "fleet = one_copy_executes(3, 12)\n"
        "print([(host, vms.vms) for host, vms in fleet.vms.items()], fleet.clock.now)\n"
        "print(fleet.control.moved, fleet.control.recovered)\n"
    )
    lives = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(lives) == 1
