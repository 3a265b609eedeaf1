"""A word to the user while kernels compile, and only then."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import roost

_COMPILE_ONE = """
import sys
from roost.app.kernels import announce_compiling
announce_compiling(lambda text: print(text, file=sys.stderr))
from roost.placement.kernels.compiling import CACHE_FOLDER, entry_point
@entry_point
def double(number):
    return 2 * number
print(CACHE_FOLDER is not None, double(21), double(4))
"""

_COMPILE_SHIPPED = """
import sys
from pathlib import Path
from roost.app.kernels import announce_compiling
announce_compiling(lambda text: print(text, file=sys.stderr))
import roost
from roost.placement.kernels.fixed_point import ratio
ratio.compile("int64(int64, int64)")
print(Path(roost.__file__).parent)
"""

#: Kernels that Python calls, by the arrays that they are handed; the others are called by these.
_WARM_ALL = """
from roost.app.warming import warm_up
warm_up()
from roost.placement.kernels import charging, directory
for entry in (charging.charge_at, directory.decide_at):
    print(len(entry.signatures))
"""

#: A plan of a fleet with rules, after everything was made ready; prints what had to be compiled.
_PLAN = """
from roost.app.warming import warm_up
warm_up()
import numpy as np
from roost.planner.kernels import annealing, descending, moving, ruining
from roost.planner.problem import APART, simple
from roost.planner.search import propose
entries = (annealing.anneal, ruining.ruin, moving.move_many, descending.descend,
           descending.take_back)
compiled = sum(sum(entry.stats.cache_misses.values()) for entry in entries)
start, demand = np.zeros(6, np.int32), np.ones((6, 2), np.int64)
weights = np.full(2, 1000, np.int64)
apart = np.array([[APART, 0, 1, 0]], np.int64)
problem = simple(start, demand, np.full((3, 2), 8, np.int64), even_weight=weights, groups=apart,
                 member_start=np.array([0, 2]), members=np.array([0, 1], np.int32))
found = propose(problem, 20_000)
now = sum(sum(entry.stats.cache_misses.values()) for entry in entries)
print(len(found.moves) > 0, now - compiled)
"""


def run(
    script: str, cache: Path | None, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    environment.pop("NUMBA_DISABLE_JIT", None)
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_a_first_compile_is_said_once(tmp_path: Path) -> None:
    done = run(_COMPILE_ONE, tmp_path)
    assert done.stderr.count("compiling kernels (first run only") == 1


def test_a_folder_that_can_be_written_keeps_the_kernels(tmp_path: Path) -> None:
    assert run(_COMPILE_ONE, tmp_path).stdout.split() == ["True", "42", "8"]


def test_a_missing_or_unwritable_folder_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run(_COMPILE_ONE, blocked).stdout.split() == ["False", "42", "8"]


def test_what_is_warm_has_nothing_left_to_load_at_the_first_request() -> None:
    assert run(_WARM_ALL, None).stdout.split() == ["1", "1"]


def test_a_first_plan_of_a_large_fleet_compiles_nothing() -> None:
    assert run(_PLAN, None).stdout.split() == ["True", "0"]


def test_a_second_place_with_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    copied = elsewhere / "roost"
    shutil.copytree(
        Path(roost.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__")
    )
    first = run(_COMPILE_SHIPPED, cache)
    second = run(_COMPILE_SHIPPED, cache, path=elsewhere)
    assert [Path(done.stdout.split()[0]) for done in (first, second)] == [
        Path(roost.__file__).parent,
        copied,
    ]
    assert ("compiling" in first.stderr, "compiling" in second.stderr) == (True, False)


def test_code_that_another_user_may_write_is_not_executed(tmp_path: Path) -> None:
    run(_COMPILE_ONE, tmp_path)
    (kept,) = tmp_path.glob("kernels-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    kept.chmod(0o777)
    assert run(_COMPILE_ONE, tmp_path).stdout.split() == ["False", "42", "8"]
