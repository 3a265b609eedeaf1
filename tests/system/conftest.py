"""The site of a test, or of a module: its processes are ended with it, whatever happened."""

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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Give a module one site with a control plane and two hosts, for tests that break nothing."""
    made = Site(tmp_path_factory.mktemp("shared"))
    try:
        server = made.serve()
        made.hosts("one", server)
        made.hosts("two", server)
        yield made
    finally:
        made.end()
