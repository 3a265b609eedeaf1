"""Earlier releases of roost, from the repository's history, run in this interpreter."""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.system.processes import Site

REPOSITORY = Path(__file__).parents[2]


def give_up(why: str) -> None:
    """Skip where the history is not at hand; a run that must say something fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def older_site(folder: Path, commit: str) -> Site:
    """Return a site in a folder whose processes are of a commit; whoever asks ends it."""
    try:
        packed = subprocess.run(
            ["git", "archive", commit, "src"], cwd=REPOSITORY, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        give_up(f"an earlier release is not at hand, needs git and commit {commit}: {error}")
    source = folder / f"older-{commit}"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(source, filter="data")
    made = Site(folder)
    made.environment["PYTHONPATH"] = str(source / "src")
    made.environment["NUMBA_DISABLE_JIT"] = "1"  # it would compile anew for every test
    found = subprocess.run(
        [sys.executable, "-c", "import roost; print(roost.__file__)"],
        env=made.environment, cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(found.stdout.strip()).is_relative_to(source), "the earlier release is not first"
    return made
