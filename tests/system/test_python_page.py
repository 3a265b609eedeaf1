"""The code of docs/how-to/use-from-python.md, run as it stands against a real server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.processes import Site

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-from-python.md"


def test_the_code_of_the_page_runs(shared: Site, tmp_path: Path) -> None:
    pieces = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(pieces) == 5
    script = tmp_path / "page.py"
    script.write_text("\n".join(pieces))
    done = subprocess.run(
        [sys.executable, script],
        env=shared.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "alive"
    assert said[1].startswith("it would go to ")
    assert said[2].endswith("because least_loaded")
    assert said[3].startswith("insufficient_resources ")
    assert "['web-1']" in said
    assert any("vm.created" in line for line in said)
    assert said[-1] == "no VM 'nobody'"
