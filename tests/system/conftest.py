"""The site of a test: its processes are ended with it, whatever happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.processes import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Give a test its site, and end all of it."""
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.end()
