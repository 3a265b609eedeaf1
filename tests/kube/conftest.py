"""The cluster that tests share."""

import asyncio
import hashlib
import os
import re
from collections.abc import Iterator

import pytest

from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import Setup
from tests.kube.clusters import need_tools
from tests.kube.late import tell_late


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Bring up a cluster without nodes: every test adds those that it needs."""
    need_tools()
    made = LocalCluster(tmp_path_factory.mktemp("kube"))
    asyncio.run(made.up(Setup(pools=()), attached=True))
    yield made
    asyncio.run(made.down())


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test has, fit for namespaces and nodes."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    # What is cut off may be all that tells two cases of one test apart.
    mark = hashlib.sha256(request.node.name.encode()).hexdigest()[:4]
    return words if len(words) <= 40 else f"{words[:35].strip('-')}-{mark}"


@pytest.fixture(autouse=True)
def _late_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all news come late when that is asked for: a way to find tests that only seem sound."""
    if late_s := float(os.environ.get("ROOST_LATE_NEWS_S") or 0.0):
        tell_late(monkeypatch, late_s)
