"""The laws notice kernels that are broken on purpose (broken_kernels.py, with the compiler off)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.broken_kernels import AS_IT_IS, MUTANTS, SEEDS

ROOT = Path(__file__).parents[2]


# One test, for tests of a module may run in several processes, and each would run all the mutants.
@pytest.mark.slow
def test_every_broken_kernel_is_noticed_and_those_as_they_are_pass() -> None:
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
    caught: dict[str, int | None] = dict(json.loads(line) for line in done.stdout.splitlines())
    assert caught.keys() == {*MUTANTS, AS_IT_IS}
    assert [mutant for mutant in MUTANTS if caught[mutant] not in SEEDS] == []
    assert caught[AS_IT_IS] is None
