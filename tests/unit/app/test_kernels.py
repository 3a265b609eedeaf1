"""A word to the user while kernels compile, and only then."""

import os
import subprocess
import sys
from pathlib import Path

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

#: Kernels that Python calls, by the arrays that they are handed; the others are called by these.
_WARM_ALL = """
from roost.app.warming import warm_up
warm_up()
from roost.placement.kernels import charging, directory
for entry in (charging.charge_at, directory.decide_at):
    print(len(entry.signatures))
"""


def run(script: str, cache: Path | None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
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
