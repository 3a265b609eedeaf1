"""The site of a test, or of a module: its processes are ended with it, whatever happened."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from roost.client import Client
from tests.system.processes import Site

if TYPE_CHECKING:
    from tests.system.qemuhosts import QemuSite


def pytest_report_header() -> str:
    """Say which cases have their turn."""
    from tests.system.test_upgrades import RELEASES, TRIED

    if len(TRIED) == len(RELEASES):
        return "upgrades from every schema"
    named = ", ".join(release.schema for release in TRIED)
    return f"upgrades from {named}, by the commit (all of them: make test-all)"


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


class Real(NamedTuple):
    """A site with real guests, and a client of its control plane."""

    site: "QemuSite"
    client: Client


@contextmanager
def two_hosts(made: "QemuSite") -> Iterator[Real]:
    """Run a site's control plane and two hosts with real guests, all of it watched."""
    try:
        made.start("one", "two")
        with made.watching() as client:
            yield Real(made, client)
    finally:
        made.end()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Give a module a control plane and two hosts that run real guests, all of it watched."""
    from tests.system.qemuhosts import QemuSite  # what runs no guest needs none of it

    with two_hosts(QemuSite(tmp_path_factory.mktemp("real"))) as running:
        yield running
