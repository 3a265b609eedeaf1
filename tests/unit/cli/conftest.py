"""What the tests of commands share: a server that answers as it is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.canned import CannedServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CannedServer]:
    """Run a server and make it the one that commands find."""
    for name in ("ROOST_FLEET", "ROOST_OUTPUT", "ROOST_CONFIG", "ROOST_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with CannedServer() as running:
        monkeypatch.setenv("ROOST_SERVER", running.url)
        monkeypatch.setenv("ROOST_TOKEN", "roost_1_secret")
        yield running
