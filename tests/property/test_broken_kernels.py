"""The laws notice kernels that are broken on purpose (broken_kernels.py, with the compiler off)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.broken_kernels import AS_IT_IS, MUTANTS, SEEDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def caught() -> dict[str, int | None]:
    """Run all mutants in one process of their own."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.property.broken_kernels"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_noticed(mutant: str, caught: dict[str, int | None]) -> None:
    assert caught[mutant] in SEEDS


@pytest.mark.slow
def test_the_kernels_as_they_are_pass_with_the_same_seeds(caught: dict[str, int | None]) -> None:
    assert caught[AS_IT_IS] is None
