"""`./roost` of a checkout that is not set up: questions about it install nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).resolve().parents[3] / "roost"


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help", "vm"), ("--version",)])
def test_help_installs_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    copy = tmp_path / "roost"
    shutil.copy(LAUNCHER, copy)
    done = subprocess.run([copy, *words], capture_output=True, text=True, check=True, timeout=30)
    assert "not set up" in done.stdout
    assert "make demo" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["roost"]


def test_work_sets_it_up_first(tmp_path: Path) -> None:
    copy = tmp_path / "roost"
    shutil.copy(LAUNCHER, copy)
    made = tmp_path / ".venv" / "bin" / "roost"
    (tmp_path / "Makefile").write_text(
        f"plain:\n\tmkdir -p {made.parent}\n\tprintf '#!/bin/sh\\necho ran $$1\\n' > {made}\n"
        f"\tchmod +x {made}\n"
    )
    done = subprocess.run([copy, "vm"], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "ran vm\n"
