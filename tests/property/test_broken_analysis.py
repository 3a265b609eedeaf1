"""Properties notice kernels of the analysis that are broken on purpose (broken_analysis.py)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.broken_analysis import AS_IT_IS, MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_broken_kernel_of_the_analysis_is_noticed() -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.property.broken_analysis"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    caught: dict[str, bool] = dict(json.loads(line) for line in done.stdout.splitlines())
    assert [mutant for mutant in MUTANTS if not caught[mutant]] == []
    assert caught[AS_IT_IS] is False
