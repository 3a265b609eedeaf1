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
